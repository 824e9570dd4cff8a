"""The paper's own scheduler: whole shards, ordered stacks, three phases.

Every survivor computes the first S shards of its stack, in its order; one survivor supplies each shard to the sum. Used
to reproduce the paper and to compare with it; the schedules of micro-batches (``reorder``) are less deep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spare.planner.assignment import Assignment, Row, complete
from spare.planner.min_cost import cover_at_least_cost
from spare.planner.placement import Placement
from spare.planner.schedule import members
from spare.planner.wipe_out import WipeOut, uncovered
from spare.planner.words import counted, named


@dataclass(frozen=True)
class WholeSchedule:
    """Who computes and who supplies which shard, in the paper's way.

    Attributes:
        placement: who hosts what.
        live: the live groups, ascending.
        orders: shape (N, r); orders[g] is group g's stack in the order in which it computes.
        depth: S; each live group computes the first S shards of its order.
        suppliers: shape (N,), the group that gives each shard to the sum; it is live, and computes the shard.
    """

    placement: Placement
    live: tuple[int, ...]
    orders: tuple[tuple[int, ...], ...]
    depth: int
    suppliers: tuple[int, ...]


@dataclass(frozen=True)
class WholeReorder:
    """The answer to a change of the live groups.

    Attributes:
        schedule: the new schedule.
        depth: its S.
        moved: shards brought into the first S places of a stack; 0 after phase 0.
        phase: 0 if the present order still covers all shards, 2 if stacks were reordered.
        reason: one sentence for people.
    """

    schedule: WholeSchedule
    depth: int
    moved: int
    phase: int
    reason: str


def whole_healthy(placement: Placement) -> WholeSchedule:
    """Everybody computes the first shard of its stack: S = 1."""
    everybody = tuple(range(placement.groups))
    suppliers = tuple(hosts[0] for hosts in placement.host_table)
    return WholeSchedule(placement, everybody, placement.stacks, 1, suppliers)


def whole_reorder(schedule: WholeSchedule, live: Iterable[int]) -> WholeReorder:
    """The paper's decision: keep the order if it still covers all, else the least S, then the fewest moves.

    Phase 0 (HK-Fixed) asks whether the first S places of the survivors' stacks, as they are, hold every shard. Phase 1
    (HK-Free) finds the least S* at which some order does, by Hopcroft-Karp. Phase 2 (MCMF) picks, among the orders
    feasible at S*, one with the fewest shards brought into the first S* places, by min-cost max-flow.

    Args:
        schedule: the schedule so far.
        live: the groups that are live now. When some came back, phase 0 is skipped unless S is at its bound, so that
            S can fall again (the paper has no rejoins).

    Raises:
        WipeOut: no order covers all shards even at S = r: a shard has no live host.
        ValueError: a group outside [0, N).

    Source: paper, section "Idea", Phases 0 to 2.
    """
    placement = schedule.placement
    now = members(live, placement.groups)
    live_set = set(now)
    wiped = uncovered(placement, live_set)
    if wiped:
        raise WipeOut(wiped)
    bound = -(-placement.groups // len(now))
    joined = not live_set <= set(schedule.live)
    if not joined or schedule.depth == bound:
        suppliers = _covered(schedule, now, schedule.depth)
        if None not in suppliers:
            kept = tuple(s for s in suppliers if s is not None)
            after = WholeSchedule(placement, now, schedule.orders, schedule.depth, kept)
            return WholeReorder(after, after.depth, 0, 0, _sentence(schedule, after, 0, 0))
    after, moved = _fewest_moves(schedule, now, _least_depth(schedule, now, bound))
    return WholeReorder(after, after.depth, moved, 2, _sentence(schedule, after, moved, 2))


def _covered(schedule: WholeSchedule, live: Sequence[int], depth: int) -> list[int | None]:
    """For each shard the live group that has it in its first ``depth`` places, or None.

    The matching of HK-Fixed is this simple because every place of a stack holds one shard only. The present supplier
    stays if it can; else the one that computes the shard first, then the lowest number.
    """
    found: list[int | None] = [None] * schedule.placement.groups
    for place in range(depth):
        for group in live:
            shard = schedule.orders[group][place]
            if found[shard] is None or schedule.suppliers[shard] == group:
                found[shard] = group
    return found


def _least_depth(schedule: WholeSchedule, live: Sequence[int], bound: int) -> int:
    """Phase 1: the least S, from the bound up, at which the live groups can cover all shards."""
    placement = schedule.placement
    depth = bound
    while True:
        limit = [0] * placement.groups
        for group in live:
            limit[group] = depth
        rows: list[Row] = [(0,) * placement.redundancy] * placement.groups
        todo = dict.fromkeys(range(placement.groups), 1)
        cut = complete(Assignment(placement, rows, [0] * placement.groups, limit, todo))
        if cut is None:
            return depth
        depth = max(depth + 1, -(-len(cut.shards) // len(cut.hosts)))


def _fewest_moves(schedule: WholeSchedule, live: Sequence[int], depth: int) -> tuple[WholeSchedule, int]:
    """Phase 2: suppliers at depth S with the fewest shards brought into the first S places, and their number."""
    placement, orders = schedule.placement, schedule.orders
    limit = [0] * placement.groups
    for group in live:
        limit[group] = depth
    first = [set(order[:depth]) for order in orders]
    cost = [[int(shard not in first[group]) for group in hosts] for shard, hosts in enumerate(placement.host_table)]
    supplier = [
        -1 if group is None else placement.hosts(shard).index(group)
        for shard, group in enumerate(_covered(schedule, live, depth))
    ]
    if not cover_at_least_cost(placement, limit, cost, supplier):
        raise AssertionError(f"phase 2 found no order at the depth {depth} that phase 1 proved feasible")
    moved = sum(cost[shard][layer] for shard, layer in enumerate(supplier))
    suppliers = tuple(placement.hosts(shard)[layer] for shard, layer in enumerate(supplier))
    new_orders = list(orders)
    wanted: dict[int, list[int]] = {}
    for shard, group in enumerate(suppliers):
        wanted.setdefault(group, []).append(shard)
    for group, shards in wanted.items():
        new_orders[group] = _brought_forward(orders[group], shards, depth)
    return WholeSchedule(placement, tuple(live), tuple(new_orders), depth, suppliers), moved


def _brought_forward(order: tuple[int, ...], wanted: Sequence[int], depth: int) -> tuple[int, ...]:
    """An order with the wanted shards in the first places: each that is not swaps with the last that may leave."""
    new, keep = list(order), set(wanted)
    free = [place for place in range(depth) if order[place] not in keep]
    for place in range(depth, len(order)):
        if order[place] in keep:
            other = free.pop()
            new[place], new[other] = new[other], new[place]
    return tuple(new)


def _sentence(before: WholeSchedule, after: WholeSchedule, moved: int, phase: int) -> str:
    left = sorted(set(before.live) - set(after.live))
    joined = sorted(set(after.live) - set(before.live))
    events = [f"{named('group', left)} lost"] if left else []
    events += [f"{named('group', joined)} joined"] if joined else []
    what = "the present order still covers all shards" if phase == 0 else f"{counted(moved, 'shard')} moved"
    return f"{', '.join(events) or 'no group left or joined'}: {what}, S {before.depth} -> {after.depth}"
