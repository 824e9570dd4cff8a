"""Writes checkpoints while training goes on: a copy between two steps, the rest in a thread beside it.

What it costs: the time to copy the state once into memory of the host, between two steps of the one group that writes
(the others wait for it in their next reduction); host memory of the size of the state for that copy, kept for the next
one; and the processor time and disk bandwidth of the thread.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from spare.api.checkpoint import Manifest, Name
from spare_runtime.checkpoint import tensors
from spare_runtime.checkpoint.claim import hold
from spare_runtime.checkpoint.folder import Folder, digest

RANKS_DEADLINE = 600.0
"""Seconds that rank 0 waits for the other ranks of its group to have written their parts."""
_LOOK_EVERY = 0.02


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is complete."""

    name: Name
    staged: float
    """Seconds for which training stood still: the copy."""
    seconds: float
    """From the copy's beginning until the checkpoint was complete."""
    size: int
    """Bytes of its files."""


@dataclass(frozen=True)
class Failed:
    """A checkpoint that did not come about."""

    name: Name
    error: str


class Writer:
    """One rank's part in writing checkpoints; one at a time."""

    def __init__(
        self, folder: Folder, keep: int, uid: str, tell: Callable[[Saved | Failed], None], rank: int = 0
    ) -> None:
        """Nothing is written yet.

        Args:
            folder: Of the job.
            keep: How many of the newest complete checkpoints are left when one is done.
            uid: Of the group's incarnation.
            tell: Called from the thread with what came of each.
            rank: Within the group. Rank 0 puts the parts of all ranks together.
        """
        self._folder, self._keep, self._uid, self._tell, self._rank = folder, keep, uid, tell, rank
        self._staging: dict[str, Tensor] = {}
        self._thread: threading.Thread | None = None
        self._came: Saved | Failed | None = None

    @property
    def busy(self) -> bool:
        """Whether one is still being written."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, state: Any, manifest: Manifest) -> None:
        """Copy the state and return; it is written from then on. Not while `busy`.

        Args:
            state: Nested dicts and lists of plain values and tensors.
            manifest: Without its files.
        """
        assert not self.busy
        began = time.monotonic()
        self._came = None
        name = Name.parse(manifest.name)
        try:
            plain, found = tensors.named(state)
            packed, copies = tensors.pack(plain), self._copies(found)
        except (ValueError, RuntimeError) as error:  # no plain value; no memory
            self._end(Failed(name, str(error)))
            return
        staged = time.monotonic() - began
        work = (manifest, name, packed, copies, staged, began)
        self._thread = threading.Thread(target=self._work, args=work, name="spare-checkpoint", daemon=True)
        self._thread.start()

    def wait(self, deadline: float, unless: Callable[[], bool] = lambda: False) -> Saved | Failed | None:
        """What came of the last one, waiting for it at most `deadline` seconds, and not while `unless`; None if it is
        not known by then."""
        until = time.monotonic() + deadline
        while self._thread is not None and self.busy and time.monotonic() < until and not unless():
            self._thread.join(_LOOK_EVERY)
        return None if self.busy else self._came

    def save(
        self,
        state: Any,
        manifest: Manifest,
        deadline: float,
        unless: Callable[[], bool] = lambda: False,
        wait: bool = True,
    ) -> Saved | Failed | None:
        """Write one now and, with `wait`, wait for it: before this process leaves, or at the end. None: not done in
        time, or given up because of `unless`; it is then still being written.

        One of the same step that is being written, or is complete already, is as good.
        """
        until = time.monotonic() + deadline
        last = self.wait(deadline, unless)
        if isinstance(last, Saved) and str(last.name) == manifest.name:
            return last
        if self.busy:
            return None
        self.begin(state, manifest)
        return self.wait(until - time.monotonic() if wait else 0.0, unless)

    def _copies(self, found: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors on the host, in memory that is kept from one checkpoint to the next."""
        kept: dict[str, Tensor] = {}
        for name, tensor in found.items():
            source = tensor.detach()
            if hasattr(source, "to_local"):
                source = source.to_local()  # of a DTensor: this rank's part
            place = self._staging.get(name)
            if place is None or place.shape != source.shape or place.dtype != source.dtype:
                place = source.new_empty(source.shape, device="cpu")
            kept[name] = place.copy_(source)
        self._staging = kept
        return kept

    # --- the thread -------------------------------------------------------------------------------------------------

    def _work(
        self, manifest: Manifest, name: Name, packed: Tensor, copies: dict[str, Tensor], staged: float, began: float
    ) -> None:
        draft: Path | None = None
        try:
            draft = self._folder.draft(name, self._uid)
            tensors.write(draft / f"rank-{self._rank}", copies, packed)
            if self._rank != 0:
                _hand_in(draft, self._rank)
                self._came = Saved(name, staged, time.monotonic() - began, 0)  # rank 0 tells, once all are there
                return
            _gather(draft, manifest.ranks)
            hold(self._folder.path, name.tag, manifest.job)
            self._folder.publish(draft, manifest)
            self._folder.prune(self._keep, name)
            size = sum(file.size for file in self._folder.manifest(name).files.values())
            self._end(Saved(name, staged, time.monotonic() - began, size))
        except Exception as error:  # noqa: BLE001  # told to everybody; training goes on
            if draft is not None:
                self._folder.drop(draft)  # a full disk needs the room
            self._end(Failed(name, str(error) or type(error).__name__))

    def _end(self, what: Saved | Failed) -> None:
        self._came = what
        self._tell(what)


def _hand_in(draft: Path, rank: int) -> None:
    """Say that this rank's files are there, whole: the digests tell which."""
    folder = draft / f"rank-{rank}"
    files = {path.name: asdict(digest(path)) for path in folder.iterdir()}
    done = draft / f"rank-{rank}.json"
    with done.with_suffix(".tmp").open("w", encoding="utf-8") as file:
        json.dump(files, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(done.with_suffix(".tmp"), done)


def _gather(draft: Path, ranks: int) -> None:
    """Wait until the other ranks have handed in.

    Raises:
        TimeoutError: naming those that have not.
    """
    until = time.monotonic() + RANKS_DEADLINE
    while missing := [rank for rank in range(1, ranks) if not (draft / f"rank-{rank}.json").exists()]:
        if time.monotonic() > until:
            raise TimeoutError(f"waited {RANKS_DEADLINE:.0f} s for the ranks {missing} to write their parts")
        time.sleep(_LOOK_EVERY)
    for rank in range(1, ranks):
        (draft / f"rank-{rank}.json").unlink()
