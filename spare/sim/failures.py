"""When something fails, and who: gaps between failures, and the groups that one failure takes.

A gap is drawn in *operating* seconds, which pass at the wall's rate while all groups live and more slowly when fewer
do. So groups that are gone cannot fail, and the process stays what it is: exponential, or a renewal process of Weibull.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spare.sim.setting import Setting


@dataclass(frozen=True)
class Level:
    """Domains of one kind, such as racks.

    Attributes:
        name: for people.
        size: groups in one domain.
        share: share of all failures that take a whole domain.
    """

    name: str
    size: int
    share: float


def places(setting: Setting, seed: int = 0) -> tuple[int, ...]:
    """Shape (N,): the place of each group in the building; neighbours share their node, rack, zone."""
    order = list(range(setting.groups))
    if setting.scattered:
        Random(seed).shuffle(order)
    return tuple(order)


def topology(setting: Setting) -> list[tuple[str, ...]]:
    """For each group its domains from the widest level down, as ``place`` of the planner takes it."""
    widest_first = sorted(setting.levels, key=lambda level: -level.size)
    return [tuple(f"{place // level.size:06d}" for level in widest_first) for place in places(setting)]


class Failures:
    """The source of failures of one run."""

    def __init__(self, setting: Setting, rng: Random) -> None:
        self._setting, self._rng = setting, rng
        self._trace = iter(setting.trace)
        self._named = -1
        # Weibull's mean is scale * Gamma(1 + 1/shape).
        self._scale = setting.between_failures / math.gamma(1 + 1 / setting.shape)
        self._places = places(setting)
        self._by_place = sorted(range(setting.groups), key=self._places.__getitem__)

    def gap(self) -> float:
        """Operating seconds from one failure to the next; for a trace, the next one's wall time; inf: no more."""
        if self._setting.process == "trace":
            time, self._named = next(self._trace, (math.inf, -1))
            return time
        if self._setting.process == "exponential":
            return self._rng.expovariate(1 / self._setting.between_failures)
        return self._rng.weibullvariate(self._scale, self._setting.shape)

    def victims(self, live: Container[int]) -> Sequence[int]:
        """The groups that this failure takes, ascending: one live group, or all of its domain that live."""
        named = self._named
        first = named if named >= 0 else self._random_live(live)
        if first not in live:
            return ()  # the trace names a group that is down already
        level = self._level()
        if level is None:
            return (first,)
        start = self._places[first] // level.size * level.size
        return sorted(g for g in self._by_place[start : start + level.size] if g in live)

    def _random_live(self, live: Container[int]) -> int:
        # All groups have equally many GPUs, so a uniform GPU is a uniform group.
        while True:
            group = int(self._rng.random() * self._setting.groups)
            if group in live:
                return group

    def _level(self) -> Level | None:
        if not self._setting.levels:
            return None
        drawn = self._rng.random()
        for level in self._setting.levels:
            drawn -= level.share
            if drawn < 0:
                return level
        return None
