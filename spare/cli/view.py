"""What every way of showing a run has in common: the moments that it is told of, and numbers made from snapshots."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from spare.cli.outcome import Outcome
from spare.control.state import JobState
from spare.coordinator.observe import Observer, Snapshot

PACE_WINDOW = 10.0
"""Seconds over which steps per second are averaged: short enough to show a recovery, long enough not to flicker."""

_BEFORE = (JobState.PENDING, JobState.WAITING)


@dataclass(frozen=True)
class Run:
    """What is known before the first process starts."""

    job: str
    groups: int
    redundancy: int
    micro_batches: int
    folder: Path
    script: tuple[str, ...]
    """Scripted failures, as the user wrote them."""


class View(Observer, Protocol):
    """Shows one run. Every call returns quickly; what must wait (a redraw) is for a timer of the event loop."""

    def begin(self, run: Run) -> None:
        """Before the first process starts."""

    def note(self, text: str) -> None:
        """The command itself has something to say."""

    def end(self, outcome: Outcome) -> None:
        """No process is left; this is what came of it."""

    def broken(self) -> None:
        """The run ends with an exception, which will be shown: leave the terminal as it was."""


class Pace:
    """Steps per second over the last few seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def see(self, now: float, snapshot: Snapshot) -> None:
        """Take note of how far the job is. A restart takes steps back, and their rate with them; those of a checkpoint
        that it goes on from were not made now, nor was the time before it began."""
        step = snapshot.step
        if snapshot.state in _BEFORE or (self._seen and step < self._seen[-1][1]):
            self._seen.clear()
        if snapshot.state in _BEFORE:
            return
        if not self._seen or self._seen[-1][1] != step:
            self._seen.append((now, step))
        while len(self._seen) > 2 and now - self._seen[0][0] > PACE_WINDOW:
            self._seen.popleft()

    def at(self, now: float) -> float:
        """The rate now: it falls while nothing is committed."""
        if len(self._seen) < 2:
            return 0.0
        since, first = self._seen[0]
        return (self._seen[-1][1] - first) / max(now - since, 1e-9)


def live_groups(snapshot: Snapshot) -> int:
    """Groups that take part."""
    return sum(group.state in ("joining", "active", "done") for group in snapshot.groups)
