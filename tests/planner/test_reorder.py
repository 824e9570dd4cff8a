"""Reordering: exact in depth, near the fewest moves, pure."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spare.planner import Placement, Schedule, WipeOut, check, healthy, place, reorder
from tests.planner import oracles


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Placement, int, list[set[int]]]:
    """A small placement, m, and a few sets of live groups, one after another."""
    n = draw(st.integers(1, 8))
    r = draw(st.integers(1, n))
    placement = draw(st.sampled_from(oracles.placements(n, r, draw(st.integers(0, 99)))))
    lives = draw(st.lists(st.sets(st.integers(0, n - 1), min_size=1), min_size=1, max_size=4))
    return placement, draw(st.integers(1, 9)), lives


@given(damaged())
@settings(max_examples=150)
def test_depth_is_the_least_by_enumeration(case: tuple[Placement, int, list[set[int]]]) -> None:
    """Whatever leaves or joins, the cap is what Hall's condition demands, or it is a wipe-out."""
    placement, m, lives = case
    schedule = healthy(placement, m)
    for live in lives:
        lost_for_good = oracles.wiped(placement, live)
        if lost_for_good:
            with pytest.raises(WipeOut) as error:
                reorder(schedule, live)
            assert list(error.value.shards) == lost_for_good
            return
        answer = reorder(schedule, live)
        least = oracles.least_cap_by_subsets(placement, sorted(live), [m] * placement.groups)

        assert check(answer.schedule) == ()
        assert answer.schedule.cap == least == max(answer.schedule.loads)
        assert answer.depth == answer.schedule.depth == least / m
        schedule = answer.schedule


@pytest.mark.parametrize("seed", range(12))
def test_depth_equals_maximum_flow_up_to_the_wipe_out(seed: int) -> None:
    """One failure at a time on three placements: at every state scipy's flow needs the same cap."""
    rng = random.Random(seed)
    n = rng.randrange(6, 40)
    r, m = rng.randrange(2, min(n, 6) + 1), rng.choice([1, 3, 8, 32])
    for placement in oracles.placements(n, r, seed):
        schedule = healthy(placement, m)
        for live in oracles.kills(n, seed):
            if oracles.wiped(placement, live):
                with pytest.raises(WipeOut):
                    reorder(schedule, live)
                break
            schedule = reorder(schedule, live).schedule
            # The cap fits, and one less does not: that is the least.
            assert check(schedule) == ()
            assert max(schedule.loads) == schedule.cap
            assert oracles.fits(placement, live, [m] * n, schedule.cap)
            assert not oracles.fits(placement, live, [m] * n, schedule.cap - 1)


@pytest.mark.parametrize("seed", range(8))
def test_depth_is_exact_through_failures_and_rejoins(seed: int) -> None:
    """A random walk of groups leaving and joining, several at once: always the least cap, 1.0 at the end."""
    rng = random.Random(seed)
    n, r, m = rng.choice([(12, 3, 8), (20, 4, 5), (30, 5, 16)])
    placement = oracles.placements(n, r, seed)[seed % 3]
    schedule, live = healthy(placement, m), set(range(n))
    for _ in range(30):
        new = set(live)
        for group in rng.sample(range(n), rng.randrange(1, 4)):
            new ^= {group}
        if not new or oracles.wiped(placement, new):
            continue
        live = new
        answer = reorder(schedule, live)
        schedule = answer.schedule

        assert check(schedule) == ()
        assert schedule.cap == oracles.least_cap(placement, sorted(live), [m] * n)
    back = reorder(schedule, range(n))

    assert back.depth == 1.0
    assert back.lost == 0


def _share_of_fewest(n: int, r: int, m: int, seeds: range, every: int) -> float:
    """Micro-batches that changed host, over the fewest possible at the same cap, summed over trajectories."""
    ours = fewest = 0
    for seed in seeds:
        placement = place(n, r)
        schedule = healthy(placement, m)
        for step, live in enumerate(oracles.kills(n, seed)):
            if oracles.wiped(placement, live):
                break
            answer = reorder(schedule, live)
            if step % every == 0:
                ours += answer.lost + answer.moved
                cap = answer.schedule.cap
                fewest += oracles.fewest_gains(placement, live, schedule.counts, m, cap)
            schedule = answer.schedule
    return ours / fewest


@pytest.mark.parametrize(
    ("n", "r", "m", "seeds", "every"), [(30, 4, 8, range(10), 1), (64, 6, 16, range(6), 2), (200, 9, 32, range(2), 4)]
)
def test_moves_are_within_three_per_cent_of_the_fewest(n: int, r: int, m: int, seeds: range, every: int) -> None:
    """In sum over whole trajectories, against min-cost flow at the same cap; and never below it."""
    assert 1.0 <= _share_of_fewest(n, r, m, seeds, every) <= 1.03


