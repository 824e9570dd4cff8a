"""The paper's setting with our departures from the paper switched on, one after the other; and racks that fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from spare.sim.campaign import Case, Outcome, Plan, Progress, repeat
from spare.sim.failures import Level
from spare.sim.published import SIZES, SPARE
from spare.sim.setting import paper_setting

GOALS: Final = {
    "without replacement": {200: 1.6, 600: 1.4, 1000: 1.3},
    "with replacement": {200: 1.15, 600: 1.15, 1000: 1.15},
}
TEN_MINUTES: Final = 600.0
CURVE: Final = {200: (3, 4, 6, 7), 600: (4,), 1000: (4, 6)}
"""The r that are tried without replacement, beside 5."""

MICRO: Final = "micro-batches, the least r"
REJOIN: Final = "+ replacement after 10 minutes"


def ladder(steps: int, runs: int, seed: int, workers: int, progress: Progress | None) -> list[Outcome]:
    """From the paper (whose runs are the table's) to ours, step by step, for each N."""
    cases = []
    for n in SIZES:
        setting, r = paper_setting(n, steps=steps), SPARE[n].redundancy
        rejoin = replace(setting, replacement=TEN_MINUTES)
        cases += [
            Case("+ Golomb placement", setting, Plan("whole", r, {"placement": "Golomb"}), 1),
            Case("+ micro-batches", setting, Plan("micro", r), 1),
            Case(MICRO, setting, Plan("micro", 5), runs),
            *(Case(MICRO, setting, Plan("micro", other), runs) for other in CURVE[n]),
            Case(REJOIN, rejoin, Plan("micro", 5), runs),
            Case("+ drain notices for half of the losses", replace(rejoin, announced=0.5), Plan("micro", 5), 1),
            Case("+ fetch instead of restart, r = 3", rejoin, Plan("micro", 3, {"fetch": True}), 1),
            Case("the same r = 3 without fetch", rejoin, Plan("micro", 3), 1),
        ]
    return repeat(cases, seed, workers, progress)


def racks(steps: int, runs: int, seed: int, workers: int, progress: Progress | None) -> list[Outcome]:
    """N = 200 in racks of 20; every twentieth failure takes a rack, r = 5, replacement after 10 minutes."""
    ordered = replace(paper_setting(200, steps=steps, replacement=TEN_MINUTES), levels=(Level("rack", 20, 0.05),))
    mixed = replace(ordered, scattered=True)
    cases = [
        Case(
            "groups in order of racks, consecutive stacks",
            ordered,
            Plan("micro", 5, {"placement": "Consecutive"}),
            runs,
        ),
        Case("groups anywhere, placement blind to racks", mixed, Plan("micro", 5), runs),
        Case("groups anywhere, placement by topology", mixed, Plan("micro", 5, {"aware": True}), runs),
    ]
    return repeat(cases, seed, workers, progress)
