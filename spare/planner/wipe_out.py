"""The one state that no schedule can repair: a shard all of whose hosts are gone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from spare.planner.placement import Placement
from spare.planner.words import named


class WipeOut(Exception):
    """Some shards have no live host, so the step cannot be completed by hosts.

    Attributes:
        shards: the shards without a live host, ascending, at least one.

    Source: paper, section "Idea", Phase 1.
    """

    def __init__(self, shards: Sequence[int]) -> None:
        self.shards = tuple(shards)
        super().__init__(f"wipe-out: {named('shard', self.shards)} without a live host")


def uncovered(placement: Placement, live: Collection[int], shards: Iterable[int] | None = None) -> tuple[int, ...]:
    """The shards without a live host, ascending.

    Args:
        placement: who hosts what.
        live: the live groups, best a set.
        shards: the shards to look at; None looks at all.
    """
    hosts = placement.host_table
    looked_at = range(placement.groups) if shards is None else shards
    return tuple(sorted(i for i in looked_at if not any(h in live for h in hosts[i])))
