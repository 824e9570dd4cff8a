"""The paper's whole shards: three phases."""

from __future__ import annotations

import random

import pytest

from spare.planner import WholeSchedule, WipeOut, lower_bound, place, whole_healthy, whole_reorder
from spare.planner.min_cost import cover_at_least_cost
from tests.planner import oracles


def _broken(schedule: WholeSchedule) -> list[str]:
    """The rules of a whole schedule that are broken, from the definitions."""
    place_, broken = schedule.placement, []
    for group in range(place_.groups):
        if sorted(schedule.orders[group]) != sorted(place_.stack(group)):
            broken.append(f"order of {group}")
    for shard, group in enumerate(schedule.suppliers):
        if group not in schedule.live or shard not in schedule.orders[group][: schedule.depth]:
            broken.append(f"supplier of {shard}")
    return broken


@pytest.mark.parametrize("seed", range(10))
def test_depth_phase_and_moves_match_the_oracles_to_the_wipe_out(seed: int) -> None:
    """S is the least that flow allows, phase 0 iff nothing must move, and Phase 2's moves are the fewest exactly."""
    rng = random.Random(seed)
    n = rng.randrange(6, 40)
    r = rng.randrange(2, 6)
    for placement in oracles.placements(n, r, seed):
        schedule = whole_healthy(placement)
        for live in oracles.kills(n, seed):
            if oracles.wiped(placement, live):
                with pytest.raises(WipeOut):
                    whole_reorder(schedule, live)
                break
            answer = whole_reorder(schedule, live)
            covered = {s for g in live for s in schedule.orders[g][: schedule.depth]}
            costs = {
                (i, h): int(i not in schedule.orders[h][: answer.depth])
                for i in range(n)
                for h in oracles.hosts_of(placement, i)
            }

            assert _broken(answer.schedule) == []
            assert answer.phase == (0 if len(covered) == n else 2)
            assert answer.depth == (
                schedule.depth if answer.phase == 0 else oracles.least_cap(placement, live, [1] * n)
            )
            assert answer.depth >= lower_bound(n, n - len(live))
            assert answer.moved == (
                0 if answer.phase == 0 else oracles.fewest_whole_moves(placement, live, costs, answer.depth)
            )
            schedule = answer.schedule


def test_moves_are_the_shards_brought_forward() -> None:
    """The count equals the change of the first S places, and a stack keeps the rest of its order."""
    placement = place(30, 4)
    before = whole_healthy(placement)
    for live in oracles.kills(30, 5):
        answer = whole_reorder(before, live)
        new = sum(
            len(set(answer.schedule.orders[g][: answer.depth]) - set(before.orders[g][: answer.depth]))
            for g in range(30)
        )

        assert new == answer.moved
        before = answer.schedule
        if len(live) == 18:
            break


def test_one_loss_doubles_the_step() -> None:
    """The paper's price of whole shards: S jumps from 1 to 2 at the first failure."""
    answer = whole_reorder(whole_healthy(place(200, 9)), range(1, 200))

    assert answer.depth == 2
    assert answer.reason.startswith("group 0 lost: ")
    assert answer.reason.endswith("S 1 -> 2")


def test_depth_falls_again_when_all_are_back() -> None:
    """A rejoin may lower S, down to 1 for the full job."""
    first = whole_reorder(whole_healthy(place(12, 4)), range(3, 12)).schedule
    answer = whole_reorder(first, range(12))

    assert first.depth == 2
    assert answer.depth == 1
    assert _broken(answer.schedule) == []


def test_no_change_moves_nothing() -> None:
    """Phase 0 answers and says so."""
    answer = whole_reorder(whole_healthy(place(8, 3)), range(8))

    assert (answer.phase, answer.moved, answer.depth) == (0, 0, 1)
    assert answer.reason == "no group left or joined: the present order still covers all shards, S 1 -> 1"


def test_the_solver_says_when_there_is_no_cover() -> None:
    """Two shards and one live host with room for one."""
    placement = place(2, 2)

    assert not cover_at_least_cost(placement, [1, 0], [[0, 0], [0, 0]], [-1, -1])


def test_the_solver_prefers_a_chain_of_cheap_changes() -> None:
    """Giving a shard the place of another, which moves at no cost, beats paying for a free place."""
    placement = place(3, 2, "Consecutive")  # hosts of 0: groups 0, 2; of 1: 1, 0; of 2: 2, 1
    supplier = [-1, 1, -1]  # shard 1 lies on group 0

    assert cover_at_least_cost(placement, [1, 1, 1], [[0, 5], [0, 0], [0, 9]], supplier)
    assert supplier == [0, 0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_the_solver_is_exact_for_any_costs(seed: int) -> None:
    """Costs of 0 to 99 and nothing supplied at first: the total is ortools' for every live set that can cover."""
    rng = random.Random(seed)
    n, r = rng.randrange(4, 40), rng.randrange(2, 6)
    for placement in oracles.placements(n, min(r, n), seed):
        # Everybody with one shard each, where changes go in long chains, or some of them with more.
        depth = rng.choice([1, 1, 2, 3])
        live = sorted(rng.sample(range(n), n if depth == 1 else rng.randrange((n + 1) // 2, n + 1)))
        cost = [[rng.randrange(100) for _ in placement.offsets] for _ in range(n)]
        limit = [depth if g in live else 0 for g in range(n)]
        supplier = [-1] * n
        covered = cover_at_least_cost(placement, limit, cost, supplier)

        assert covered == (not oracles.wiped(placement, live) and oracles.fits(placement, live, [1] * n, depth))
        if covered:
            by_host = {(i, h): cost[i][j] for i in range(n) for j, h in enumerate(oracles.hosts_of(placement, i))}
            total = sum(cost[i][layer] for i, layer in enumerate(supplier))
            assert total == oracles.fewest_whole_moves(placement, live, by_host, depth)
            assert all(sum(placement.hosts(i)[supplier[i]] == g for i in range(n)) <= depth for g in live)
