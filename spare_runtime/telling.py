"""What a member tells of its steps: commits to the coordinator, and why a step is begun again."""

from __future__ import annotations

from collections.abc import Callable

from spare.api import wire
from spare_runtime.line import Line

_EVERY, _MOST = 0.05, 0.25
"""Seconds between two reports of commits: at first, and in the long run."""
_ALL = 400
"""Reports that all ranks of all groups make in a second at most, but for the first of each epoch: the coordinator of a
large job has the heartbeats of all of them to read as well."""
_SHARE = 1 / 40
"""Of the time since the epoch began, how long the next report waits, within these bounds."""


def pause(lasted: float, ranks: int) -> float:
    """Seconds until the next report of an epoch that has lasted so long, in a job of so many ranks."""
    return max(min(max(_EVERY, _SHARE * lasted), _MOST), ranks / _ALL)


class Commits:
    """Reports commits: the first one of each epoch, which ends a recovery, and the others as often as people can read.

    Each report costs agent and coordinator more than a small step does, so where nothing has changed for long they
    become rare. Heartbeats tell the step in between, and the last one is told by who is done.
    """

    def __init__(self, line: Line, clock: Callable[[], float]) -> None:
        self._line, self._clock = line, clock
        self._epoch, self._began, self._next = -1, 0.0, 0.0
        self._computed, self._seconds = 0, 0.0

    def tell(self, step: int, loss: float | None, computed: int, seconds: float, ranks: int) -> None:
        """The group has committed a step, after computing `computed` micro-batches for it in so many seconds. `ranks`:
        how many the job has, of all groups."""
        now, epoch = self._clock(), self._line.epoch
        self._computed += computed
        self._seconds += seconds
        if epoch != self._epoch:
            self._epoch, self._began = epoch, now
        elif now < self._next:
            return
        self._next = now + pause(now - self._began, ranks)
        what = {"computed": self._computed, "seconds": self._seconds}
        self._line.send(self._line.report(wire.Committed, step=step, loss=loss, **what))
        self._computed, self._seconds = 0, 0.0


def begun_again(step: int, why: tuple[str, ...]) -> str:
    """Why a step is computed again, for the log."""
    more = f", and {len(why) - 1} more" if len(why) > 1 else ""
    return f"spare: step {step} is begun again: {why[0]}{more}"
