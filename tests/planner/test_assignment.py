"""The solver by itself: paths, cuts and depth of search."""

from __future__ import annotations

import pytest

from spare.planner import place
from spare.planner.assignment import Assignment, Cut, complete, least_cap


def _chain(n: int) -> Assignment:
    """Consecutive pairs: shard i lies on groups i and i-1, all full, and only the group farthest from shard 0 has room.

    Shard 0 has one unit to give, and every unit in the chain must move over by one.
    """
    placement = place(n, 2, "Consecutive")
    limit = [1] * n
    limit[n - 1] = 0  # shard 0 has the hosts 0 and n-1; without n-1 the chain has one direction
    rows: list[list[int] | tuple[int, ...]] = [(0, 1) for _ in range(n)]  # shard i on group i-1
    rows[0] = (0, 0)
    load = [1] * (n - 1) + [0]
    rows[n - 1], load[n - 2] = (0, 0), 0  # room at the far end
    return Assignment(placement, rows, load, limit, {0: 1})


def test_a_path_may_be_as_long_as_the_job() -> None:
    """5,000 hosts in a row: far beyond Python's recursion limit."""
    work = _chain(5000)

    assert complete(work) is None
    assert sum(work.load) == 4999
    assert work.rows[0] == [1, 0]


def test_without_room_the_cut_is_what_was_reached() -> None:
    """A shard with more units than its two hosts may take is the proof; the shard beside it is no part of it."""
    placement = place(6, 2, "Consecutive")
    work = Assignment(placement, [(0, 0)] * 6, [0] * 6, [1, 1, 0, 0, 0, 1], {0: 1, 1: 3})

    assert complete(work) == Cut(shards=(1,), hosts=(0, 1))


def test_a_given_up_cap_leaves_nothing_behind() -> None:
    """The base of the tries is not written, so the last try moves what it needs only."""
    base = _chain(40)
    before = ([tuple(row) for row in base.rows], list(base.load), dict(base.todo))
    demand = [0] * 40
    for shard, row in enumerate(base.rows):
        demand[shard] = sum(row) + base.todo.get(shard, 0)
    work, cap = least_cap(base, range(39), demand, 1)

    assert cap == 1
    assert ([tuple(row) for row in base.rows], list(base.load), dict(base.todo)) == before
    assert sum(map(sum, work.rows)) == sum(demand)


def test_a_cut_raises_the_cap_in_one_jump() -> None:
    """90 units that only two hosts can take need 45 each: found from 1 in two tries, not in 45."""
    placement = place(4, 2, "Consecutive")
    base = Assignment(placement, [(0, 0)] * 4, [0] * 4, [], {1: 90})
    work, cap = least_cap(base, range(4), [0, 90, 0, 0], 1)

    assert cap == 45
    assert work.load == [45, 45, 0, 0]


def test_units_above_a_limit_are_given_away() -> None:
    """A host that holds more than it may is relieved to another host of its shards."""
    placement = place(3, 2, "Consecutive")
    work = Assignment(placement, [(4, 0), (0, 0), (0, 0)], [4, 0, 0], [3, 3, 3], {})

    assert complete(work) is None
    assert work.load == [3, 0, 1]


def test_what_no_cap_can_do_is_an_error() -> None:
    """Loads that the counts do not show, or a shard without a live host: an error, and no search without end."""
    placement = place(3, 2, "Consecutive")  # shard 0 lies on groups 0 and 2

    with pytest.raises(ValueError, match="no cap can do"):
        least_cap(Assignment(placement, [(1, 0), (0, 0), (0, 0)], [5, 0, 0], [], {}), range(3), [1, 0, 0], 3)
    with pytest.raises(ValueError, match="no cap can do"):
        least_cap(Assignment(placement, [(0, 0)] * 3, [0, 0, 0], [], {0: 1}), [1], [1, 0, 0], 1)
