"""Fetching: whoever is left, every shard is computed; nothing is fetched without need; all comes back to normal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spare.planner import WipeOut, check, check_patch, healthy, native, patch, place, reorder, reorder_fetching, widened

EIGHT = healthy(place(8, 3), 8)


@given(st.data())
def test_any_survivors_compute_everything(data: st.DataObject) -> None:
    """At the least possible depth once one group hosts all; the judge agrees that somebody had to fetch."""
    n = data.draw(st.integers(1, 12))
    r = data.draw(st.integers(1, n))
    live = data.draw(st.sets(st.integers(0, n - 1), min_size=1).map(sorted))
    before = healthy(place(n, r), 4)

    change = reorder_fetching(before, live, r, live)

    assert check(change.schedule) == ()
    assert check(change.schedule, r) == ()
    assert change.schedule.live == tuple(live)
    assert native(change.schedule.placement, r) == before.placement
    every = (1 << 4 * n) - 1
    shares = patch(change.schedule.placement, 4, live, every)
    assert check_patch(change.schedule.placement, 4, live, every, shares) == ()


@given(st.sets(st.integers(0, 7), min_size=1, max_size=7))
def test_without_a_wipe_out_it_is_reorder(lost: set[int]) -> None:
    """The same answer, byte for byte, where each shard has a host left."""
    live = sorted(set(range(8)) - lost)
    try:
        expected = reorder(EIGHT, live)
    except WipeOut:
        assert widened(EIGHT.placement, live).redundancy > 3
        return

    assert reorder_fetching(EIGHT, live, 3, live) == expected


def test_groups_that_come_back_end_the_fetching() -> None:
    """Once they can compute; the shares are within the cap again, and nothing lies on a layer that is gone."""
    few = reorder_fetching(EIGHT, [0, 1], 3, [0, 1])
    assert few.schedule.placement.redundancy > 3

    loading = reorder_fetching(few.schedule, range(8), 3, [0, 1])
    assert loading.schedule.placement == few.schedule.placement, "who has nothing yet saves nobody from fetching"
    back = reorder_fetching(loading.schedule, range(7), 3, range(7))

    assert back.schedule.placement == EIGHT.placement
    assert check(back.schedule, 3) == ()
    assert back.schedule.depth == 10 / 8


def test_the_judge_refuses_needless_fetching() -> None:
    """A wider placement is a placement, but not one to use while every shard has a host."""
    wide = replace(
        EIGHT,
        placement=replace(EIGHT.placement, redundancy=4, offsets=(*EIGHT.placement.offsets, 1)),
        counts=tuple((*row, 0) for row in EIGHT.counts),
    )

    assert check(wide) == ()
    assert check(wide, 3) == ("shards are fetched though each has a live host",)
    assert check(wide, 5) == ("native is 5; allowed is 1 to the placement's redundancy, 4",)


def test_few_offsets_are_added() -> None:
    """As many as are needed to reach each shard, and the same ones each time."""
    placement = place(100, 3)
    live = range(0, 100, 2)

    wide = widened(placement, [*live])

    assert wide == widened(placement, reversed(live))  # type: ignore[arg-type]
    assert wide.redundancy <= 4
    assert widened(placement, [5]).redundancy == 100


def test_nobody_left_is_an_error() -> None:
    """There is nothing to widen for."""
    with pytest.raises(ValueError, match="live has no group"):
        widened(EIGHT.placement, [])
    with pytest.raises(ValueError, match="redundancy is 4"):
        native(EIGHT.placement, 4)
