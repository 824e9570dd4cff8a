"""The patch: what is missing of the step in flight, given out with the least added depth."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spare.planner import Placement, Range, WipeOut, check_patch, healthy, mask_of, patch, place, reorder
from tests.planner import oracles


def _demand(placement: Placement, m: int, missing: int) -> list[int]:
    return [(missing >> i * m & (1 << m) - 1).bit_count() for i in range(placement.groups)]


def _most(answer: dict[int, tuple[Range, ...]]) -> int:
    return max(sum(r.count for r in ranges) for ranges in answer.values())


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 5), st.integers(0, 99), st.data())
@settings(max_examples=150)
def test_the_largest_share_is_the_least_by_enumeration(n: int, r: int, m: int, seed: int, data: st.DataObject) -> None:
    """Any missing set and any survivors: valid, and no group can be given less than the most loaded one has."""
    placement = data.draw(st.sampled_from(oracles.placements(n, min(r, n), seed)))
    live = sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1)))
    missing = data.draw(st.integers(0, (1 << n * m) - 1))
    demand = _demand(placement, m, missing)
    hopeless = [i for i in oracles.wiped(placement, live) if demand[i]]
    if hopeless:
        with pytest.raises(WipeOut) as error:
            patch(placement, m, live, missing)
        assert list(error.value.shards) == hopeless
        return
    answer = patch(placement, m, live, missing)

    assert check_patch(placement, m, live, missing, answer) == ()
    if missing:
        assert _most(answer) == oracles.least_cap_by_subsets(placement, live, demand)


@pytest.mark.parametrize("seed", range(10))
def test_exact_against_maximum_flow_along_trajectories(seed: int) -> None:
    """After each failure the lost group's own share, and a mid-step mix of everybody's: scipy needs the same cap."""
    rng = random.Random(seed)
    n = rng.randrange(8, 30)
    r, m = rng.randrange(2, 6), rng.choice([1, 4, 16])
    placement = oracles.placements(n, r, seed)[seed % 3]
    schedule = healthy(placement, m)
    before = set(range(n))
    for live in oracles.kills(n, seed):
        if oracles.wiped(placement, live):
            break
        (victim,) = before - set(live)
        half_done = schedule.mask(victim)
        for group in live:
            parts = [part for part in schedule.ranges(group) if rng.random() < 0.6]
            half_done |= mask_of(parts, m)
        for missing in (schedule.mask(victim), half_done):
            answer = patch(placement, m, live, missing)
            demand = _demand(placement, m, missing)

            assert check_patch(placement, m, live, missing, answer) == ()
            assert not missing or _most(answer) == oracles.least_cap(placement, live, demand)
        schedule, before = reorder(schedule, live).schedule, set(live)


def test_one_loss_at_full_health_costs_a_32nd_of_a_shard() -> None:
    """N = 200, r = 9, m = 32: nobody gets more than one micro-batch more."""
    placement = place(200, 9)
    missing = healthy(placement, 32).mask(17)
    answer = patch(placement, 32, [g for g in range(200) if g != 17], missing)

    assert missing.bit_count() == 32
    assert _most(answer) == 1


def test_the_lowest_indices_go_to_the_first_hosts() -> None:
    """The rule that names micro-batches: ascending, hosts in layer order; the odd one to the lowest host."""
    placement = place(4, 2, "Consecutive")

    assert patch(placement, 8, [1, 2, 3], mask_of([(2, 1, 2), (2, 5, 3)], 8)) == {
        1: (Range(2, 5, 3),),
        2: (Range(2, 1, 2),),
    }


def test_nothing_missing_is_an_empty_patch() -> None:
    """Nobody computes anything, even if there is nobody."""
    assert patch(place(4, 2), 4, [0, 1, 2, 3], 0) == {}
    assert patch(place(4, 2), 4, [], 0) == {}


def test_the_order_of_the_live_groups_does_not_matter() -> None:
    """All survivors compute the same patch from the same facts."""
    placement = place(20, 4)
    missing = healthy(placement, 8).mask(0)
    live = list(range(1, 20))

    assert patch(placement, 8, live, missing) == patch(placement, 8, live[::-1], missing)
    assert list(patch(placement, 8, live[::-1], missing)) == sorted(patch(placement, 8, live, missing))


def test_bits_beyond_the_step_are_refused() -> None:
    """A mask of another job is not patched in silence."""
    with pytest.raises(ValueError, match="missing has bit 16; allowed are 0 to 15"):
        patch(place(4, 2), 4, [0, 1, 2, 3], 1 << 16)


def test_a_patch_that_even_shares_cannot_make_flat() -> None:
    """A shard with one host left fills it; the other shards of that host must then go elsewhere."""
    placement = place(6, 2, "Consecutive")  # shard i lies on i and i - 1
    missing = mask_of([(2, 0, 4), (3, 0, 4), (4, 0, 4)], 4)
    answer = patch(placement, 4, [0, 2, 3, 4, 5], missing)  # group 1 is gone, so shard 2 lies on group 2 alone

    assert _most(answer) == 4
    assert answer[2] == (Range(2, 0, 4),)
