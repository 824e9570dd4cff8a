"""After a change of the live groups: the next schedule, as deep as provably necessary, moving little."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spare.planner.assignment import Assignment, Row, least_cap
from spare.planner.schedule import Schedule, members
from spare.planner.theory import speed_cap
from spare.planner.wipe_out import WipeOut, uncovered
from spare.planner.words import counted, named


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


def reorder(schedule: Schedule, live: Iterable[int], speeds: Mapping[int, int] | None = None) -> Reorder:
    """The schedule for another set of live groups, or for other speeds of theirs: least cap, then few moves.

    Exact: the cap on the most loaded group is raised only after a minimum cut has proved it too low. Moves stay within
    a few per cent of the fewest possible at that cap. A pure function of its arguments. Once all groups are live and
    healthy again, shares are even again, since the cap is then m.

    Args:
        schedule: the schedule so far, made by ``healthy`` or ``reorder``.
        live: the groups that are live now, in any order; groups may have left, joined, or both.
        speeds: of the groups that are slower than a healthy one, in per cent of its speed, 1 to 100; those that are not
            named are healthy. None: groups keep the speed that the schedule has for them, and those that join are
            healthy.

    Raises:
        WipeOut: a shard has no live host.
        ValueError: a group outside [0, N), or a speed outside [1, 100].

    Source: the paper's Phases 0 to 2 for micro-batches instead of whole shards; docs/planner.md has the figures.
    """
    placement, m = schedule.placement, schedule.micro_batches
    now = members(live, placement.groups)
    live_set, before = set(now), set(schedule.live)
    left = tuple(g for g in schedule.live if g not in live_set)
    joined = tuple(g for g in now if g not in before)
    pace = _pace(schedule, now, joined, speeds)
    if not left and not joined and pace == schedule.speeds:
        return Reorder(schedule, schedule.depth, 0, 0, (), (), "no group left or joined: nothing to do")
    wiped = uncovered(placement, live_set, {shard for g in left for shard in placement.stacks[g]})
    if wiped:
        raise WipeOut(wiped)
    base = _without(schedule, left)
    lost = sum(base.todo.values())
    cap = speed_cap(placement.groups * m, [pace[group] if pace else 100 for group in now])
    if not joined and not any((pace[g] if pace else 100) > schedule.speed(g) for g in now):
        cap = max(cap, schedule.cap)  # with fewer hosts, none of them faster, the least cap cannot fall
    work, cap = least_cap(base, now, [m] * placement.groups, cap, pace)
    rows = tuple(row if isinstance(row, tuple) else tuple(row) for row in work.rows)
    after = Schedule(placement, m, now, rows, cap, pace)
    after.__dict__["loads"] = tuple(work.load)  # known here; deriving it again would cost O(N * r)
    gained = _gained(schedule.counts, rows)
    moved = gained - lost
    reason = _sentence(schedule, after, left, joined, lost, moved, _takers(schedule.loads, after.loads))
    return Reorder(after, after.depth, moved, lost, left, joined, reason)


def _pace(
    schedule: Schedule, live: Sequence[int], joined: Sequence[int], speeds: Mapping[int, int] | None
) -> tuple[int, ...]:
    """Shape (N,), per cent; empty when all live groups are healthy."""
    n = schedule.placement.groups
    if speeds is None:
        speeds = {group: schedule.speed(group) for group in live if group not in joined} if schedule.speeds else {}
    wrong = {group: speed for group, speed in speeds.items() if not 0 <= group < n or not 1 <= speed <= 100}
    if wrong:
        raise ValueError(f"speeds has {wrong}; allowed are groups 0 to {n - 1} at 1 to 100 per cent")
    slow = {group: speeds[group] for group in live if speeds.get(group, 100) != 100}
    return tuple(slow.get(group, 100) for group in range(n)) if slow else ()


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
    events += [
        f"group {group} computes at {after.speed(group)} % of the speed"
        for group in after.live
        if after.speed(group) != before.speed(group) and (group not in joined or after.speed(group) != 100)
    ]
    unit = "shard" if after.micro_batches == 1 else "micro-batch"
    given = f"{counted(lost, unit)} given to {counted(takers, 'host')}, " if left else ""
    depths = f"depth {before.depth:.3f} -> {after.depth:.3f} (bound {after.bound:.3f})"
    return f"{', '.join(events)}: {given}{moved} moved, {depths}"
