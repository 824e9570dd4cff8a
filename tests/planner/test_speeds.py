"""Groups that are slower than the others compute less, in proportion, and no more than that is moved."""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spare.planner import Placement, Schedule, WipeOut, check, check_ranges, healthy, place, reorder, room, speed_cap
from tests.planner import oracles

Change = tuple[set[int], dict[int, int] | None]
"""Live groups, and their speeds."""


def limits(cap: int, live: tuple[int, ...], speeds: Mapping[int, int]) -> dict[int, int]:
    """By the definition: a share of the cap in proportion to the speed, at least one micro-batch."""
    return {g: max(1, int(Fraction(cap * speeds.get(g, 100), 100))) for g in live}


@st.composite
def slowed(draw: st.DrawFn) -> tuple[Placement, int, list[Change]]:
    """A small placement, m, and changes of who is live and how fast."""
    n = draw(st.integers(1, 8))
    r = draw(st.integers(1, n))
    placement = draw(st.sampled_from(oracles.placements(n, r, draw(st.integers(0, 99)))))
    live = st.sets(st.integers(0, n - 1), min_size=1)
    speeds = st.dictionaries(st.integers(0, n - 1), st.integers(1, 100), max_size=n)
    changes = draw(st.lists(st.tuples(live, st.none() | speeds), min_size=1, max_size=4))
    return placement, draw(st.integers(1, 9)), changes


@given(slowed())
@settings(max_examples=150)
def test_the_cap_is_the_least_for_these_speeds(case: tuple[Placement, int, list[Change]]) -> None:
    """Valid by the judge, complete and disjoint, every group within its share, and a cap of one less does not fit."""
    placement, m, changes = case
    n = placement.groups
    schedule, known = healthy(placement, m), dict[int, int]()
    for live, speeds in changes:
        known = {g: s for g, s in (speeds or known).items() if g in live and (speeds or g in schedule.live)}
        if oracles.wiped(placement, live):
            return  # as without speeds
        answer = reorder(schedule, live, speeds if speeds else None)
        schedule = answer.schedule

        assert check(schedule) == ()
        assert check_ranges(placement, m, {g: schedule.ranges(g) for g in schedule.live}) == ()
        assert {g: schedule.speed(g) for g in schedule.live} == {g: known.get(g, 100) for g in schedule.live}
        assert all(schedule.load(g) <= most for g, most in limits(schedule.cap, schedule.live, known).items())
        assert oracles.fits(placement, live, [m] * n, limits(schedule.cap, schedule.live, known))
        if schedule.cap > 1:
            assert not oracles.fits(placement, live, [m] * n, limits(schedule.cap - 1, schedule.live, known))


@given(slowed())
@settings(max_examples=100)
def test_depth_is_bounded_by_the_speeds(case: tuple[Placement, int, list[Change]]) -> None:
    """No step is shorter than all speeds together allow; none is longer than the cap, but for a group at its floor."""
    placement, m, changes = case
    schedule = healthy(placement, m)
    for live, speeds in changes:
        try:
            schedule = reorder(schedule, live, speeds).schedule
        except WipeOut:
            return
        together = sum(Fraction(schedule.speed(g), 100) for g in schedule.live)
        floor = max(Fraction(100, schedule.speed(g)) for g in schedule.live)

        assert schedule.depth >= float(Fraction(placement.groups) / together) - 1e-9
        assert schedule.depth <= max(float(floor), schedule.cap) / m + 1e-9
        assert schedule.bound <= schedule.cap / m


@given(slowed())
@settings(max_examples=50)
def test_the_same_speeds_give_the_same_bytes(case: tuple[Placement, int, list[Change]]) -> None:
    """Whatever the order in which they are told; what was written is read back equal."""
    placement, m, changes = case
    schedule = healthy(placement, m)
    for live, speeds in changes:
        told = None if speeds is None else dict(reversed(list(speeds.items())))
        try:
            one, other = reorder(schedule, live, speeds), reorder(schedule, sorted(live, reverse=True), told)
        except WipeOut:
            return
        assert one.schedule.to_bytes() == other.schedule.to_bytes()
        assert Schedule.from_json(one.schedule.to_json()) == one.schedule
        schedule = one.schedule


