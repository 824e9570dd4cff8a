"""The solver: give units of shards to hosts with room, along shortest augmenting paths, in phases.

This is Dinic's maximum flow on the two-sided graph shards - hosts, written for a flow that already exists and lacks a
little: the paths start at shards with missing units and at hosts with too many, so the cost follows the damage and not
the size of the job. A path takes a unit to a host that is full, takes one of that host's units elsewhere, and so on to
a host with room. When no path is left, the shards and hosts reached form a minimum cut, which proves that the limits
are too low and by how much.

Source: E. A. Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation", Soviet
Math. Dokl. 11 (1970); with unit capacities it is Hopcroft-Karp, SIAM J. Comput. 2 (1973), the paper's Phase 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spare.planner.placement import Placement
from spare.planner.theory import room, speed_cap

Row = list[int] | tuple[int, ...]
_OFF = -1  # a shard or host that is on no level (any more)


class Cut(NamedTuple):
    """The proof that the limits are too low: all units of these shards must go to these hosts, and do not fit."""

    shards: tuple[int, ...]
    hosts: tuple[int, ...]


@dataclass(slots=True)
class Assignment:
    """The working state: units of shards on hosts, all numbers whole.

    Attributes:
        placement: who hosts what.
        rows: shape (N, r); rows[i][j] units of shard i lie on ``placement.hosts(i)[j]``. A tuple is shared with the
            caller and is replaced by a list before it is written.
        load: shape (N,), units on each host.
        limit: shape (N,), the most units allowed on each host; 0 for one that is not live. A load may be above it
            at first, never after ``complete``.
        todo: units still to be given, per shard, none of them 0.
    """

    placement: Placement
    rows: list[Row]
    load: list[int]
    limit: list[int]
    todo: dict[int, int]

    def add(self, shard: int, layer: int, units: int) -> None:
        """Change a count, without touching the host's load."""
        row = self.rows[shard]
        if isinstance(row, tuple):
            row = self.rows[shard] = list(row)
        row[layer] += units


@dataclass(slots=True)
class _Levels:
    """Distances from the shards with units to give: shard level 0, their hosts 0, shards on those hosts 1, ...

    ``last`` is the first level with a host that has room. The arcs remember how far each shard and host was searched.
    """

    shard: list[int]
    host: list[int]
    last: int
    shard_arc: list[int]
    host_arc: list[int]


def complete(work: Assignment) -> Cut | None:
    """Give away ``work.todo`` and what hosts hold above their limits, moving few other units: shortest paths.

    Returns:
        None when done; else the cut that proves it impossible, with ``work`` left half done.

    Deterministic: shards in ascending order; among hosts with room the least loaded, then the lowest number.
    Cost: O(sqrt(V) * E) for unit limits, V = 2N, E = N * r; in practice one to ten searches near the damage.
    """
    over = [host for host, units in enumerate(work.load) if units > work.limit[host]]
    while work.todo or over:
        levels = _levels(work, over)
        if isinstance(levels, Cut):
            return levels
        for shard in sorted(work.todo):
            while shard in work.todo and _give(work, levels, shard):
                work.todo[shard] -= 1
                if not work.todo[shard]:
                    del work.todo[shard]
        for host in over:
            _relieve(work, levels, host)
        over = [host for host in over if work.load[host] > work.limit[host]]
    return None


def least_cap(
    base: Assignment, live: Sequence[int], demand: Sequence[int], cap: int, speeds: Sequence[int] = ()
) -> tuple[Assignment, int]:
    """Complete an assignment under the least cap on every live host, from ``cap`` up, that allows it.

    ``base`` is left as it is (its limits are not read) and every try starts from it: what a too low cap forced to move
    stays put.

    Args:
        base: what lies where; every shard with demand has a live host.
        live: the live hosts.
        demand: shape (N,), all units of each shard, those in ``base.todo`` included.
        cap: a proved lower bound, at least 1.
        speeds: shape (N,), per cent: a slower host may have ``room(cap, speed)`` only. Empty: all are healthy.

    Returns:
        The completed assignment and the least cap. Exact: a cap is given up only after a cut has proved it too low.

    Raises:
        ValueError: a shard has units to give and no live host, or ``base.load`` is not the load of ``base.rows``.
    """
    while True:
        limit = [0] * base.placement.groups
        for group in live:
            limit[group] = room(cap, speeds[group]) if speeds else cap
        work = Assignment(base.placement, list(base.rows), list(base.load), limit, dict(base.todo))
        cut = complete(work)
        if cut is None:
            return work, cap
        if not cut.hosts:
            raise ValueError("no cap can do: a shard has no live host, or loads and counts disagree")
        # The units of the cut's shards have nowhere else to go, so what their hosts need is proved necessary.
        pace = [speeds[host] for host in cut.hosts] if speeds else [100] * len(cut.hosts)
        cap = max(cap + 1, speed_cap(sum(demand[shard] for shard in cut.shards), pace))


