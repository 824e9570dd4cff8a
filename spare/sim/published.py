"""What the paper reports, and how it is reproduced: the cases of its table, figures and of the sweeps.

Source of the numbers: paper, section "Reported results".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from spare.planner import masked_mean, mean_depth, place
from spare.sim.campaign import Case, Outcome, Plan, Progress, repeat
from spare.sim.masking import depths_by_arcs, depths_micro, depths_whole, masked, mean_bound
from spare.sim.result import Estimate, estimate
from spare.sim.setting import paper_setting


class Published(NamedTuple):
    """One cell of the paper's table: TTT / T0, the availability, and the r at which."""

    ratio: float
    availability: float
    redundancy: int


SIZES: Final = (200, 600, 1000)
SPARE: Final = {
    200: Published(2.92, 0.8700, 9),
    600: Published(2.49, 0.9390, 8),
    1000: Published(2.34, 0.9654, 9),
}
REPLICATION: Final = {
    200: Published(6.07, 0.6174, 3),
    600: Published(4.27, 0.7989, 3),
    1000: Published(3.88, 0.8441, 3),
}
GRID: Final = {200: (7, 8, 9, 10), 600: (7, 8, 9), 1000: (8, 9, 10)}
"""The r that are tried for SPARe: around the paper's best."""

MICRO_BATCHES: Final = 32
"""Of our own scheduler, where it is compared."""

MU_UP_TO: Final = {200: 12, 600: 20, 1000: 20}
"""The largest r for which mu is compared: that of the paper's figure for N = 600."""


class Reading(NamedTuple):
    """What the paper leaves open, read in one way: options of `Replicated`, and fields of the setting."""

    options: dict[str, Any]
    changes: dict[str, Any]


CONSTANT: Final[dict[str, Any]] = {"rate_falls": False}
READINGS: Final = {
    "nothing again": Reading({"redo": 0.0}, {}),
    "one layer again": Reading({"redo": 1.0}, {}),
    "one layer for each": Reading({"redo": 1.0, "each": True}, {}),
    "one layer for each, constant rate": Reading({"redo": 1.0, "each": True}, CONSTANT),
}
"""What a failure costs replication is not given: no work at all, one layer by all for those that a step notices
together, or one for each of them. Nor is, beyond doubt, whether failures become rarer as groups go."""


def table_cases(steps: int, runs: int) -> list[Case]:
    """Every strategy at every r that is tried. SPARe as in the paper: whole shards, consecutive placement."""
    sized = {n: paper_setting(n, steps=steps) for n in SIZES}
    cases = [Case("SPARe", sized[n], Plan("whole", r), runs) for n in SIZES for r in GRID[n]]
    cases += [
        Case("SPARe, constant rate", replace(sized[n], **CONSTANT), Plan("whole", SPARE[n].redundancy), runs)
        for n in SIZES
    ]
    cases += [
        Case(f"replication, {label}", replace(sized[n], **changes), Plan("replication", r, options), runs)
        for n in SIZES
        for r in (2, 3, 4)
        for label, (options, changes) in READINGS.items()
    ]
    return cases


def table(steps: int, runs: int, seed: int, workers: int, progress: Progress | None) -> list[Outcome]:
    """The cases of the paper's table, `runs` times each."""
    return repeat(table_cases(steps, runs), seed, workers, progress)


def sweep(steps: int, runs: int, seed: int, workers: int, progress: Progress | None) -> list[Outcome]:
    """N = 200, where failures cost most: one assumption changed at a time.

    For replication (r = 3) and SPARe (r = 9).
    """
    base = paper_setting(200, steps=steps)
    changes: dict[str, dict[str, Any]] = {
        "as assumed": {},
        "exponential failures": {"process": "exponential"},
        "rate does not fall": {"rate_falls": False},
        "all-reduce 6 s": {"reduction": 6.0},
        "all-reduce 10 s": {"reduction": 10.0},
        "no jitter": {"jitter": 0.0},
        "saves at every 10 minutes": {"period": 600.0},
        "saves at every 60 minutes": {"period": 3600.0},
    }
    cases = []
    for label, change in changes.items():
        setting = replace(base, **change)
        cases.append(Case(label, setting, Plan("whole", 9), runs))
        cases.append(Case(label, setting, Plan("replication", 3, {"redo": 1.0}), runs))
    cases.append(Case("Golomb placement", base, Plan("whole", 9, {"placement": "Golomb"}), runs))
    replicated: dict[str, dict[str, Any]] = {
        "a failure costs nothing": {"redo": 0.0},
        "a failure costs the whole step": {"redo": 3.0},
        "a failure costs a layer, each its own": {"redo": 1.0, "each": True},
        "copies in bundles": {"redo": 1.0, "layout": "bundles"},
    }
    cases += [Case(label, base, Plan("replication", 3, options), runs) for label, options in replicated.items()]
    constant = replace(base, rate_falls=False)
    both = {"redo": 1.0, "each": True}
    cases.append(Case("each its own, and rate does not fall", constant, Plan("replication", 3, both), runs))
    return repeat(cases, seed, workers, progress)