def test_half_the_speed_is_half_the_work() -> None:
    """Eight groups, one at half the speed: 64 micro-batches on 7.5 groups' worth, so 9 and 4 instead of 8 each."""
    before = healthy(place(8, 3), 8)
    answer = reorder(before, range(8), {3: 50})

    assert answer.schedule.cap == 9
    assert answer.schedule.load(3) == 4
    assert answer.depth == 9 / 8  # was 2.0: the slow group took twice as long for its 8
    assert reorder(before, range(8), {3: 50}).schedule.bound == 9 / 8
    assert answer.reason.startswith("group 3 computes at 50 % of the speed: 4 moved, depth 1.000 -> 1.125")


@pytest.mark.parametrize("seed", range(5))
def test_who_recovers_gets_an_even_share_again(seed: int) -> None:
    """All live and healthy: everybody computes m, as at the start."""
    rng = random.Random(seed)
    n, m = rng.randrange(5, 20), rng.choice([4, 8, 32])
    schedule = healthy(place(n, 3), m)
    slow = {rng.randrange(n): rng.randrange(10, 90) for _ in range(3)}
    schedule = reorder(schedule, range(n), slow).schedule
    assert schedule.depth > 1
    schedule = reorder(schedule, range(n), {}).schedule

    assert schedule.loads == (m,) * n
    assert schedule.speeds == ()
    assert "speeds" not in schedule.to_json()


def test_a_loss_keeps_the_speeds_of_the_others_and_a_replacement_is_healthy() -> None:
    """Without new measurements what is known stays true; a fresh process is not slow before it was seen to be."""
    slow = reorder(healthy(place(8, 3), 8), range(8), {3: 50, 5: 25}).schedule
    without = reorder(slow, [0, 1, 2, 3, 4, 6, 7]).schedule
    again = reorder(without, range(8)).schedule

    assert {g: s for g, s in enumerate(without.speeds) if s != 100} == {3: 50}
    assert {g: s for g, s in enumerate(again.speeds) if s != 100} == {3: 50}
    assert again.load(5) > slow.load(5)


def test_the_slowest_group_keeps_one_micro_batch() -> None:
    """Who computes nothing could never be seen to recover."""
    answer = reorder(healthy(place(8, 3), 8), range(8), {2: 1})

    assert answer.schedule.load(2) == 1
    assert answer.depth == 100 / 8  # one micro-batch at a hundredth of the speed


@pytest.mark.parametrize("speeds", [{8: 50}, {-1: 50}, {0: 0}, {0: 101}])
def test_a_speed_out_of_range_is_refused(speeds: dict[int, int]) -> None:
    """The text names the group and what is allowed."""
    with pytest.raises(ValueError, match="allowed are groups 0 to 7 at 1 to 100 per cent"):
        reorder(healthy(place(8, 3), 8), range(8), speeds)


@given(st.integers(0, 500), st.lists(st.integers(1, 100), min_size=1, max_size=9))
def test_the_cap_of_some_speeds_is_the_least(units: int, speeds: list[int]) -> None:
    """It fits, and one less does not."""
    cap = speed_cap(units, speeds)

    assert sum(room(cap, speed) for speed in speeds) >= units
    assert cap == 1 or sum(room(cap - 1, speed) for speed in speeds) < units


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"speeds": (50,) * 8}, "is over the cap of 8, or of its share at its speed"),
        ({"speeds": (100,) * 7}, "speeds are not one number of 1 to 100 per cent for each of the 8 groups"),
        ({"speeds": (0,) + (100,) * 7}, "speeds are not one number"),
        ({"speeds": ("x",) * 8}, "speeds are not one number"),
        ({"speeds": None}, "speeds are not one number"),
        ({"speeds": (100,) * 8, "cap": 7}, "with these speeds 56 of 8 * 8 micro-batches fit"),
    ],
)
def test_the_judge_reads_the_speeds(changes: dict[str, object], sentence: str) -> None:
    """A schedule that the speeds do not allow is named."""
    plan = {**healthy(place(8, 3), 8).to_json(), **changes}

    assert any(sentence in broken for broken in check(plan)), check(plan)
