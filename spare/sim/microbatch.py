"""Ours: micro-batches are moved, not shards; replacements join; a shard without a host may be fetched."""

from __future__ import annotations

from collections.abc import Collection

from spare.planner import (
    Placement,
    Range,
    Schedule,
    WipeOut,
    healthy,
    mask_of,
    masked_mean,
    micro_cap,
    patch,
    reorder,
)


class MicroBatches:
    """The product's scheduler.

    With ``fetch`` the micro-batches of a shard that has no live host are shared evenly among all live groups. The
    planner knows hosts only, so one dead host of each such shard stays in its plan as a stand-in, whose load is then
    given to everybody on top of their own: an upper bound on the depth.

    Args:
        placement: who hosts what.
        micro_batches: m.
        fetch: whether a shard without a host is fetched.
        least_live: share of the groups below which a job that fetches restarts all the same, because what is left is
            too slow.
    """

    def __init__(
        self, placement: Placement, micro_batches: int = 32, fetch: bool = False, least_live: float = 0.5
    ) -> None:
        self.placement, self.micro_batches = placement, micro_batches
        self._fetch, self._least = fetch, least_live * placement.groups
        self._healthy = healthy(placement, micro_batches)
        self._fetched = 0
        self.fresh()

    @property
    def name(self) -> str:
        """See Strategy."""
        more = " fetch" if self._fetch else ""
        return f"micro-batches r={self.placement.redundancy} {self.placement.strategy}{more}"

    @property
    def masked(self) -> float:
        """mu of the paper."""
        return masked_mean(self.placement.groups, self.placement.redundancy)

    @property
    def depth(self) -> float:
        """Largest load in layers, with the stand-ins' load shared among all."""
        if not self._stand_ins:
            return self._next.depth
        loads, live = self._next.loads, self._live
        shared = -(-sum(loads[g] for g in self._stand_ins) // len(live))
        dead = self.placement.groups - len(live)
        bound = micro_cap(self.placement.groups, dead, self.micro_batches)
        return max(bound, max(loads[g] for g in live) + shared) / self.micro_batches

    def fresh(self) -> None:
        """See Strategy."""
        self._now: Schedule = self._healthy
        self._next: Schedule = self._healthy
        self._live = set(range(self.placement.groups))
        self._stand_ins: set[int] = set()
        self._patched: dict[int, int] = {}

    def lose(self, groups: Collection[int]) -> float:
        """See Strategy."""
        missing = 0
        for group in groups:
            missing |= self._now.mask(group) | self._patched.pop(group, 0)
        self.leave(groups)
        shares = patch(self.placement, self.micro_batches, sorted(self._live | self._stand_ins), missing)
        for group, ranges in shares.items():
            if group in self._live:
                self._patched[group] = self._patched.get(group, 0) | mask_of(ranges, self.micro_batches)
        own = max((_units(ranges) for group, ranges in shares.items() if group in self._live), default=0)
        others = sum(_units(ranges) for group, ranges in shares.items() if group in self._stand_ins)
        return (own - (-others // len(self._live))) / self.micro_batches

    def leave(self, groups: Collection[int]) -> None:
        """See Strategy."""
        self._live.difference_update(groups)
        self._replan()

    def join(self, groups: Collection[int]) -> None:
        """See Strategy."""
        self._live.update(groups)
        self._replan()

    def begin(self) -> None:
        """See Strategy."""
        self._now = self._next
        self._patched = {}

    def survives(self, groups: Collection[int]) -> bool:
        """See Strategy."""
        live = self._live.difference(groups)
        if self._fetch:
            return len(live) >= max(1.0, self._least)
        stacks, hosts = self.placement.stacks, self.placement.host_table
        return not any(live.isdisjoint(hosts[shard]) for group in groups for shard in stacks[group])

    def fetches(self) -> int:
        """See Strategy."""
        fetched, self._fetched = self._fetched, 0
        return fetched

    def _replan(self) -> None:
        before = self._stand_ins
        self._stand_ins = set()
        try:
            self._next = reorder(self._next, self._live).schedule
        except WipeOut as wiped:
            if not self._fetch or len(self._live) < max(1.0, self._least):
                raise
            # The same dead host stands in again where it can, so that only shards newly without a host are fetched.
            self._stand_ins = {
                next((h for h in hosts if h in before), hosts[0])
                for hosts in (self.placement.host_table[shard] for shard in wiped.shards)
            }
            self._fetched += len(self._stand_ins - before)
            self._next = reorder(self._next, self._live | self._stand_ins).schedule


def _units(ranges: Collection[Range]) -> int:
    return sum(part.count for part in ranges)
