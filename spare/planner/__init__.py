"""Pure: placement, scheduling, patch assignment, theory, and the judge.

``place`` says which group may compute which shard, ``healthy`` and ``reorder`` who computes what, ``patch`` who
computes what a failure left missing of the step in flight, ``check`` whether an answer is right, and the formulas of
``theory`` what to expect. No I/O, no clock, no randomness: equal arguments give equal answers, byte for byte.
"""

from spare.planner.fetch import native, reorder_fetching, widened
from spare.planner.judge import check, check_patch, check_ranges
from spare.planner.microbatches import Range, mask_of, ranges_of
from spare.planner.patch import patch
from spare.planner.placement import STRATEGIES, Placement, place
from spare.planner.reorder import Reorder, reorder
from spare.planner.schedule import Schedule, healthy
from spare.planner.shards import by_whole_shards, healthy_shards
from spare.planner.theory import (
    availability,
    best_redundancy,
    checkpoint_period,
    expected_depth,
    lower_bound,
    masked_mean,
    mean_depth,
    micro_bound,
    micro_cap,
    objective,
    recommended_redundancy,
    room,
    speed_cap,
)
from spare.planner.whole import WholeReorder, WholeSchedule, whole_healthy, whole_reorder
from spare.planner.wipe_out import WipeOut

__all__ = [
    "STRATEGIES",
    "Placement",
    "Range",
    "Reorder",
    "Schedule",
    "WholeReorder",
    "WholeSchedule",
    "WipeOut",
    "availability",
    "best_redundancy",
    "by_whole_shards",
    "check",
    "check_patch",
    "check_ranges",
    "checkpoint_period",
    "expected_depth",
    "healthy",
    "healthy_shards",
    "lower_bound",
    "mask_of",
    "masked_mean",
    "mean_depth",
    "micro_bound",
    "micro_cap",
    "native",
    "objective",
    "patch",
    "place",
    "ranges_of",
    "recommended_redundancy",
    "reorder",
    "reorder_fetching",
    "room",
    "speed_cap",
    "whole_healthy",
    "whole_reorder",
    "widened",
]
