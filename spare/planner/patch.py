"""Who computes what is missing of the step in flight: the patch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spare.planner.assignment import Assignment, Row, least_cap
from spare.planner.microbatches import Range, bits_by_shard, runs
from spare.planner.placement import Placement
from spare.planner.schedule import members
from spare.planner.wipe_out import WipeOut, uncovered


def patch(placement: Placement, micro_batches: int, live: Sequence[int], missing: int) -> dict[int, tuple[Range, ...]]:
    """Give each missing micro-batch to a live host, so that the most loaded host gets as little as possible.

    Nearly always it is best already to share each shard among its hosts, the least loaded first, which with nothing
    else missing is an even share; only if a group then has more than the lower bound is the excess settled by the
    exact solver. All survivors compute this from the same facts and
    get the same answer.

    Args:
        placement: who hosts what.
        micro_batches: m, micro-batches per shard; 1 for whole shards.
        live: the groups that are live, in any order.
        missing: bit mask of the missing micro-batches, bit shard * m + index.

    Returns:
        For every group that computes something: its ranges, ascending. Disjoint; their union is ``missing``.

    Raises:
        WipeOut: a shard with a missing micro-batch has no live host.
        ValueError: a group outside [0, N), m below 1, or a bit outside the N * m of a step.

    Source: paper, "patch compute"; docs/planner.md has the figures.
    """
    n, m = placement.groups, micro_batches
    living = frozenset(members(live, n))
    wanted = bits_by_shard(missing, m)
    if missing.bit_length() > n * m:
        raise ValueError(f"missing has bit {missing.bit_length() - 1}; allowed are 0 to {n * m - 1}")
    if not wanted:
        return {}
    wiped = uncovered(placement, living, (shard for shard, _ in wanted))
    if wiped:
        raise WipeOut(wiped)
    need = {shard: bits.bit_count() for shard, bits in wanted}
    bound = -(-sum(need.values()) // len(living))
    rows, load, bound = _level_shares(placement, living, need, bound)
    if max(load.values()) > bound:
        rows = _exact_shares(placement, living, need, rows, load, bound)
    return _by_group(placement, m, wanted, rows)


def _level_shares(
    placement: Placement, live: Collection[int], need: Mapping[int, int], bound: int
) -> tuple[dict[int, Row], dict[int, int], int]:
    """Each shard to its live hosts, the least loaded first, which for equal loads are even shares; loads; the bound.

    The bound that comes in is the even share of all groups; it is raised to that of the hosts of any one shard.
    """
    rows: dict[int, Row] = {}
    load: dict[int, int] = {}
    for shard, units in need.items():
        hosts = placement.host_table[shard]
        by_load = sorted((load.get(host, 0), host, layer) for layer, host in enumerate(hosts) if host in live)
        bound = max(bound, -(-units // len(by_load)))
        # Like water: the first `wet` hosts end at one level, the others are above it already.
        volume, wet = units, 0
        while wet < len(by_load) and volume > wet * by_load[wet][0]:
            volume += by_load[wet][0]
            wet += 1
        level, more = divmod(volume, wet)
        row = [0] * placement.redundancy
        for place, (before, host, layer) in enumerate(by_load[:wet]):
            load[host] = level + (place < more)
            row[layer] = load[host] - before
        rows[shard] = tuple(row)
    return rows, load, bound


def _exact_shares(
    placement: Placement,
    live: Collection[int],
    need: Mapping[int, int],
    rows: Mapping[int, Row],
    load: Mapping[int, int],
    bound: int,
) -> dict[int, Row]:
    """The shares of least possible largest load, by moving what is above the bound."""
    n = placement.groups
    empty = (0,) * placement.redundancy
    all_rows = [rows.get(shard, empty) for shard in range(n)]
    all_loads = [load.get(group, 0) for group in range(n)]
    demand = [need.get(shard, 0) for shard in range(n)]
    work, _ = least_cap(Assignment(placement, all_rows, all_loads, [], {}), sorted(live), demand, bound)
    return {shard: work.rows[shard] for shard in need}


def _by_group(
    placement: Placement, m: int, wanted: Sequence[tuple[int, int]], rows: Mapping[int, Row]
) -> dict[int, tuple[Range, ...]]:
    """Name the micro-batches: the missing ones of a shard, lowest first, to its hosts in layer order."""
    found: dict[int, list[Range]] = {}
    for shard, bits in wanted:
        pieces = iter(runs(bits))
        first, left = 0, 0
        for host, units in zip(placement.host_table[shard], rows[shard], strict=True):
            while units:
                if not left:
                    first, left = next(pieces)
                part = min(units, left)
                found.setdefault(host, []).append(Range(shard, first, part))
                first, left, units = first + part, left - part, units - part
    return {group: tuple(found[group]) for group in sorted(found)}
