"""Failures that were answered, as values: while the job gets over one, and after. Times are the coordinator's clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recovering:
    """A failure that has been answered, until the job is seen to go on. None: not seen yet."""

    groups: tuple[int, ...]
    step: int
    epoch: int
    sign: float
    decided: float
    reason: str
    pushed: float | None = None
    running: tuple[tuple[int, float], ...] = ()
    """(group, when) of the survivors that said they run in `epoch`."""
    committed: float | None = None
    given_up: float | None = None
    """When it was decided to begin again, after a wipe-out; `decided` is then when all groups were there to do so."""


@dataclass(frozen=True)
class Recovered:
    """A failure that the job has got over: moments, not durations. None: that part was not seen."""

    groups: tuple[int, ...]
    step: int
    epoch: int
    sign: float
    decided: float
    pushed: float | None
    running: float | None
    committed: float | None
    reason: str
    given_up: float | None = None
    """As in Recovering."""
