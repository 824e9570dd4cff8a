"""What went wrong elsewhere, and must not here: the planner's part of the field cases."""

from __future__ import annotations

from itertools import combinations

import pytest

from spare.planner import check, healthy, place, reorder


@pytest.mark.parametrize("strategy", ["Golomb"])
def test_f01_the_global_batch_never_shrinks(strategy: str) -> None:
    """Eight groups, r = 3, m = 8: depth 1.25 with any one lost, 1.375 with any two, always 64 micro-batches."""
    start = healthy(place(8, 3, strategy), 8)
    for size, depth in ((1, 1.25), (2, 1.375)):
        for dead in combinations(range(8), size):
            answer = reorder(start, set(range(8)) - set(dead))

            assert answer.depth == depth
            assert sum(answer.schedule.mask(g).bit_count() for g in range(8)) == 64
            assert check(answer.schedule) == ()


def test_f01_holds_one_loss_after_the_other() -> None:
    """Two losses one by one end at 1.375 as well, whatever the order."""
    start = healthy(place(8, 3), 8)
    for first in range(8):
        once = reorder(start, set(range(8)) - {first})
        for second in set(range(8)) - {first}:
            twice = reorder(once.schedule, set(range(8)) - {first, second})

            assert (once.depth, twice.depth) == (1.25, 1.375)
            assert sum(twice.schedule.loads) == 64


def test_f02_ranks_follow_the_numbers() -> None:
    """Live 0, 2, 10, 11 of twelve, in any order of arrival and from any history: ranks 0, 1, 2, 3."""
    placement = place(12, 9)
    start = healthy(placement, 8)
    once = reorder(start, [11, 2, 10, 0])
    by_detour = reorder(reorder(start, [2, 11, 5, 10, 0, 1]).schedule, [10, 0, 11, 2])

    for answer in (once, by_detour):
        assert [answer.schedule.live.index(g) for g in (0, 2, 10, 11)] == [0, 1, 2, 3]


def test_f02_a_group_that_comes_back_keeps_its_stack() -> None:
    """The same placement after a rejoin, and only shards of its own stack on the group."""
    placement = place(12, 4)
    gone = reorder(healthy(placement, 8), set(range(12)) - {10}).schedule
    back = reorder(gone, range(12)).schedule

    assert back.placement is placement
    assert {part.shard for part in back.ranges(10)} <= set(placement.stack(10))
    assert back.load(10) == 8


def test_f05_three_groups_of_one_node_are_one_decision() -> None:
    """A node takes three groups: one call, one reason that names all three."""
    placement = place(12, 4, topology=[(f"node-{g // 3}",) for g in range(12)])
    answer = reorder(healthy(placement, 8), [g for g in range(12) if g // 3 != 2])

    assert answer.left == (6, 7, 8)
    assert answer.reason.startswith("groups 6, 7, 8 lost: 24 micro-batches given to ")
    assert check(answer.schedule) == ()
