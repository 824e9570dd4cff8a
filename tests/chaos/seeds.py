"""Runs by seed: a seed decides the job, what goes wrong, and every order and delay."""

from __future__ import annotations

import random

from tests.chaos.faults import Fault, Mishaps, draw
from tests.chaos.world import Shape, Verdict, World


def shape_of(rng: random.Random) -> Shape:
    """A small job."""
    groups = rng.choice((3, 3, 4, 4, 5))
    return Shape(
        groups=groups,
        redundancy=rng.randint(2, min(3, groups)),
        micro_batches=rng.randint(1, 3),
        steps=rng.randint(4, 9),
        compute=rng.choice((0.005, 0.02, 0.05)),
        replace=rng.random() < 0.8,
    )


def play(
    seed: int, *, trace: bool = False, shape: Shape | None = None, faults: tuple[Fault, ...] | None = None
) -> tuple[Verdict, list[str]]:
    """Run a seed, as it is or with a job or mishaps of one's own; the trace is empty unless asked for."""
    rng = random.Random(f"spare {seed}")
    drawn = shape_of(rng)
    shape = shape or drawn
    world = World(seed, shape, trace)
    world.core.note("job", str(shape))
    world.meshes.overflows = rng.choice((0.0, 0.0, 0.15))
    world.site.refuse_starts = rng.choice((0.0, 0.0, 0.0, 0.2))
    Mishaps(world, draw(rng, shape) if faults is None else faults)
    verdict = world.run()
    return verdict, world.core.log or []
