"""Which group may compute which shard: the placement of shards on groups.

A placement is a rule, not a table: (groups, redundancy, offsets, ring) is enough to rebuild it, so a plan that is sent
to an agent stays small. The tables that the scheduler walks are derived on first use and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

STRATEGIES = ("Golomb", "Consecutive")


@dataclass(frozen=True)
class Placement:
    """N shards on N groups, every shard on r groups and every group with r shards.

    The groups sit on a ring; the group at position p hosts, in layer j, shard (p + offsets[j]) mod N. Read the other
    way, shard i is hosted in layer j by the group at position (i - offsets[j]) mod N. So layer j means the same thing
    from both sides: if ``stack(g)[j] == i`` then ``hosts(i)[j] == g``.

    Attributes:
        groups: N, the number of groups and of shards, at least 1.
        redundancy: r, the shards per group and the hosts per shard, 1 to N.
        offsets: r distinct numbers in [0, N); the first is 0.
        strategy: "Golomb" or "Consecutive"; says how the offsets were chosen, nothing is derived from it.
        ring: shape (N,), ring[position] = group. The identity unless the placement follows a topology.

    Raises:
        ValueError: an argument out of its range; the text names it, its value and the range.

    Source: paper, section "Idea" (cyclic rotation); offsets other than 0..r-1 are ours (docs/planner.md).
    """

    groups: int
    redundancy: int
    offsets: tuple[int, ...]
    strategy: str
    ring: tuple[int, ...]

    def __post_init__(self) -> None:
        n, r = self.groups, self.redundancy
        _check_sizes(n, r)
        _check_strategy(self.strategy)
        distinct = len(set(self.offsets)) == len(self.offsets) == r
        if not distinct or self.offsets[0] != 0 or not all(0 <= o < n for o in self.offsets):
            raise ValueError(f"offsets is {self.offsets}; allowed are {r} distinct numbers in [0, {n}), the first 0")
        if len(self.ring) != n or set(self.ring) != set(range(n)):
            raise ValueError(f"ring has {len(self.ring)} entries; allowed is each group 0 to {n - 1} exactly once")

    def stack(self, group: int) -> tuple[int, ...]:
        """The r shards of a group, in layer order. Raises IndexError for a group outside [0, N)."""
        return self.stacks[_within(group, self.groups, "group")]

    def hosts(self, shard: int) -> tuple[int, ...]:
        """The r groups that host a shard, in layer order. Raises IndexError for a shard outside [0, N)."""
        return self.host_table[_within(shard, self.groups, "shard")]

    @cached_property
    def position(self) -> tuple[int, ...]:
        """Shape (N,): the place of each group on the ring, the inverse of ``ring``."""
        places = [0] * self.groups
        for place_on_ring, group in enumerate(self.ring):
            places[group] = place_on_ring
        return tuple(places)

    @cached_property
    def stacks(self) -> tuple[tuple[int, ...], ...]:
        """Shape (N, r): ``stack`` of every group."""
        # Built layer by layer from rotations of one list, so that all rows share the same N integers.
        ids = list(range(self.groups))
        by_position = list(zip(*(ids[o:] + ids[:o] for o in self.offsets), strict=True))
        return tuple(by_position[p] for p in self.position)

    @cached_property
    def host_table(self) -> tuple[tuple[int, ...], ...]:
        """Shape (N, r): ``hosts`` of every shard."""
        ring, n = self.ring, self.groups
        return tuple(zip(*(ring[n - o :] + ring[: n - o] for o in self.offsets), strict=True))


def place(
    groups: int,
    redundancy: int,
    strategy: str = "Golomb",
    topology: Sequence[tuple[str, ...]] | None = None,
) -> Placement:
    """Choose a placement.

    "Golomb" takes one offset from each of r equal arcs of the ring: the first that repeats no difference mod N, or, if
    there is none, the first with the fewest repeats. Distinct differences mean that two shards share at most one host;
    one offset per arc means that a run of n neighbours on the ring (a zone, a rack, a node) never holds more than
    ceil(r * n / N) + 1 hosts of a shard. "Consecutive" is the paper's: offsets 0 to r-1.

    Args:
        groups: N, at least 1.
        redundancy: r, 1 to N.
        strategy: "Golomb" or "Consecutive".
        topology: shape (N,), for each group its place from the widest level down, as in (zone, rack, node). The ring
            is the groups sorted by it; None leaves the groups in their own order.

    Raises:
        ValueError: an argument out of its range; the text names it, its value and the range.

    Cost: O(r * N / r * r) = O(N * r) time at worst. Source: paper, Thm 4.1 (independence condition); arcs are ours.
    """
    _check_sizes(groups, redundancy)
    _check_strategy(strategy)
    ring = tuple(range(groups))
    if topology is not None:
        if len(topology) != groups:
            raise ValueError(f"topology has {len(topology)} entries; allowed is one per group, {groups}")
        where = [tuple(level) for level in topology]
        ring = tuple(sorted(ring, key=lambda group: (where[group], group)))
    offsets = tuple(range(redundancy)) if strategy == "Consecutive" else _one_per_arc(groups, redundancy)
    return Placement(groups, redundancy, offsets, strategy, ring)


def _one_per_arc(n: int, r: int) -> tuple[int, ...]:
    """The "Golomb" offsets: one per arc [jN/r, (j+1)N/r), with the fewest repeated differences mod N."""
    offsets = [0]
    seen: set[int] = set()
    for arc in range(1, r):
        best, fewest = -1, -1
        for candidate in range(-(-arc * n // r), -(-(arc + 1) * n // r)):
            repeats = _repeats(candidate, offsets, seen, n)
            if best < 0 or repeats < fewest:
                best, fewest = candidate, repeats
            if repeats == 0:
                break
        seen.update((best - o) % n for o in offsets)
        seen.update((o - best) % n for o in offsets)
        offsets.append(best)
    return tuple(offsets)


def _repeats(candidate: int, offsets: list[int], seen: set[int], n: int) -> int:
    """How many of the differences that a new offset makes exist already, or are made twice by itself."""
    new = [(candidate - o) % n for o in offsets]
    new += [(o - candidate) % n for o in offsets]
    return sum(d in seen for d in new) + len(new) - len(set(new))


def _check_sizes(groups: int, redundancy: int) -> None:
    if groups < 1:
        raise ValueError(f"groups is {groups}; allowed is 1 or more")
    if not 1 <= redundancy <= groups:
        raise ValueError(f"redundancy is {redundancy}; allowed is 1 to groups, {groups}")


def _check_strategy(strategy: str) -> None:
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy is {strategy!r}; allowed are {', '.join(STRATEGIES)}")


def _within(number: int, n: int, name: str) -> int:
    # A negative number would silently count from the end.
    if not 0 <= number < n:
        raise IndexError(f"{name} is {number}; allowed is 0 to {n - 1}")
    return number
