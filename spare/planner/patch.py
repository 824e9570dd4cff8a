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

    Nearly always an even share of each shard for each of its hosts is already best; only if a group then has more
    than the lower bound is the excess settled by the exact solver. All survivors compute this from the same facts and
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
    now = members(live, n)
    wanted = bits_by_shard(missing, m)
    if missing.bit_length() > n * m:
        raise ValueError(f"missing has bit {missing.bit_length() - 1}; allowed are 0 to {n * m - 1}")
    if not wanted:
        return {}
    live_set = set(now)
    wiped = uncovered(placement, live_set, (shard for shard, _ in wanted))
    if wiped:
        raise WipeOut(wiped)
    need = {shard: bits.bit_count() for shard, bits in wanted}
    work, bound = _even_shares(placement, live_set, need)
    if max(work.load) > bound:
        demand = [0] * n
        for shard, units in need.items():
            demand[shard] = units
        work, _ = least_cap(work, now, demand, bound)
    return _by_group(placement, m, wanted, work.rows)


def _even_shares(placement: Placement, live: Collection[int], need: Mapping[int, int]) -> tuple[Assignment, int]:
    """An even share of each shard for each live host, what does not divide to the least loaded; and the bound.

    The bound is the larger of the even share of all groups and the even share of the hosts of any one shard.
    """
    n, r = placement.groups, placement.redundancy
    rows: list[Row] = [(0,) * r] * n
    load = [0] * n
    bound = -(-sum(need.values()) // len(live))
    for shard, units in need.items():
        hosts = placement.host_table[shard]
        layers = [layer for layer, host in enumerate(hosts) if host in live]
        share, more = divmod(units, len(layers))
        bound = max(bound, share + (more > 0))
        layers.sort(key=lambda layer, hosts=hosts: (load[hosts[layer]], hosts[layer]))  # type: ignore[misc]
        row = [0] * r
        for place, layer in enumerate(layers):
            row[layer] = share + (place < more)
            load[hosts[layer]] += row[layer]
        rows[shard] = tuple(row)
    return Assignment(placement, rows, load, [], {}), bound


def _by_group(
    placement: Placement, m: int, wanted: Sequence[tuple[int, int]], rows: Sequence[Row]
) -> dict[int, tuple[Range, ...]]:
    """Name the micro-batches: the missing ones of a shard, lowest first, to its hosts in layer order."""
    found: dict[int, list[Range]] = {}
    for shard, bits in wanted:
        pieces = runs(bits)
        first, left = pieces.pop(0)
        for host, units in zip(placement.host_table[shard], rows[shard], strict=True):
            while units:
                if not left:
                    first, left = pieces.pop(0)
                part = min(units, left)
                found.setdefault(host, []).append(Range(shard, first, part))
                first, left, units = first + part, left - part, units - part
    return {group: tuple(found[group]) for group in sorted(found)}