def mu_table(trials: int, seed: int, tick: Callable[[], None]) -> list[dict[str, Any]]:
    """mu against Monte-Carlo, for the independent and the consecutive placement, and Sbar's lower bound."""
    rows = []
    for n, r in ((200, 5), (200, 9), (200, 12), (600, 8), (600, 20), (1000, 9)):
        row: dict[str, Any] = {"groups": n, "redundancy": r, "mu": masked_mean(n, r), "sbar": mean_depth(n, r)}
        for strategy in ("Golomb", "Consecutive"):
            counts = masked(place(n, r, strategy), trials, seed)
            row |= {f"mu_{strategy}": spread(estimate(counts)), f"bound_{strategy}": mean_bound(n, counts)}
        rows.append(row)
        tick()
    return rows


def mu_errors(trials: int, seed: int, tick: Callable[[], None]) -> list[dict[str, Any]]:
    """How far mu is off the Monte-Carlo of the independent placement, over every r from 2 on, for each N.

    Against the failures up to the wipe-out with the last one ("with") and without it ("masked"): the formula is an
    integral in the place of a sum and lies between the two. It is the limit of many groups: few groups and hosts are
    off most.
    """
    rows = []
    for n, most in MU_UP_TO.items():
        counts = {r: estimate(masked(place(n, r, "Golomb"), trials, seed)).mean for r in range(2, most + 1)}
        row: dict[str, Any] = {"groups": n, "most": most}
        for name, less in (("with", 0), ("masked", 1)):
            off = {r: masked_mean(n, r) / (count - less) - 1 for r, count in counts.items()}
            worst = max(off, key=lambda r: abs(off[r]))
            mean = sum(map(abs, off.values())) / len(off)
            row[name] = {"mean": mean, "worst": worst, "worst_off": off[worst]}
        rows.append(row)
        tick()
    return rows


def depth_table(trials: int, seed: int, tick: Callable[[], None]) -> list[dict[str, Any]]:
    """Mean S of the paper's scheduler to the wipe-out against Sbar's lower bound.

    For consecutive stacks beside the least S that any scheduler could reach in the same trials ("arcs"). And with
    micro-batches, for the independent placement.
    """
    rows = []
    for n, r in ((200, 5), (200, 7), (200, 9), (200, 11), (600, 8), (1000, 9)):
        row: dict[str, Any] = {"groups": n, "redundancy": r, "sbar": mean_depth(n, r)}
        for strategy in ("Golomb", "Consecutive"):
            row[strategy] = spread(estimate(depths_whole(place(n, r, strategy), trials, seed)))
        row["sbar_micro"] = mean_depth(n, r, MICRO_BATCHES)
        row["micro"] = spread(estimate(depths_micro(place(n, r, "Golomb"), MICRO_BATCHES, trials, seed)))
        row["arcs"] = spread(estimate(depths_by_arcs(n, r, trials, seed)))
        rows.append(row)
        tick()
    return rows


def spread(value: Estimate) -> dict[str, float]:
    """An estimate as JSON."""
    return {"mean": value.mean, "half": value.half, "runs": value.runs}


def row_of(outcome: Outcome) -> dict[str, Any]:
    """A line of a table as JSON."""
    case = outcome.case
    return {
        "label": case.label,
        "kind": case.plan.kind,
        "groups": case.setting.groups,
        "redundancy": case.plan.redundancy,
        "options": case.plan.options,
        "steps": case.setting.steps,
        "ratio": spread(outcome.ratio),
        "availability": spread(outcome.availability),
        "depth": spread(outcome.depth),
    }
