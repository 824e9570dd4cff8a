"""A group's ledger: which micro-batches it put into which reduction, and which reduction it committed.

One JSON line per entry, appended with a single write before the thing that it tells of, so that it survives the death
of the process at any point. `spare.api.ledger` audits the ledgers of all groups together.
"""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

from spare_runtime.errors import LedgerUnwritable

_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
"""Made once: two lines are written in every step."""


class Ledger:
    """Ledger of one worker process; without a directory nothing is written."""

    def __init__(self, directory: str | None, group: int | None, uid: str, rank: int | None = None) -> None:
        """
        Args:
            directory: Of the run.
            group: None of a spare, which has nothing to write down before it has a group's place.
            uid: Incarnation of the group.
            rank: In a group of several; each has a ledger.
        """
        self._fd = -1
        self._directory, self._of = directory, f"{'' if rank is None else f'.{rank}'}-{uid[:12]}"
        if group is not None:
            self.belongs_to(group)

    def belongs_to(self, group: int) -> None:
        """Open it, for that group."""
        if self._directory is not None:
            folder = Path(self._directory) / "ledger"
            folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._path = folder / f"group-{group}{self._of}.jsonl"
            self._fd = os.open(self._path, flags, 0o644)
            self._mend()

    def _mend(self) -> None:
        """Take off a last line that an earlier process of this incarnation has left torn: it was never written."""
        data = self._path.read_bytes()
        if data and not data.endswith(b"\n"):
            os.ftruncate(self._fd, data.rfind(b"\n") + 1)

    def _write(self, entry: dict[str, object]) -> None:
        """Append a line, whole or not at all: on a full disk a part of it may get through, and is taken off again.

        Raises:
            LedgerUnwritable: it was not appended.
        """
        if self._fd < 0:
            return
        line = _ENCODE(entry).encode() + b"\n"
        try:
            written = os.write(self._fd, line)
            if written < len(line):
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise LedgerUnwritable(f"the ledger {self._path} cannot be written: {error.strerror}") from error

    def begins(self, origin: int, checkpoint: str) -> None:
        """What follows belongs to the history that began in epoch `origin`, with that checkpoint (empty: at step 0).

        A ledger that does not say so begins in epoch 1, at step 0.
        """
        if origin != 1 or checkpoint:
            self._write({"origin": origin, "from": checkpoint})

    def entering(self, step: int, epoch: int, held: int) -> None:
        """About to enter the reduction of `step` under `epoch` with the micro-batches in `held` (a bit mask)."""
        self._write({"step": step, "epoch": epoch, "enters": f"{held:x}"})

    def committed(
        self, step: int, reduction: int, computed: int, again: int, digest: str | None, skipped: int = 0
    ) -> None:
        """Committing `step` from the reduction of epoch `reduction`.

        Args:
            step: From 0.
            reduction: Epoch of the reduction that is applied.
            computed: All micro-batches of the step that this process computed, whether they counted or not.
            again: How many it computed more than once.
            digest: Of the parameters after the commit, where asked for.
            skipped: Micro-batches that the sum was left without, because they killed groups.
        """
        entry: dict[str, object] = {"step": step, "commits": reduction, "computed": f"{computed:x}"}
        if again:
            entry["again"] = again
        if skipped:
            entry["skipped"] = f"{skipped:x}"
        if digest:
            entry["digest"] = digest
        self._write(entry)

    def begun_again(self, step: int, reduction: int, computed: int) -> None:
        """Nobody applies the reduction of epoch `reduction`, for its sum did not fit: all compute the step again."""
        self._write({"step": step, "begins_again": reduction, "computed": f"{computed:x}"})

    def fault(self, action: str, step: int, point: str) -> None:
        """A scripted failure is about to happen here; the moment is kept, since nobody else can know it."""
        self._write({"fault": action, "step": step, "point": point, "at": time.time()})
