"""Give whole shards to hosts at least cost: the solver of the paper's Phase 2 (MCMF).

Source: successive shortest paths, one shard at a time (R. G. Busacker and P. J. Gowen, 1961), found by Dijkstra's
search on costs reduced by potentials (J. Edmonds and R. M. Karp, J. ACM 19, 1972). Integers only. Only hosts need
potentials: a supplied shard hangs on its supplier, at the same distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from spare.planner.placement import Placement


@dataclass(slots=True)
class _Cover:
    """The working state: who supplies what, and the proof that it costs the least.

    For every supplied shard and every other live host of it, cost - potential there is at least the same difference at
    its supplier. Potentials are 0 at hosts with room and never above 0.
    """

    placement: Placement
    limit: Sequence[int]
    cost: Sequence[Sequence[int]]
    supplier: list[int]
    load: list[int]
    potential: list[int]


def cover_at_least_cost(
    placement: Placement, limit: Sequence[int], cost: Sequence[Sequence[int]], supplier: list[int]
) -> bool:
    """Give every shard without a supplier one, changing others where that is cheaper.

    Args:
        placement: who hosts what.
        limit: shape (N,), the most shards that each group may supply; 0 for one that is not live.
        cost: shape (N, r), cost[i][j] of shard i on ``hosts(i)[j]``, 0 or more.
        supplier: shape (N,), the layer of each shard's supplier or -1; changed in place. What is given must cost 0.

    Returns:
        Whether every shard has a supplier; if so the total cost is the least possible.

    Cost: O(missing shards * N * r * log N) at worst; a search stops at the nearest host with room.
    """
    cover = _Cover(placement, limit, cost, supplier, [0] * placement.groups, [0] * placement.groups)
    for shard, layer in enumerate(supplier):
        if layer >= 0:
            cover.load[placement.host_table[shard][layer]] += 1
    return all(supplier[shard] >= 0 or _augment(cover, shard) for shard in range(placement.groups))


def _augment(cover: _Cover, start: int) -> bool:
    """Supply one more shard along a cheapest path of changes; False if there is no path."""
    via: dict[int, tuple[int, int]] = {}  # host: (shard, layer) by which it is reached most cheaply
    distance: dict[int, int] = {}
    heap: list[tuple[int, int]] = []
    _reach(cover, start, 0, distance, via, heap)
    settled: set[int] = set()
    while heap:
        at, host = heappop(heap)
        if host in settled:
            continue
        if cover.load[host] < cover.limit[host]:
            for passed in settled:
                cover.potential[passed] += distance[passed] - at
            _change(cover, start, host, via)
            return True
        settled.add(host)
        for layer, shard in enumerate(cover.placement.stacks[host]):
            if cover.supplier[shard] == layer:
                base = at + cover.potential[host] - cover.cost[shard][layer]
                _reach(cover, shard, base, distance, via, heap)
    return False


def _reach(
    cover: _Cover,
    shard: int,
    base: int,
    distance: dict[int, int],
    via: dict[int, tuple[int, int]],
    heap: list[tuple[int, int]],
) -> None:
    """Offer a path through a shard to its live hosts."""
    cost, potential = cover.cost[shard], cover.potential
    for layer, host in enumerate(cover.placement.host_table[shard]):
        at = base + cost[layer] - potential[host]
        if cover.limit[host] and (host not in distance or at < distance[host]):
            distance[host], via[host] = at, (shard, layer)
            heappush(heap, (at, host))


def _change(cover: _Cover, start: int, end: int, via: dict[int, tuple[int, int]]) -> None:
    """Hand the shards over along the path, from its end back to its start."""
    cover.load[end] += 1
    host = end
    while True:
        shard, layer = via[host]
        previous, cover.supplier[shard] = cover.supplier[shard], layer
        if shard == start:
            return
        host = cover.placement.host_table[shard][previous]
