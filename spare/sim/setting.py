"""What is simulated: sizes, durations and failures of one training run. All durations are in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spare.sim.failures import Level

Process = Literal["exponential", "weibull", "trace"]
Notice = Literal["reduction", "at once"]

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
        positive = ("groups", "gpus_per_group", "steps", "between_failures", "shape")
        durations = ("compute", "reduction", "shrink", "controller", "save", "restart", "jitter", "join", "fetch")
        for name in positive:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed is above 0")
        for name in (*durations, *(name for name in ("replacement", "period") if getattr(self, name) is not None)):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed is 0 or more")
        if not 0 <= self.announced <= 1:
            raise ValueError(f"announced is {self.announced}; allowed is 0 to 1")
        if sum(level.share for level in self.levels) > 1 or any(level.share < 0 for level in self.levels):
            raise ValueError("levels have shares that are below 0 or sum to more than 1")
        if list(self.trace) != sorted(self.trace) or any(not -1 <= g < self.groups for _, g in self.trace):
            raise ValueError(f"trace is not ascending, or names a group outside 0 to {self.groups - 1}")

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
