"""Who computes what in every step: the schedule.

A schedule does not list micro-batches. It says, per shard, how many each host computes; which ones follows by rule
(in the order of the hosts), so two programs that hold the same schedule name the same micro-batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from spare.planner.microbatches import Range, mask_of
from spare.planner.placement import Placement
from spare.planner.theory import speed_cap

_OPTIONAL = frozenset({"ring", "speeds"})
_KEYS = frozenset({"groups", "redundancy", "strategy", "offsets", "microBatches", "live", "counts", "cap"}) | _OPTIONAL


@dataclass(frozen=True)
class Schedule:
    """The micro-batches of a step, given to live groups: disjoint and complete.

    Attributes:
        placement: who hosts what.
        micro_batches: m, micro-batches per shard.
        live: the live groups, ascending. The rank of a group is its place in this tuple.
        counts: shape (N, r); counts[i][j] micro-batches of shard i are computed by ``placement.hosts(i)[j]``. Each
            row sums to m.
        cap: no group computes more than this many micro-batches; the least possible when made by this package.
        speeds: shape (N,), speed of each group in per cent of a healthy one's, 1 to 100; empty when all are healthy. A
            slower group computes at most ``theory.room(cap, speed)``.

    The constructor checks nothing, so that a schedule from elsewhere can be handed to ``check``, which says what is
    wrong with it.
    """

    placement: Placement
    micro_batches: int
    live: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...]
    cap: int
    speeds: tuple[int, ...] = ()

    @cached_property
    def loads(self) -> tuple[int, ...]:
        """Shape (N,): micro-batches that each group computes in a step; 0 for a group that is not live."""
        loads = [0] * self.placement.groups
        for hosts, row in zip(self.placement.host_table, self.counts, strict=True):
            for host, count in zip(hosts, row, strict=True):
                loads[host] += count
        return tuple(loads)

    def load(self, group: int) -> int:
        """Micro-batches that a group computes in a step."""
        return self.loads[group]

    def speed(self, group: int) -> int:
        """Speed of a group in per cent of a healthy one's."""
        return self.speeds[group] if self.speeds else 100

    @property
    def depth(self) -> float:
        """The length of a step, in the time that a healthy group takes for a shard: 1.0 when all are healthy.

        The largest load divided by m, a slow group's load counting as much more as it is slower.
        """
        if not self.speeds:  # read at every step of a simulation, so not group by group
            return max(self.loads) / self.micro_batches
        slowest = max(load * 100 / self.speed(group) for group, load in enumerate(self.loads))
        return slowest / self.micro_batches

    @property
    def bound(self) -> float:
        """The least cap that any schedule can have with so many live groups of these speeds, in shards.

        ceil(N*m / live) / m when all are healthy.
        """
        units = self.placement.groups * self.micro_batches
        return speed_cap(units, [self.speed(group) for group in self.live]) / self.micro_batches

    def ranges(self, group: int) -> tuple[Range, ...]:
        """What a group computes in a step, ascending by shard; empty for a group that is not live.

        The indices 0 to m-1 of a shard are laid out over its hosts in layer order, so a group has at most one range
        per shard of its stack.
        """
        found = []
        for layer, shard in enumerate(self.placement.stack(group)):
            row = self.counts[shard]
            if row[layer]:
                found.append(Range(shard, sum(row[:layer]), row[layer]))
        return tuple(sorted(found))

    def mask(self, group: int) -> int:
        """``ranges(group)`` as a bit mask, bit shard * m + index."""
        return mask_of(self.ranges(group), self.micro_batches)

    def to_json(self) -> dict[str, Any]:
        """The schedule as plain JSON values; ``from_json`` gives an equal schedule back.

        The ring is left out when it is the identity, the speeds when all groups are healthy. Size: about 2 to 3 bytes
        per host of a shard, so 25 kB for 1,000 groups with r = 9, and 340 kB for 10,000 with r = 14.
        """
        place = self.placement
        found: dict[str, Any] = {
            "groups": place.groups,
            "redundancy": place.redundancy,
            "strategy": place.strategy,
            "offsets": list(place.offsets),
            "microBatches": self.micro_batches,
            "live": list(self.live),
            "counts": [list(row) for row in self.counts],
            "cap": self.cap,
        }
        if place.ring != tuple(range(place.groups)):
            found["ring"] = list(place.ring)
        if self.speeds:
            found["speeds"] = list(self.speeds)
        return found

    def to_bytes(self) -> bytes:
        """``to_json`` as UTF-8 text, keys sorted, no spaces: equal schedules give equal bytes."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Schedule:
        """Read what ``to_json`` wrote. Whether it is a *valid* schedule is for ``check`` to say.

        Raises:
            ValueError: a key is missing or unknown, or a value has the wrong type; the text names it.
        """
        unknown, missing = sorted(set(data) - _KEYS), sorted(_KEYS - _OPTIONAL - set(data))
        if unknown or missing:
            raise ValueError(f"schedule: unknown keys {unknown}, missing keys {missing}")
        if not isinstance(data["strategy"], str):
            raise ValueError(f"schedule.strategy is {data['strategy']!r}; allowed is a text")
        counts = data["counts"]
        if not isinstance(counts, list):
            raise ValueError("schedule.counts is no list")
        groups = _integer(data["groups"], "groups")
        ring = _integers(data["ring"], "ring") if "ring" in data else tuple(range(groups))
        placement = Placement(
            groups,
            _integer(data["redundancy"], "redundancy"),
            _integers(data["offsets"], "offsets"),
            data["strategy"],
            ring,
        )
        return cls(
            placement,
            _integer(data["microBatches"], "microBatches"),
            _integers(data["live"], "live"),
            tuple(_integers(row, f"counts[{shard}]") for shard, row in enumerate(counts)),
            _integer(data["cap"], "cap"),
            _integers(data["speeds"], "speeds") if "speeds" in data else (),
        )


def healthy(placement: Placement, micro_batches: int) -> Schedule:
    """The schedule while all groups live: each shard spread over all its hosts, m micro-batches per group.

    Each host computes m // r micro-batches of the shard, and the hosts of the first m % r layers one more. The depth
    is 1.0 as it would be with one whole shard per group, but what a lost group leaves behind is then spread over
    many hosts: the patch of the step in flight is four times shorter (N = 200, r = 9, m = 32).

    Raises:
        ValueError: micro_batches below 1.
    """
    if micro_batches < 1:
        raise ValueError(f"micro_batches is {micro_batches}; allowed is 1 or more")
    share, more = divmod(micro_batches, placement.redundancy)
    row = tuple(share + (layer < more) for layer in range(placement.redundancy))
    everybody = tuple(range(placement.groups))
    return Schedule(placement, micro_batches, everybody, (row,) * placement.groups, micro_batches)


def members(live: Iterable[int], groups: int) -> tuple[int, ...]:
    """The live groups, ascending, each once. Raises ValueError naming a number outside [0, N)."""
    found = tuple(sorted(set(live)))
    if found and not 0 <= found[0] <= found[-1] < groups:
        wrong = found[0] if found[0] < 0 else found[-1]
        raise ValueError(f"live has group {wrong}; allowed are 0 to {groups - 1}")
    return found


def _integer(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"schedule.{name} is {value!r}; allowed is a whole number")
    return value


def _integers(value: object, name: str) -> tuple[int, ...]:
    # One type test per list, not per number: the lists of a large plan hold 140,000 numbers.
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        raise ValueError(f"schedule.{name} is no list of whole numbers")
    return tuple(value)
