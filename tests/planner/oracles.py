"""What the planner's answers are compared with: other people's solvers and plain enumeration.

Everything here is built from the definition of a placement, (position + offset) mod N, and not from its tables.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from ortools.graph.python import min_cost_flow  # type: ignore[import-untyped]
from scipy.sparse import csr_array  # type: ignore[import-untyped]
from scipy.sparse.csgraph import maximum_flow  # type: ignore[import-untyped]

from spare.planner import Placement, place


def placements(n: int, r: int, seed: int) -> tuple[Placement, Placement, Placement]:
    """The three kinds that exactness is tested on: both strategies, and random offsets on a shuffled ring."""
    rng = random.Random(seed)
    offsets = (0, *sorted(rng.sample(range(1, n), r - 1)))
    ring = list(range(n))
    rng.shuffle(ring)
    return place(n, r), place(n, r, "Consecutive"), Placement(n, r, offsets, "Golomb", tuple(ring))


def hosts_of(placement: Placement, shard: int) -> list[int]:
    """The hosts of a shard by the definition."""
    return [placement.ring[(shard - offset) % placement.groups] for offset in placement.offsets]


def fits(placement: Placement, live: Iterable[int], demand: Sequence[int], cap: int | Mapping[int, int]) -> bool:
    """Whether hosts limited to ``cap`` each (one for all, or by group) can take the demand of every shard: scipy's
    maximum flow."""
    n, living = placement.groups, set(live)
    limit = dict.fromkeys(living, cap) if isinstance(cap, int) else cap
    source, sink = 2 * n, 2 * n + 1
    ends = [(source, i, demand[i]) for i in range(n)] + [(n + g, sink, limit[g]) for g in sorted(living)]
    inner = [(i, n + h, demand[i]) for i in range(n) for h in hosts_of(placement, i) if h in living]
    rows, columns, capacity = zip(*ends, *inner, strict=True)
    graph = csr_array((np.array(capacity, dtype=np.int32), (rows, columns)), shape=(2 * n + 2, 2 * n + 2))
    return int(maximum_flow(graph, source, sink).flow_value) == sum(demand)


def least_cap(placement: Placement, live: Sequence[int], demand: Sequence[int]) -> int:
    """The least cap at which the demand fits, by trying all from the even share up."""
    cap = max(1, -(-sum(demand) // len(live)))
    while not fits(placement, live, demand, cap):
        cap += 1
    return cap


def least_cap_by_subsets(placement: Placement, live: Sequence[int], demand: Sequence[int]) -> int:
    """The same by Hall's condition on every set of shards: for small N only, and with no solver at all."""
    worst, living = 0, set(live)
    wanted = [i for i in range(placement.groups) if demand[i]]
    for size in range(1, len(wanted) + 1):
        for shards in combinations(wanted, size):
            hosts = {h for i in shards for h in hosts_of(placement, i)} & living
            worst = max(worst, -(-sum(demand[i] for i in shards) // len(hosts)))
    return worst


def fewest_gains(placement: Placement, live: Iterable[int], before: Sequence[Sequence[int]], m: int, cap: int) -> int:
    """The fewest micro-batches that must be on another host than before, lost ones included, by ortools."""
    n, living, solver = placement.groups, set(live), min_cost_flow.SimpleMinCostFlow()
    for i in range(n):
        solver.set_node_supply(i, m)
        for layer, host in enumerate(hosts_of(placement, i)):
            if host in living:
                solver.add_arc_with_capacity_and_unit_cost(i, n + host, before[i][layer], 0)
                solver.add_arc_with_capacity_and_unit_cost(i, n + host, m, 1)
    for group in sorted(living):
        solver.add_arc_with_capacity_and_unit_cost(n + group, 2 * n, cap, 0)
    solver.set_node_supply(2 * n, -n * m)
    assert solver.solve() == solver.OPTIMAL
    return int(solver.optimal_cost())


def fewest_whole_moves(
    placement: Placement, live: Iterable[int], costs: Mapping[tuple[int, int], int], depth: int
) -> int:
    """The least cost of giving each shard to a live host, ``depth`` per host; costs by (shard, host)."""
    n, living, solver = placement.groups, set(live), min_cost_flow.SimpleMinCostFlow()
    for i in range(n):
        solver.set_node_supply(i, 1)
        for host in hosts_of(placement, i):
            if host in living:
                solver.add_arc_with_capacity_and_unit_cost(i, n + host, 1, costs[i, host])
    for group in sorted(living):
        solver.add_arc_with_capacity_and_unit_cost(n + group, 2 * n, depth, 0)
    solver.set_node_supply(2 * n, -n)
    assert solver.solve() == solver.OPTIMAL
    return int(solver.optimal_cost())


def wiped(placement: Placement, live: Iterable[int]) -> list[int]:
    """The shards without a live host, by the definition."""
    living = set(live)
    return [i for i in range(placement.groups) if not living.intersection(hosts_of(placement, i))]


def kills(n: int, seed: int) -> Iterator[list[int]]:
    """The live groups after one more random failure each time, down to a single group."""
    order = list(range(n))
    random.Random(seed).shuffle(order)
    for alive in range(n - 1, 0, -1):
        yield sorted(order[:alive])
