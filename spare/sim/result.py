"""What came of runs, and what can be said of the mean of several."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spare.sim.account import USEFUL

# Two-sided 95 % points of Student's t for 1 to 30 degrees of freedom; beyond, the normal's is within 2 %.
_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True)
class Result:
    """One run.

    Attributes:
        strategy, groups, seed: what was simulated.
        complete: whether the last step was reached before the run was given up.
        ideal: T0 of the steps that were committed, seconds.
        total: TTT, seconds.
        seconds: where they went, by kind (``account.KINDS``); they sum to ``total``.
        counts: failures, lost groups, wipe-outs, saves, joins, fetches.
        mean_depth: mean layers of a step, without patch.
        mean_patch: mean layers of patch per step.
        mean_live: mean live groups at the end of a step.
    """

    strategy: str
    groups: int
    seed: int
    complete: bool
    ideal: float
    total: float
    seconds: Mapping[str, float]
    counts: Mapping[str, int]
    mean_depth: float
    mean_patch: float
    mean_live: float

    @property
    def ratio(self) -> float:
        """TTT / T0; infinite when no step was committed."""
        return self.total / self.ideal if self.ideal else math.inf

    @property
    def availability(self) -> float:
        """Share of the time spent on steps that count: not on restarts, saves, regroups or work that was lost."""
        return sum(self.seconds[kind] for kind in USEFUL) / self.total if self.total else 1.0

    def to_json(self) -> dict[str, Any]:
        """Plain values, flat, so that a row of a CSV holds one run."""
        return {
            "strategy": self.strategy,
            "groups": self.groups,
            "seed": self.seed,
            "complete": self.complete,
            "ratio": self.ratio,
            "availability": self.availability,
            "total": self.total,
            "mean_depth": self.mean_depth,
            "mean_patch": self.mean_patch,
            "mean_live": self.mean_live,
            **{f"seconds_{kind}": value for kind, value in self.seconds.items()},
            **{kind.replace(" ", "_").replace("-", "_"): value for kind, value in self.counts.items()},
        }


@dataclass(frozen=True)
class Estimate:
    """A mean over runs and the half width of its 95 % confidence interval (infinite for one run)."""

    mean: float
    half: float
    runs: int


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and Student's 95 % interval. Raises ValueError for no values."""
    if not values:
        raise ValueError("no values: nothing can be said of their mean")
    mean, runs = statistics.fmean(values), len(values)
    if runs == 1:
        return Estimate(mean, math.inf, 1)
    t = _T95[runs - 2] if runs - 2 < len(_T95) else 1.96
    return Estimate(mean, t * statistics.stdev(values) / math.sqrt(runs), runs)
