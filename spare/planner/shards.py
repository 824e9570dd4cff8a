"""Schedules that give out whole shards, as the paper's do: the same planner, with a shard as the unit that is moved.

For comparison (``spec.scheduler: WholeShards``): one loss doubles the step; micro-batches make it a little longer.
The paper's three phases themselves are in ``whole``; there a group computes the first S shards of its stack, some of
them in vain. Here each shard is computed by one group, at the same least depth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spare.planner.placement import Placement
from spare.planner.reorder import Reorder
from spare.planner.schedule import Schedule, healthy


def healthy_shards(placement: Placement, micro_batches: int) -> Schedule:
    """The schedule while all groups live: each shard whole on its first host.

    Raises ValueError as ``healthy``.
    """
    return _scaled(healthy(placement, 1), micro_batches)


def by_whole_shards(schedule: Schedule, change: Callable[[Schedule], Reorder]) -> Reorder:
    """The answer of ``reorder`` or ``reorder_fetching``, with whole shards moved.

    Args:
        schedule: so far; each shard lies whole on one host.
        change: asked for the schedule of shards, as one with a single micro-batch in each.

    Raises:
        ValueError: a shard of the schedule is shared by several hosts.
        What ``change`` raises.
    """
    m = schedule.micro_batches
    shared = [shard for shard, row in enumerate(schedule.counts) if sorted(row)[-1] != m]
    if shared:
        raise ValueError(f"shard {shared[0]} is shared by several hosts; whole shards cannot be moved from there")
    rows = tuple(tuple(count // m for count in row) for row in schedule.counts)
    coarse = replace(schedule, micro_batches=1, counts=rows, cap=schedule.cap // m)
    found = change(coarse)
    return replace(found, schedule=_scaled(found.schedule, m), moved=found.moved * m, lost=found.lost * m)


def _scaled(schedule: Schedule, m: int) -> Schedule:
    if m < 1:
        raise ValueError(f"micro_batches is {m}; allowed is 1 or more")
    rows = tuple(tuple(count * m for count in row) for row in schedule.counts)
    return replace(schedule, micro_batches=m, counts=rows, cap=schedule.cap * m)
