"""The unit of work of a step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Micro:
    """One micro-batch to compute: forward, then `session.backward(loss)`."""

    step: int
    """From 0."""
    shard: int
    index: int
    """Within the shard, 0 to m - 1."""
    samples: range
    """Ordinal numbers of its samples since the start of training; `session.loader` maps them to a shuffled data set."""
