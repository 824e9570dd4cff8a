"""After a change of the live groups: the next schedule, as deep as provably necessary, moving little."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spare.planner.assignment import Assignment, Row, least_cap
from spare.planner.schedule import Schedule, members
from spare.planner.wipe_out import WipeOut, named, uncovered


@dataclass(frozen=True)
class Reorder:
    """The answer to a change of the live groups.

    Attributes:
        schedule: the new schedule.
        depth: its depth (see ``Schedule.depth``).
        moved: micro-batches that go from one live group to another.
        lost: micro-batches that were on groups that left, and are given to others.
        left: the groups that left, ascending.
        joined: the groups that came (back), ascending.
        reason: one sentence for people.
    """

    schedule: Schedule
    depth: float
    moved: int
    lost: int
    left: tuple[int, ...]
    joined: tuple[int, ...]
    reason: str


def reorder(schedule: Schedule, live: Iterable[int], speeds: None = None) -> Reorder:
    """The schedule for another set of live groups: least depth, then few moves.

    Exact in depth: the cap on the most loaded group is raised only after a minimum cut has proved it too low. Moves
    stay within a few per cent of the fewest possible at that depth. A pure function of its arguments.

    Args:
        schedule: the schedule so far, made by ``healthy`` or ``reorder``.
        live: the groups that are live now, in any order; groups may have left, joined, or both.
        speeds: reserved.

    Raises:
        WipeOut: a shard has no live host.
        ValueError: a group outside [0, N).

    Source: the paper's Phases 0 to 2 for micro-batches instead of whole shards; docs/planner.md has the figures.
    """
    placement, m = schedule.placement, schedule.micro_batches
    now = members(live, placement.groups)
    live_set, before = set(now), set(schedule.live)
    left = tuple(g for g in schedule.live if g not in live_set)
    joined = tuple(g for g in now if g not in before)
    if not left and not joined:
        return Reorder(schedule, schedule.depth, 0, 0, (), (), "no group left or joined: nothing to do")
    wiped = uncovered(placement, live_set, {shard for g in left for shard in placement.stacks[g]})
    if wiped:
        raise WipeOut(wiped)
    base = _without(schedule, left)
    lost = sum(base.todo.values())
    cap = -(-placement.groups * m // len(now))
    if not joined:
        cap = max(cap, schedule.cap)  # with fewer hosts the least cap cannot fall
    work, cap = least_cap(base, now, [m] * placement.groups, cap)
    rows = tuple(row if isinstance(row, tuple) else tuple(row) for row in work.rows)
    after = Schedule(placement, m, now, rows, cap)
    after.__dict__["loads"] = tuple(work.load)  # known here; deriving it again would cost O(N * r)
    gained = _gained(schedule.counts, rows)
    moved = gained - lost
    reason = _sentence(schedule, after, left, joined, lost, moved, _takers(schedule.loads, after.loads))
    return Reorder(after, after.depth, moved, lost, left, joined, reason)


def _without(schedule: Schedule, left: Sequence[int]) -> Assignment:
    """The schedule with the counts of the groups that left taken out; rows are tuples."""
    placement = schedule.placement
    rows: list[Row] = list(schedule.counts)
    load, todo = list(schedule.loads), dict[int, int]()
    for group in left:
        load[group] = 0
        for layer, shard in enumerate(placement.stacks[group]):
            units = rows[shard][layer]
            if units:
                row = rows[shard]
                rows[shard] = (*row[:layer], 0, *row[layer + 1 :])
                todo[shard] = todo.get(shard, 0) + units
    return Assignment(placement, rows, load, [], todo)


def _gained(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> int:
    """Micro-batches that are on another host than before."""
    gained = 0
    for old, new in zip(before, after, strict=True):
        if old is not new:
            gained += sum(n - o for o, n in zip(old, new, strict=True) if n > o)
    return gained


def _takers(before: Sequence[int], after: Sequence[int]) -> int:
    """How many groups compute more than before."""
    return sum(new > old for old, new in zip(before, after, strict=True))


def _sentence(
    before: Schedule,
    after: Schedule,
    left: Sequence[int],
    joined: Sequence[int],
    lost: int,
    moved: int,
    takers: int,
) -> str:
    """The reason, as in "groups 3, 7 lost: 64 micro-batches given to 14 hosts, 12 moved, depth 1.000 -> 1.250 ..."."""
    events = [f"{named('group', left)} lost"] if left else []
    events += [f"{named('group', joined)} joined"] if joined else []
    given = f"{lost} micro-batches given to {takers} hosts, " if left else ""
    depths = f"depth {before.depth:.3f} -> {after.depth:.3f} (bound {after.bound:.3f})"
    return f"{', '.join(events)}: {given}{moved} moved, {depths}"
