"""A death that may speak against a micro-batch: see `spare.control.poison`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Crash:
    """A worker that died of something that it did itself, with a micro-batch in hand."""

    group: int
    uid: str
    micro: tuple[int, int, int]
    """(step, shard, index)."""
    how: str
    by_itself: bool
    """It left with an exit code of its own, and told no exception."""
