"""A worker's part in checkpoints: what it can begin with, when it writes one, and whether the script still fits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from spare.api import wire
from spare.api.checkpoint import Manifest, Name, Shape, Terms, mismatch, refusal, tag_of
from spare.planner.words import counted
from spare_runtime.checkpoint import tensors
from spare_runtime.checkpoint.folder import Folder
from spare_runtime.checkpoint.writer import Failed, Saved, Writer
from spare_runtime.config import Environment
from spare_runtime.errors import CheckpointDamaged, CheckpointMismatch, SessionMisuse
from spare_runtime.line import Line
from spare_runtime.training import Training

LAST_DEADLINE = 1800.0
"""Seconds that the end of a job may wait for its last checkpoint."""


def shapes_of(model: torch.nn.Module) -> dict[str, Shape]:
    """Sizes and dtypes of all parameters and buffers."""
    found = model.state_dict()
    return {
        name: (tuple(value.shape), str(value.dtype).split(".")[1])
        for name, value in found.items()
        if isinstance(value, torch.Tensor)
    }


class Keeper:
    """Without a path in the environment everything here does nothing."""

    def __init__(self, env: Environment, rank: int = 0, ranks: int = 1, clock: Callable[[], float] = time.monotonic):
        """Nothing is read or written yet.

        Args:
            env: Names the path.
            rank: Of this process within its group.
            ranks: Processes of the group.
            clock: Seconds.
        """
        self._group, self._rank, self._ranks, self._clock = env.group, rank, ranks, clock
        self._folder = Folder(Path(env.checkpoint)) if env.checkpoint else None
        self._writer: Writer | None = None
        if self._folder is not None:
            tensors.library()  # here, and not in the thread that writes: others would see it half imported
            self._writer = Writer(self._folder, env.checkpoint_keep, env.uid, self._came, rank)
        self._orders = threading.Lock()
        self._due: float | None = None
        self._period = float("inf")
        self._line: Line | None = None
        self.begun_from: Manifest | None = None
        """What this process has begun with itself; None: step 0, or a member's state."""
        self._newest: Name | None = None
        """Written, or begun with: there is nothing to be gained by writing this one."""
        self._terms: Terms | None = None
        self._failed: Failed | None = None
        """What was told last of one that did not come about."""

    # --- the line ---------------------------------------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        """The newest complete ones, newest first, for the hello."""
        return () if self._folder is None else tuple(map(str, self._folder.complete()))

    def belongs_to(self, group: int) -> None:
        """This process was a spare, and has that group's place now."""
        self._group = group

    def attach(self, line: Line) -> None:
        """Report on this line."""
        self._line = line

    def on_save(self, order: wire.Save) -> None:
        """On the line's thread: the coordinator's standing order."""
        with self._orders:
            self._due, self._period = self._clock() + order.due, order.period

    def _came(self, what: Saved | Failed) -> None:
        """On the writer's thread, mostly."""
        line = self._line
        assert line is not None
        if isinstance(what, Failed):
            if what != self._failed:  # at the end it is tried again, and may fail as before
                self._failed = what
                line.send(line.report(wire.Unsaved, step=what.name.step, error=what.error))
            return
        fields = {"staged": what.staged, "seconds": what.seconds, "size": what.size}
        line.send(line.report(wire.Saved, name=str(what.name), **fields))

    # --- beginning --------------------------------------------------------------------------------------------------

    def begin(self, plan: wire.Plan, training: Training) -> None:
        """Take over the checkpoint that a plan begins with, if it names one.

        Raises:
            CheckpointDamaged: it is not there, or not what was written; the training is as it was.
            CheckpointMismatch: it is of another model; the text names what differs.
        """
        if not plan.checkpoint:
            return
        name = Name.parse(plan.checkpoint)
        if self._folder is None:
            raise CheckpointDamaged(f"checkpoint {name}: this process was started without SPARE_CHECKPOINT")
        part = f"rank-{self._rank}"
        manifest = self._folder.verify(name, f"{part}/", self._progress)
        if manifest.ranks != self._ranks:
            raise CheckpointMismatch(
                f"a group has {counted(self._ranks, 'rank')}, and checkpoint {name} was written by one of "
                f"{manifest.ranks}: its parts fit the same number only"
            )
        if self._rank == 0 and (text := mismatch(manifest.model, shapes_of(training.model))) is not None:
            raise CheckpointMismatch(f"checkpoint {name} is of another model: {text}")
        try:
            state = tensors.read(self._folder.path / str(name) / part)
        except OSError as error:
            raise CheckpointDamaged(str(error)) from error
        try:
            training.load(state)
        except (SessionMisuse, ValueError, KeyError, RuntimeError) as error:
            raise CheckpointMismatch(f"checkpoint {name} does not fit the script: {error}") from error
        training.anchor = (manifest.step, manifest.samples)
        self.begun_from, self._newest = manifest, name

    def _progress(self) -> None:
        """Who loads for long does not hang."""
        if self._line is not None:
            self._line.phase = "load"
            self._line.micros += 1

    def agree(self, terms: Terms) -> None:
        """Before the first step: how the data are divided now.

        Raises:
            CheckpointMismatch: the job cannot go on like that from where the checkpoint left off.
        """
        if self._terms is None and self.begun_from is not None:
            text = refusal(self.begun_from.terms, terms)
            if text is not None:
                raise CheckpointMismatch(f"checkpoint {self.begun_from.name} cannot be gone on from: {text}")
        self._terms = terms

    # --- writing ----------------------------------------------------------------------------------------------------

    def writes(self, plan: wire.Plan) -> bool:
        """Whether it is for this group to write them. The same at all its ranks."""
        return self._writer is not None and plan.writer == self._group

    def due(self, plan: wire.Plan, training: Training) -> bool:
        """Whether this rank could write one now, and it is time to. All ranks of the group must say so."""
        if self._writer is None or self._writer.busy or not training.whole:
            return False
        with self._orders:
            return self._due is not None and self._clock() >= self._due and not self._done(plan, training)

    def write(self, plan: wire.Plan, training: Training) -> None:
        """Begin to write one. The state must not be about to change."""
        assert self._writer is not None
        with self._orders:
            self._due = self._clock() + self._period
        self._newest = self._name(plan, training)
        self._writer.begin(training.state(), self._manifest(plan, training))

    def save_now(
        self,
        plan: wire.Plan,
        training: Training,
        deadline: float,
        unless: Callable[[], bool] = lambda: False,
        wait: bool = True,
    ) -> bool:
        """Write one of the present state and wait for it, at most `deadline` seconds, and not while `unless`; without
        `wait`, only until the state is copied.

        Returns:
            Whether the state is safe: by this group, or by whom the plan names for it.
        """
        if self._writer is None or self._folder is None:
            return False
        if training.committed == 0 or self._stale(training) or plan.writer != self._group:
            return True
        if self._terms is None or not training.whole:
            return False
        name = self._name(plan, training)
        if name in self._folder:
            return True
        came = self._writer.save(training.state(), self._manifest(plan, training), deadline, unless, wait)
        if came is None and wait and not unless():
            self._came(Failed(name, f"it was not written within {deadline:.0f} s"))
        return isinstance(came, Saved)

    def _done(self, plan: wire.Plan, training: Training) -> bool:
        return training.committed == 0 or self._name(plan, training) == self._newest or self._stale(training)

    def _stale(self, training: Training) -> bool:
        """Nothing was committed since the checkpoint that this history began with."""
        return self.begun_from is not None and training.committed == self.begun_from.step

    def _name(self, plan: wire.Plan, training: Training) -> Name:
        return Name(plan.origin, training.committed, tag_of(plan.job))

    def _manifest(self, plan: wire.Plan, training: Training) -> Manifest:
        terms = self._terms
        assert terms is not None
        step, samples = training.anchor
        return Manifest(
            name=str(self._name(plan, training)),
            job=plan.job,
            epoch=plan.epoch,
            begun_from=plan.checkpoint or None,
            terms=terms,
            samples=samples + (training.committed - step) * terms.samples,
            model=shapes_of(training.model),
            ranks=self._ranks,
        )
