"""What is simulated: sizes, durations and failures of one training run. All durations are in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from spare.sim.failures import Level

Process = Literal["exponential", "weibull", "trace"]
Notice = Literal["reduction", "at once"]

SHAPES = (0.1, 100.0)
"""Shapes of Weibull's distribution between which its mean can be computed, and means something."""

MOST_JITTER = 0.5
"""Above it a good part of Normal(1, jitter) would be below 0, and cut off there."""

GPUS = 600_000
"""All GPUs of the paper's system, whatever the number of groups."""


@dataclass(frozen=True)
class Setting:
    """One training run. The defaults are the paper's (section "Reported results"), or are marked as assumed.

    Attributes:
        groups: N.
        gpus_per_group: M; only for costs in GPU hours, a failure is of one group whatever its size.
        steps: steps to commit.
        compute: one layer of the stack, a whole shard.
        reduction: one all-reduce.
        shrink, controller: per regroup.
        save: Ts, everybody waits. restart: Tr, of the whole job.
        between_failures: m, mean time between failures while all N groups live.
        process, shape: distribution of the gaps; ``shape`` is Weibull's.
        trace: for process "trace": (time, group or -1 for a random one), ascending.
        rate_falls: whether the rate is proportional to the live groups, as when each GPU fails on its own.
        jitter: every duration is multiplied by a draw from Normal(1, jitter).
        replacement: from a loss to the replacement's hello; None: only a restart brings groups back.
        join: what admitting replacements at a step boundary costs everybody. Assumed.
        fetch: what it costs to fetch a shard that has no host left. Assumed; used only by a strategy that fetches.
        announced: share of the failures that a drain notice announces at least one step before, 0 to 1.
        levels: domains that fail as one; the rest of the failures are of single groups.
        scattered: whether groups lie in the domains in random order, as a scheduler that knows no topology puts them.
        notice: when a failure is noticed: at the next all-reduce (the paper's), or at once.
        period: Tc, time between the starts of two saves; None: Tc* of the strategy's expected time to a wipe-out.
    """

    groups: int
    gpus_per_group: int = 1
    steps: int = 10_000
    compute: float = 64.0
    reduction: float = 2.0
    shrink: float = 0.1
    controller: float = 0.1
    save: float = 60.0
    restart: float = 3600.0
    between_failures: float = 300.0
    process: Process = "weibull"
    shape: float = 0.78
    trace: tuple[tuple[float, int], ...] = ()
    rate_falls: bool = True
    jitter: float = 0.05
    replacement: float | None = None
    join: float = 5.0
    fetch: float = 30.0
    announced: float = 0.0
    levels: tuple[Level, ...] = ()
    scattered: bool = False
    notice: Notice = "reduction"
    period: float | None = None

    def __post_init__(self) -> None:
        for name in ("groups", "gpus_per_group", "steps", "between_failures"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed is above 0")
        for name in ("compute", "reduction", "shrink", "controller", "save", "restart", "join", "fetch"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed is 0 seconds or more, and not infinite")
        for name in ("replacement", "period"):
            if getattr(self, name) is not None and not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed is 0 seconds or more")
        for name, (least, most) in {"shape": SHAPES, "jitter": (0, MOST_JITTER), "announced": (0, 1)}.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed is {least} to {most}")
        if not self.compute + self.reduction > 0:
            raise ValueError("compute and reduction are both 0; one of them has to take time")
        self._check_failures()

    def _check_failures(self) -> None:
        for level in self.levels:
            if level.size < 1 or not 0 <= level.share <= 1:
                raise ValueError(f"the level {level.name} has size {level.size} and share {level.share}; allowed is"
                                 " a size of 1 or more and a share of 0 to 1")  # fmt: skip
        if sum(level.share for level in self.levels) > 1 + 1e-9:
            raise ValueError(
                f"levels have shares that sum to {sum(level.share for level in self.levels)}; allowed is 1"
            )
        times = [time for time, _ in self.trace]
        if times != sorted(times) or not all(0 <= time < math.inf for time in times):
            raise ValueError("trace is not ascending from 0 up")
        for _, group in self.trace:
            if not -1 <= group < self.groups:
                raise ValueError(f"trace names group {group}; allowed is 0 to {self.groups - 1}, or -1 for any")

    @property
    def ideal(self) -> float:
        """T0: the time of all steps with neither failures nor redundancy, nor saves."""
        return self.steps * (self.compute + self.reduction)


def paper_setting(groups: int, **changes: object) -> Setting:
    """The paper's system cut into ``groups`` groups.

    The all-reduce "2 to 10 s growing with N" is taken as linear from 2 s at N = 200 to 10 s at N = 1,000. Assumed.
    """
    fields: dict[str, object] = {
        "gpus_per_group": GPUS // groups,
        "reduction": min(10.0, max(2.0, 2.0 + 8.0 * (groups - 200) / 800)),
    }
    return Setting(groups, **(fields | changes))  # type: ignore[arg-type]
