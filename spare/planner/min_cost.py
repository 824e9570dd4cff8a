"""Give whole shards to hosts at least cost: the solver of the paper's Phase 2 (MCMF).

Source: successive shortest paths, one shard at a time (R. G. Busacker and P. J. Gowen, 1961); the shortest path is
found with a queue (Bellman-Ford-Moore), because edges taken back have negative cost. Integers only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from spare.planner.placement import Placement


def cover_at_least_cost(
    placement: Placement, limit: Sequence[int], cost: Sequence[Sequence[int]], supplier: list[int]
) -> bool:
    """Give every shard without a supplier one, changing others where that is cheaper.

    Args:
        placement: who hosts what.
        limit: shape (N,), the most shards that each group may supply.
        cost: shape (N, r), cost[i][j] of shard i on ``hosts(i)[j]``, 0 or more.
        supplier: shape (N,), the layer of each shard's supplier or -1; changed in place. What is given must be of least
            cost among all ways to supply the same shards, as it is when it costs 0.

    Returns:
        Whether every shard has a supplier; if so the total cost is the least possible.

    Cost: O(missing shards * N * r) in practice.
    """
    hosts = placement.host_table
    load = [0] * placement.groups
    for shard, layer in enumerate(supplier):
        if layer >= 0:
            load[hosts[shard][layer]] += 1
    for start in range(placement.groups):
        if supplier[start] < 0 and not _augment(placement, limit, cost, supplier, load, start):
            return False
    return True


def _augment(
    placement: Placement,
    limit: Sequence[int],
    cost: Sequence[Sequence[int]],
    supplier: list[int],
    load: list[int],
    start: int,
) -> bool:
    """Supply one more shard along a cheapest path of changes; False if there is no path."""
    hosts = placement.host_table
    far = placement.groups * (1 + max(map(max, cost))) + 1
    host_at, shard_at = [far] * placement.groups, [far] * placement.groups
    from_shard = [-1] * placement.groups  # the shard (and layer) by which a host was reached last
    from_layer = [-1] * placement.groups
    shard_at[start] = 0
    queue = deque([start])
    waiting = {start}
    while queue:
        shard = queue.popleft()
        waiting.discard(shard)
        for layer, host in enumerate(hosts[shard]):
            at = shard_at[shard] + cost[shard][layer]
            if not limit[host] or layer == supplier[shard] or at >= host_at[host]:
                continue
            host_at[host], from_shard[host], from_layer[host] = at, shard, layer
            if load[host] < limit[host]:
                continue  # a path may end here, and then none gains by going on through it
            for deeper_layer, deeper in enumerate(placement.stacks[host]):
                if supplier[deeper] == deeper_layer and at - cost[deeper][deeper_layer] < shard_at[deeper]:
                    shard_at[deeper] = at - cost[deeper][deeper_layer]
                    if deeper not in waiting:
                        waiting.add(deeper)
                        queue.append(deeper)
    ends = [h for h in range(placement.groups) if host_at[h] < far and load[h] < limit[h]]
    if not ends:
        return False
    host = min(ends, key=lambda h: (host_at[h], h))
    load[host] += 1
    while True:
        shard, layer = from_shard[host], from_layer[host]
        previous, supplier[shard] = supplier[shard], layer
        if shard == start:
            return True
        host = hosts[shard][previous]
