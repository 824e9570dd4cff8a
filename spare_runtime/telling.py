"""What a member tells of its steps: commits to the coordinator, and why a step is begun again."""

from __future__ import annotations

from collections.abc import Callable

from spare.api import wire
from spare_runtime.line import Line

_EVERY = 0.05
"""Seconds between two reports of commits."""


class Commits:
    """Reports commits: the first one of each epoch, which ends a recovery, and the others as often as people can read.

    Each report costs agent and coordinator more than a small step does. Heartbeats tell the step in between, and the
    last one is told by who is done.
    """

    def __init__(self, line: Line, clock: Callable[[], float]) -> None:
        self._line, self._clock = line, clock
        self._epoch, self._at, self._computed, self._seconds = -1, 0.0, 0, 0.0

    def tell(self, step: int, loss: float | None, computed: int, seconds: float) -> None:
        """The group has committed a step, after computing `computed` micro-batches for it in so many seconds."""
        now, epoch = self._clock(), self._line.epoch
        self._computed += computed
        self._seconds += seconds
        if epoch == self._epoch and now - self._at < _EVERY:
            return
        self._epoch, self._at = epoch, now
        what = {"computed": self._computed, "seconds": self._seconds}
        self._line.send(self._line.report(wire.Committed, step=step, loss=loss, **what))
        self._computed, self._seconds = 0, 0.0


def begun_again(step: int, why: tuple[str, ...]) -> str:
    """Why a step is computed again, for the log."""
    more = f", and {len(why) - 1} more" if len(why) > 1 else ""
    return f"spare: step {step} is begun again: {why[0]}{more}"
