"""Replication with checkpoints; with r = 1 it is checkpoints only."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from spare.planner import Placement, WipeOut, masked_mean, place

Layout = Literal["cyclic", "bundles"]


class Replicated:
    """Every group computes all r shards of its stack in every step, so a failure leaves nothing to patch.

    Args:
        groups, redundancy: N and r.
        layout: "cyclic": group i has the shards i to i + r - 1, for which the paper's mu holds; "bundles": groups 0 to
            r - 1 are copies of each other, and so on. A bundle left over at the end is joined to the last.
        redo: layers computed again after a failure: 0 if the survivors' copies are used, r if the step starts anew.
        each: every lost group costs ``redo`` layers, one after the other; else those noticed together cost it once.
    """

    def __init__(
        self, groups: int, redundancy: int, layout: Layout = "cyclic", redo: float = 0.0, each: bool = False
    ) -> None:
        self.redundancy, self._redo, self._each = redundancy, redo, each
        self._placement: Placement = place(groups, redundancy, "Consecutive")
        self._stacks, self._hosts = _tables(self._placement, layout)
        self._live = set(range(groups))

    @property
    def name(self) -> str:
        """See Strategy."""
        return "checkpoint only" if self.redundancy == 1 else f"replication r={self.redundancy}"

    @property
    def masked(self) -> float:
        """mu of the paper; with one copy every failure restarts the job, and the formula gives mu = 1."""
        return masked_mean(self._placement.groups, self.redundancy)

    @property
    def depth(self) -> float:
        """All r layers, always."""
        return float(self.redundancy)

    def fresh(self) -> None:
        """See Strategy."""
        self._live = set(range(self._placement.groups))

    def lose(self, groups: Collection[int]) -> float:
        """See Strategy."""
        self.leave(groups)
        return self._redo * len(groups) if self._each else self._redo

    def leave(self, groups: Collection[int]) -> None:
        """See Strategy."""
        self._live.difference_update(groups)
        wiped = self._without_host(groups)
        if wiped:
            raise WipeOut(wiped)

    def survives(self, groups: Collection[int]) -> bool:
        """See Strategy."""
        live = self._live
        self._live = live.difference(groups)
        wiped = self._without_host(groups)
        self._live = live
        return not wiped

    def _without_host(self, groups: Collection[int]) -> list[int]:
        touched = sorted({shard for group in groups for shard in self._stacks[group]})
        return [shard for shard in touched if self._live.isdisjoint(self._hosts[shard])]

    def join(self, groups: Collection[int]) -> None:
        """See Strategy."""
        self._live.update(groups)

    def begin(self) -> None:
        """See Strategy; nothing is held."""

    def fetches(self) -> int:
        """See Strategy; never."""
        return 0


def _tables(placement: Placement, layout: Layout) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    """(stacks, hosts)."""
    if layout == "cyclic":
        return placement.stacks, placement.host_table
    n, r = placement.groups, placement.redundancy
    last = max(1, n // r) - 1
    bundle = [min(group // r, last) for group in range(n)]
    members = [tuple(g for g in range(n) if bundle[g] == b) for b in range(last + 1)]
    return tuple(members[b] for b in bundle), tuple(members[b] for b in bundle)
