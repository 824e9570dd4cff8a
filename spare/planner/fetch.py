"""Fetch: when a shard has no live host left, some survivor computes it all the same and fetches its data.

Who may fetch is a placement again, wider than the job's own: a few offsets more, so that every shard has a live host.
Everything that works on placements - schedules, patches, the judge - works on it as it is, and each group computes it
from the same rule. Once groups come back the job's own placement is enough again, and is gone back to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from spare.planner.placement import Placement
from spare.planner.reorder import Reorder, reorder
from spare.planner.schedule import Schedule, members
from spare.planner.wipe_out import uncovered
from spare.planner.words import named


def native(placement: Placement, redundancy: int) -> Placement:
    """The placement without what was added to fetch: its first `redundancy` offsets.

    Raises:
        ValueError: redundancy outside [1, the placement's own].
    """
    if not 1 <= redundancy <= placement.redundancy:
        raise ValueError(f"redundancy is {redundancy}; allowed is 1 to the placement's own, {placement.redundancy}")
    if redundancy == placement.redundancy:
        return placement
    return Placement(placement.groups, redundancy, placement.offsets[:redundancy], placement.strategy, placement.ring)


def widened(placement: Placement, live: Collection[int]) -> Placement:
    """The placement with as many offsets more as give every shard a live host; itself where each has one.

    Greedy: the next offset is the one that covers most of what is left uncovered, of equals the smallest.

    Args:
        placement: who hosts what.
        live: the live groups, at least one.

    Raises:
        ValueError: no group is live, or one outside [0, N).

    Cost: O(N) for each candidate, O(N^2) at worst for each offset added.
    """
    living = frozenset(members(live, placement.groups))
    if not living:
        raise ValueError("live has no group; allowed is one or more")
    n, ring, offsets = placement.groups, placement.ring, placement.offsets
    missing = set(uncovered(placement, living))
    if not missing:
        return placement
    positions = [position for position, group in enumerate(ring) if group in living]
    while missing:
        best, most = -1, 0
        for offset in sorted(set(range(n)) - set(offsets)):
            covers = sum((position + offset) % n in missing for position in positions)
            if covers > most:
                best, most = offset, covers
        offsets = (*offsets, best)
        missing -= {(position + best) % n for position in positions}
    return Placement(n, len(offsets), offsets, placement.strategy, ring)


def reorder_fetching(
    schedule: Schedule,
    live: Iterable[int],
    redundancy: int,
    able: Collection[int],
    speeds: Mapping[int, int] | None = None,
) -> Reorder:
    """As `reorder`, with fetching where a shard has no host among `able`, and without it where all have one again.

    Args:
        schedule: the schedule so far.
        live: the groups that are live now.
        redundancy: hosts per shard of the job's own placement.
        able: those of them that can compute at once, at least one: not who still loads the state.
        speeds: as `reorder`.

    Raises:
        WipeOut: never.
        ValueError: as `reorder`, or nobody is able.
    """
    now = members(live, schedule.placement.groups)
    wanted = widened(native(schedule.placement, redundancy), able)
    enough = not uncovered(schedule.placement, frozenset(able))
    if wanted == schedule.placement or (enough and now == schedule.live):
        return reorder(schedule, now, speeds)
    change = reorder(_moved(schedule, wanted, frozenset(now)), now, speeds)
    fetched = uncovered(native(wanted, redundancy), frozenset(able))
    more = f"; {named('shard', fetched)} fetched by groups that do not host {'it' if len(fetched) == 1 else 'them'}"
    return replace(change, reason=change.reason + more) if fetched else change


def _moved(schedule: Schedule, placement: Placement, live: Collection[int]) -> Schedule:
    """The schedule on another placement with the same first offsets. What lay on hosts that it has not goes to the
    first live one that it has; evening that out is for `reorder`, and so is the cap."""
    width = placement.redundancy
    rows = []
    for shard, row in enumerate(schedule.counts):
        kept = [*row[:width], *[0] * (width - len(row))]
        over = sum(row[width:])
        if over:
            hosts = placement.host_table[shard]
            kept[next(layer for layer, host in enumerate(hosts) if host in live)] += over
        rows.append(tuple(kept))
    return replace(schedule, placement=placement, counts=tuple(rows), cap=0)