def _relieve(work: Assignment, levels: _Levels, host: int) -> None:
    """Give away what a host has above its limit, as far as these levels allow."""
    stack = work.placement.stacks[host]
    for shard, layer in sorted((shard, layer) for layer, shard in enumerate(stack)):
        while work.load[host] > work.limit[host] and work.rows[shard][layer] and _give(work, levels, shard):
            work.add(shard, layer, -1)
            work.load[host] -= 1


def _levels(work: Assignment, over: Sequence[int]) -> _Levels | Cut:
    """Search from the shards with units to give, and those on hosts over their limit, to the first hosts with room."""
    host_table, stacks = work.placement.host_table, work.placement.stacks
    rows, load, limit = work.rows, work.load, work.limit
    n = work.placement.groups
    shard_level, host_level = [_OFF] * n, [_OFF] * n
    on_over = {shard for host in over for layer, shard in enumerate(stacks[host]) if rows[shard][layer]}
    shards = sorted(on_over.union(work.todo))
    for shard in shards:
        shard_level[shard] = 0
    reached_shards, reached_hosts, level = list(shards), [], 0
    while shards:
        hosts, room = [], False
        for shard in shards:
            for host in host_table[shard]:
                if host_level[host] == _OFF and limit[host]:
                    host_level[host] = level
                    hosts.append(host)
                    room = room or load[host] < limit[host]
        if room:
            return _Levels(shard_level, host_level, level, [0] * n, [0] * n)
        level += 1
        shards = []
        for host in hosts:
            for layer, shard in enumerate(stacks[host]):
                if shard_level[shard] == _OFF and rows[shard][layer]:
                    shard_level[shard] = level
                    shards.append(shard)
        reached_shards += shards
        reached_hosts += hosts
    return Cut(tuple(sorted(reached_shards)), tuple(sorted(reached_hosts)))


def _give(work: Assignment, levels: _Levels, start: int) -> bool:
    """Give one unit of a shard to a host along one path; False when no path is left on these levels."""
    path = [start]
    via: list[tuple[int, int]] = []  # (layer of path[i], layer of path[i+1]) at the host between them
    while path:
        shard = path[-1]
        if levels.shard[shard] == levels.last:
            layer = _roomiest(work, levels, shard)
            if layer is not None:
                _apply(work, path, via, layer)
                return True
        else:
            step = _advance(work, levels, shard)
            if step is not None:
                path.append(step[0])
                via.append(step[1:])
                continue
        levels.shard[shard] = _OFF
        path.pop()
        if via:
            via.pop()
    return False


def _advance(work: Assignment, levels: _Levels, shard: int) -> tuple[int, int, int] | None:
    """The next (deeper shard, layer of ``shard``, layer of the deeper one) that may continue a path, or None."""
    hosts, stacks, rows = work.placement.host_table[shard], work.placement.stacks, work.rows
    level, r = levels.shard[shard], work.placement.redundancy
    for layer in range(levels.shard_arc[shard], r):
        host = hosts[layer]
        if levels.host[host] != level:
            continue
        stack = stacks[host]
        for deeper_layer in range(levels.host_arc[host], r):
            deeper = stack[deeper_layer]
            if levels.shard[deeper] == level + 1 and rows[deeper][deeper_layer]:
                levels.shard_arc[shard] = layer
                levels.host_arc[host] = deeper_layer
                return deeper, layer, deeper_layer
        levels.host[host] = _OFF
    levels.shard_arc[shard] = r
    return None


def _roomiest(work: Assignment, levels: _Levels, shard: int) -> int | None:
    """The layer of the shard's host on the last level with the least load among those with room; None if none has."""
    best, best_key = None, (0, 0)
    for layer, host in enumerate(work.placement.host_table[shard]):
        if levels.host[host] == levels.last and work.load[host] < work.limit[host]:
            key = (work.load[host], host)
            if best is None or key < best_key:
                best, best_key = layer, key
    return best


def _apply(work: Assignment, path: list[int], via: list[tuple[int, int]], layer: int) -> None:
    """Move one unit along a path that ends at ``layer`` of its last shard."""
    host = work.placement.host_table[path[-1]][layer]
    work.load[host] += 1
    work.add(path[-1], layer, 1)
    for place, (taken, freed) in enumerate(via):
        work.add(path[place], taken, 1)
        work.add(path[place + 1], freed, -1)
