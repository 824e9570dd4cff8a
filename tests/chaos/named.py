"""Runs that have found something, kept as they were: seeds mean other runs once other mishaps are drawn.

Each with what it found, under its own seed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.chaos.faults import Fault
from tests.chaos.world import Shape


@dataclass(frozen=True)
class Case:
    """A run: the seed decides delays and orders."""

    seed: int
    shape: Shape
    faults: tuple[Fault, ...]
    broken: str | None = None
    """The rule that, left out, it shows (`tests.chaos.broken`)."""


NAMED: dict[str, Case] = {
    "all members died while there was no coordinator, and a replacement waited to be admitted for ever": Case(
        20459,
        Shape(groups=4, redundancy=3, micro_batches=1, steps=9, compute=0.02),
        (
            Fault("kill agent", 0.1159, "committed", 3, 2, 0.0273),
            Fault("kill coordinator at record", 0.1481, None, 0, 2, 16.6602),
            Fault("vanish", 0.2937, None, 2, 3, 4.0573),
            Fault("kill agent", 0.3018, None, 1, 3, 0.0116),
            Fault("vanish", 2.7857, None, 0, 1, 0.0250),
        ),
        "others unheard",
    ),
    "whoever was left was asked to leave: a halt, and no fault": Case(
        22392,
        Shape(groups=3, redundancy=3, micro_batches=3, steps=9, compute=0.02, replace=False),
        (
            Fault("vanish", 0.1571, None, 0, 2, 0.0255),
            Fault("delete pod", 0.3998, None, 2, 0, 1.6684),
            Fault("delete pod", 0.4604, "between", 1, 2, 7.8581),
        ),
    ),
    "a group that was admitted at the last commit came out of its loop with what its script began with": Case(
        25,
        Shape(groups=3, redundancy=2, micro_batches=2, steps=4, compute=0.05),
        (
            Fault("reset control", 0.0919, None, 0, 2, 3.7940),
            Fault("kill coordinator", 0.0919, None, 0, 1, 6.7064),
            Fault("cut peers", 0.1526, None, 2, 0, 0.1762),
            Fault("freeze host", 0.1700, "committed", 0, 2, 0.2644),
            Fault("kill agent", 0.1703, None, 1, 2, 0.0182),
        ),
        "nothing to save",
    ),
    "a wipe-out led to a restart, and in the same breath a group was admitted to the plan that was no more": Case(
        40242,
        Shape(groups=3, redundancy=2, micro_batches=2, steps=7, compute=0.02, restart=True, period=0.3),
        (
            Fault("freeze worker", 0.3411, None, 2, 1, 6.4769),
            Fault("freeze host", 0.5125, "committed", 0, 2, 7.4480),
        ),
    ),
    "the job halted while a lost group was due to be started again, and the coordinator spun": Case(
        40198,
        Shape(groups=4, redundancy=2, micro_batches=2, steps=4, compute=0.05, restart=True, overflows=0.15),
        (
            Fault("cut all control", 0.2144, None, 0, 3, 1.4117),
            Fault("kill coordinator", 0.4752, None, 0, 3, 0.0191),
            Fault("glitch", 0.4851, "committed", 0, 1, 0.0234),
            Fault("evict", 3.1722, "committed", 1, 2, 0.6044),
            Fault("kill worker", 0.2159, "committed", 2, 1, 7.5337),
            Fault("kill coordinator at record", 0.1683, None, 0, 3, 0.8573),
            Fault("evict", 0.6344, None, 2, 1, 0.0655),
            Fault("freeze worker", 0.2079, None, 2, 1, 11.6081),
        ),
    ),
    "a group that was lost before anybody could be met was not started again: its agent was there still": Case(
        41528,
        Shape(groups=3, redundancy=2, micro_batches=1, steps=6, compute=0.005, restart=True, refuse_starts=0.2),
        (
            Fault("evict", 0.1013, None, 1, 0, 3.1178),
            Fault("stall", 0.1068, "the reduction", 0, 1, 1.8065),
            Fault("kill worker", 1.5456, "between", 0, 2, 2.0438),
            Fault("kill agent", 1.5476, None, 2, 1, 3.5592),
            Fault("kill coordinator at record", 0.1194, None, 0, 1, 6.6979),
            Fault("kill coordinator", 0.1278, None, 1, 2, 1.6914),
        ),
    ),
    "all had halted when a plan was made for a loss, and then one for nobody": Case(
        60596,
        Shape(groups=3, redundancy=3, micro_batches=2, steps=7, compute=0.02, restart=True),
        (
            Fault("glitch", 0.3601, "the exchange", 0, 2, 0.4391),
            Fault("evict", 0.4101, "committed", 0, 1, 0.4482),
            Fault("evict", 0.4101, "the commit barrier", 2, 0, 0.0033),
            Fault("delete pod", 0.4101, "reduced", 1, 0, 0.4095),
        ),
    ),
    "all members died while there was no coordinator, and only a spare was left": Case(
        5156,
        Shape(
            groups=3,
            redundancy=3,
            micro_batches=1,
            steps=7,
            compute=0.005,
            spares=1,
            restart=True,
            period=0.05,
            overflows=0.15,
        ),
        (
            Fault("kill agent", 0.1498, None, 0, 2, 0.0161),
            Fault("kill agent", 0.5828, None, 2, 1, 0.0127),
            Fault("kill coordinator", 0.1227, None, 1, 2, 1.6072),
            Fault("kill coordinator", 0.1341, None, 3, 0, 0.9174),
            Fault("cut peers", 0.1526, "committed", 1, 2, 5.6051),
            Fault("kill agent", 0.3666, None, 1, 2, 4.1108),
        ),
    ),
    "a joiner that could not reach the leader ended the job": Case(
        1,
        Shape(groups=3, redundancy=3, micro_batches=2, steps=5, compute=1.5),
        (
            Fault("kill worker", 0.1, "computing", 2, 0, 0.1),
            Fault("cut joiner", 0.15, "reaching the leader's store", 2, 0, 40.0),
        ),
        "joiner ends all",
    ),
    "a last heartbeat from a reduction that was over counted for the next one, and the job failed": Case(
        1002790,
        Shape(groups=5, redundancy=3, micro_batches=3, steps=5, compute=0.05, period=0.3),
        (
            Fault("kill worker", 0.4639, None, 3, 4, 7.1782),
            Fault("kill coordinator", 0.5115, "reaching the leader's store", 1, 2, 0.2573),
            Fault("kill coordinator", 1.2565, None, 0, 4, 0.0256),
            Fault("kill worker", 1.2582, "committed", 4, 3, 7.9842),
        ),
    ),
    "a host vanished before all began again, and the job waited for it until startTimeout": Case(
        1002866,
        Shape(groups=3, redundancy=2, micro_batches=2, steps=13, compute=0.05, spares=2, restart=True),
        (
            Fault("kill coordinator at record", 1.3379, "the commit barrier", 0, 1, 14.8407),
            Fault("vanish", 1.3161, None, 2, 1, 0.2591),
            Fault("kill worker", 1.3349, None, 0, 1, 15.9249),
            Fault("cut joiner", 1.3532, None, 1, 2, 6.3693),
            Fault("kill worker", 1.4408, None, 1, 2, 7.7825),
            Fault("kill coordinator at record", 1.4425, "reduced", 2, 0, 11.0859),
            Fault("kill coordinator at record", 1.4425, None, 2, 0, 0.0257),
            Fault("delete pod", 1.4854, None, 1, 2, 6.0444),
        ),
    ),
}
