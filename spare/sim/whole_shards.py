"""SPARe as in the paper: whole shards, ordered stacks, three phases, patch compute."""

from __future__ import annotations

from collections.abc import Collection

from spare.planner import Placement, masked_mean, patch, whole_healthy, whole_reorder


class WholeShards:
    """Each live group computes the first S shards of its stack.

    The patch is what no survivor has computed of the step in flight, given to hosts as evenly as can be; the new order
    holds from the next step on.
    """

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self._healthy = whole_healthy(placement)
        self.fresh()

    @property
    def name(self) -> str:
        """See Strategy."""
        return f"whole shards r={self.placement.redundancy} {self.placement.strategy}"

    @property
    def masked(self) -> float:
        """mu of the paper."""
        return masked_mean(self.placement.groups, self.placement.redundancy)

    @property
    def depth(self) -> float:
        """S."""
        return float(self._next.depth)

    def fresh(self) -> None:
        """See Strategy."""
        self._now = self._next = self._healthy
        self._live = set(self._now.live)
        self._patched: dict[int, set[int]] = {}

    def lose(self, groups: Collection[int]) -> float:
        """See Strategy."""
        self.leave(groups)
        computed: set[int] = set()
        depth, orders = self._now.depth, self._now.orders
        for group in self._live:
            computed.update(orders[group][:depth])
        for group, shards in self._patched.items():
            if group in self._live:
                computed |= shards
        missing = 0
        for shard in range(self.placement.groups):
            if shard not in computed:
                missing |= 1 << shard
        shares = patch(self.placement, 1, sorted(self._live), missing)
        for group, ranges in shares.items():
            # One micro-batch per shard here, so a range is one shard.
            self._patched.setdefault(group, set()).update(part.shard for part in ranges)
        return float(max((len(ranges) for ranges in shares.values()), default=0))

    def leave(self, groups: Collection[int]) -> None:
        """See Strategy."""
        self._live.difference_update(groups)
        self._next = whole_reorder(self._next, self._live).schedule

    def join(self, groups: Collection[int]) -> None:
        """See Strategy."""
        self._live.update(groups)
        self._next = whole_reorder(self._next, self._live).schedule

    def begin(self) -> None:
        """See Strategy."""
        self._now = self._next
        self._patched = {}

    def survives(self, groups: Collection[int]) -> bool:
        """See Strategy."""
        live = self._live.difference(groups)
        stacks, hosts = self.placement.stacks, self.placement.host_table
        return not any(live.isdisjoint(hosts[shard]) for group in groups for shard in stacks[group])

    def fetches(self) -> int:
        """See Strategy; never."""
        return 0
