"""Spares in the simulation: they are of use, whatever happens to them and to the coordinator meanwhile."""

from __future__ import annotations

import pytest

from tests.chaos.faults import Fault, Mishaps
from tests.chaos.world import Shape, World

SHAPE = Shape(groups=4, redundancy=3, micro_batches=2, steps=45, compute=0.02, spares=1)
SPARE = SHAPE.groups
SEEDS = range(3)


def at(kind: str, moment: float, group: int, point: str | None = None, seconds: float = 0.3) -> Fault:
    """A mishap."""
    return Fault(kind, moment, point, group, (group + 1) % SHAPE.groups, seconds)


SCENES: dict[str, tuple[tuple[Fault, ...], int]] = {
    "a loss": ((at("kill worker", 0.5, 2),), 1),
    "two losses, one after the other": ((at("kill worker", 0.5, 2), at("kill agent", 1.7, 0)), 2),
    "what was a spare is lost in its turn": ((at("kill worker", 0.5, 2), at("kill worker", 1.7, 2)), 2),
    "it dies while it waits": ((at("kill worker", 0.4, SPARE), at("kill worker", 1.6, 1)), 1),
    "it dies while it loads": ((at("kill worker", 0.5, 2), at("kill worker", 0.5, 2, "loading the state")), 1),
    "the coordinator dies when it has written that it gets a place": (
        (at("kill worker", 0.5, 2), at("kill coordinator at record", 0.5001, 0, seconds=0.02)),
        1,
    ),
    "the coordinator dies when it has written that it is admitted": (
        (at("kill worker", 0.5, 2), at("kill coordinator at record", 0.55, 0, seconds=0.02)),
        1,
    ),
    "the coordinator is away before": ((at("kill coordinator", 0.5, 0), at("kill worker", 1.2, 2)), 1),
    "its host vanishes": ((at("vanish", 0.4, SPARE), at("kill worker", 0.5, 2)), 0),
    "all connections to the coordinator are cut": ((at("cut all control", 0.5, 0), at("kill worker", 1.2, 2)), 1),
}
"""Mishaps, and how many places spares take at least."""


@pytest.mark.parametrize("name", SCENES)
def test_a_spare_takes_the_place(name: str) -> None:
    """No rule is broken, the job completes with all groups, and the processes that waited are among them."""
    faults, least = SCENES[name]
    for seed in SEEDS:
        world = World(seed, SHAPE)
        Mishaps(world, faults)
        verdict = world.run()
        assert verdict.violation is None, f"seed {seed}: {verdict.violation}"
        assert verdict.exit_code == 0
        plan = world.rules.plans[max(world.rules.plans)]
        assert plan.groups == (0, 1, 2, 3), f"seed {seed}: {plan.reason}"
        taken = {m.uid for each in world.rules.plans.values() for m in each.members if m.uid.startswith(f"{SPARE}.")}
        assert len(taken) >= least, f"seed {seed}: {taken}"
