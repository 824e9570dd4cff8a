"""Whole shards moved by the planner of micro-batches."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spare.planner import (
    WipeOut,
    by_whole_shards,
    check,
    healthy,
    healthy_shards,
    place,
    reorder,
    reorder_fetching,
    whole_healthy,
    whole_reorder,
)


@settings(max_examples=60, deadline=None)
@given(groups=st.integers(2, 16), m=st.integers(1, 8), data=st.data())
def test_every_shard_stays_whole_and_the_judge_accepts_it(groups: int, m: int, data: st.DataObject) -> None:
    """Through any course of losses and joins; at the depth of the paper's own scheduler while groups only leave."""
    redundancy = data.draw(st.integers(1, groups))
    placement = place(groups, redundancy, data.draw(st.sampled_from(["Golomb", "Consecutive"])))
    schedule, theirs = healthy_shards(placement, m), whole_healthy(placement)
    only_left = True
    for _ in range(6):
        live = data.draw(st.sets(st.integers(0, groups - 1), min_size=1))
        only_left = only_left and live <= set(schedule.live)
        if any(live.isdisjoint(placement.hosts(shard)) for shard in range(groups)):
            with pytest.raises(WipeOut):
                by_whole_shards(schedule, lambda coarse, live=live: reorder(coarse, live))  # type: ignore[misc]
            return
        change = by_whole_shards(schedule, lambda coarse, live=live: reorder(coarse, live))  # type: ignore[misc]
        schedule = change.schedule
        assert check(schedule) == ()
        assert all(sorted(row)[-1] == m for row in schedule.counts)
        assert change.lost % m == change.moved % m == 0
        if only_left:
            theirs = whole_reorder(theirs, live).schedule
            assert change.depth == theirs.depth


def test_one_loss_doubles_the_step() -> None:
    """And the sentence counts shards."""
    change = by_whole_shards(healthy_shards(place(8, 3), 4), lambda coarse: reorder(coarse, set(range(7))))

    assert change.depth == 2.0
    assert change.reason == "group 7 lost: 1 shard given to 1 host, 0 moved, depth 1.000 -> 2.000 (bound 2.000)"
    assert (change.lost, change.moved) == (4, 0)


def test_shards_are_fetched_whole() -> None:
    """Nobody hosts them; each goes to one group."""
    schedule = healthy_shards(place(4, 1), 4)

    change = by_whole_shards(schedule, lambda coarse: reorder_fetching(coarse, [0, 1], 1, [0, 1]))

    assert check(change.schedule, native=1) == ()
    assert change.schedule.loads == (8, 8, 0, 0)


def test_shared_shards_cannot_be_moved_whole() -> None:
    """A schedule of micro-batches is none of whole shards."""
    with pytest.raises(ValueError, match="shard 0 is shared by several hosts"):
        by_whole_shards(healthy(place(4, 2), 4), lambda coarse: reorder(coarse, [0, 1, 2]))
    with pytest.raises(ValueError, match="micro_batches is 0"):
        healthy_shards(place(4, 2), 0)