def test_moved_and_lost_count_what_changed() -> None:
    """Gains of the living are what was lost plus what moved; the reason says the same numbers."""
    before = healthy(place(12, 4), 8)
    answer = reorder(before, set(range(12)) - {3, 7})
    gains = [
        max(0, new - old)
        for row, other in zip(before.counts, answer.schedule.counts, strict=True)
        for old, new in zip(row, other, strict=True)
    ]

    assert answer.lost == before.load(3) + before.load(7) == 16
    assert answer.moved == sum(gains) - answer.lost
    assert (answer.left, answer.joined) == ((3, 7), ())
    assert answer.reason == (
        f"groups 3, 7 lost: 16 micro-batches given to 10 hosts, {answer.moved} moved, "
        "depth 1.000 -> 1.250 (bound 1.250)"
    )


def test_the_reason_of_a_rejoin_names_who_came() -> None:
    """Who left and who joined at the same time are both named."""
    first = reorder(healthy(place(12, 4), 8), range(10)).schedule
    answer = reorder(first, [*range(1, 10), 11])

    assert answer.reason.startswith("group 0 lost, group 11 joined: ")
    assert (answer.left, answer.joined) == ((0,), (11,))


def test_many_groups_are_counted_not_listed() -> None:
    """A sentence stays a sentence when a hundred groups go."""
    answer = reorder(healthy(place(200, 9), 4), range(100, 200))

    assert answer.reason.startswith("groups 0, 1, 2, 3, 4, 5, 6, 7, ... (100 in all) lost: 400 micro-batches given")
    assert len(answer.reason) < 200


def test_no_change_gives_the_same_schedule() -> None:
    """Nothing moves when nobody left or joined, whatever the order of the live groups."""
    schedule = healthy(place(8, 3), 8)
    answer = reorder(schedule, reversed(range(8)))

    assert answer.schedule is schedule
    assert (answer.moved, answer.lost) == (0, 0)
    assert answer.reason == "no group left or joined: nothing to do"


def test_a_wipe_out_names_its_shards() -> None:
    """All hosts of one shard gone: the exception has the shard and says it in a sentence."""
    placement = place(20, 3)
    dead = set(placement.hosts(6))
    with pytest.raises(WipeOut, match="wipe-out: shard 6 without a live host") as error:
        reorder(healthy(placement, 4), set(range(20)) - dead)

    assert error.value.shards == (6,)


def test_nobody_left_is_a_wipe_out_of_all_shards() -> None:
    """Without groups every shard is without a host."""
    with pytest.raises(WipeOut, match="shards 0, 1, 2, 3 without") as error:
        reorder(healthy(place(4, 2), 4), [])

    assert error.value.shards == (0, 1, 2, 3)


@pytest.mark.parametrize("wrong", [-1, 8])
def test_a_group_that_does_not_exist_is_refused(wrong: int) -> None:
    """The error names it and the range."""
    with pytest.raises(ValueError, match=f"live has group {wrong}; allowed are 0 to 7"):
        reorder(healthy(place(8, 3), 8), [0, 1, wrong])


def test_the_argument_is_left_as_it_was() -> None:
    """A pure function: the old schedule has the same bytes afterwards, and the same call the same answer."""
    schedule = reorder(healthy(place(30, 4), 8), range(3, 30)).schedule
    before = schedule.to_bytes()
    first, second = reorder(schedule, range(25)), reorder(schedule, range(25))

    assert schedule.to_bytes() == before
    assert first == second


def test_loads_handed_over_are_the_loads_of_the_counts() -> None:
    """The loads that the solver knew equal those derived from the counts alone."""
    schedule = reorder(healthy(place(60, 5), 8), range(20, 60)).schedule
    derived = Schedule(schedule.placement, 8, schedule.live, schedule.counts, schedule.cap)

    assert schedule.loads == derived.loads


@pytest.mark.parametrize("seed", range(1, 5))
def test_joins_move_little(seed: int) -> None:
    """One group back at a time: in sum within 5 % of the fewest moves at the same cap."""
    n, r, m = 40, 5, 16
    placement = place(n, r)
    order = random.Random(seed).sample(range(n), n)
    dead = order[:10]
    schedule = reorder(healthy(placement, m), set(order[10:])).schedule
    ours = fewest = 0
    while dead:
        live = set(range(n)) - set(dead[:-1])
        dead.pop()
        answer = reorder(schedule, live)
        ours += answer.moved
        fewest += oracles.fewest_gains(placement, live, schedule.counts, m, answer.schedule.cap)
        schedule = answer.schedule

    assert fewest <= ours <= 1.05 * fewest


@pytest.mark.parametrize(("r", "zones"), [(3, 3), (5, 3), (6, 4), (9, 3), (5, 5)])
def test_a_lost_zone_is_no_wipe_out_and_keeps_the_bound(r: int, zones: int) -> None:
    """Any one of Z equal zones may go at once when r >= Z: depth within 3 % of the bound of the survivors."""
    n, m = 60, 32
    placement = place(n, r, topology=[(f"zone-{g % zones}", f"rack-{g // 20}") for g in range(n)])
    for zone in range(zones):
        answer = reorder(healthy(placement, m), [g for g in range(n) if g % zones != zone])

        assert answer.depth <= 1.03 * answer.schedule.bound
