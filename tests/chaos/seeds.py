"""Runs by seed: a seed decides the job, what goes wrong, and every order and delay."""

from __future__ import annotations

import random
from dataclasses import replace

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
        compute=rng.choice((0.005, 0.02, 0.05, 0.2)),
        replace=rng.random() < 0.8,
        restart=rng.random() < 0.3,
        period=rng.choice((None, None, 0.05, 0.3)),
        overflows=rng.choice((0.0, 0.0, 0.15)),
        refuse_starts=rng.choice((0.0, 0.0, 0.0, 0.2)),
    )


def _at_spares(rng: random.Random, shape: Shape, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """The same mishaps, some of them while a spare waits, in place of a group."""
    if not shape.spares:
        return faults
    return tuple(
        replace(fault, group=shape.groups + rng.randrange(shape.spares), point=None) if rng.random() < 0.2 else fault
        for fault in faults
    )


def play(
    seed: int, *, trace: bool = False, shape: Shape | None = None, faults: tuple[Fault, ...] | None = None
) -> tuple[Verdict, list[str]]:
    """Run a seed, as it is or with a job or mishaps of one's own; the trace is empty unless asked for."""
    rng = random.Random(f"spare {seed}")
    beside = random.Random(f"spares {seed}")
    drawn = shape_of(rng)
    spares = beside.choice((0, 0, 0, 1, 2))
    more = beside.randrange(12) if spares else 0  # a job that lasts until a spare is ready, and joins
    shape = shape or replace(drawn, spares=spares, steps=drawn.steps + more)
    world = World(seed, shape, trace)
    world.core.note("job", str(shape))
    Mishaps(world, _at_spares(beside, shape, draw(rng, shape)) if faults is None else faults)
    verdict = world.run()
    return verdict, world.core.log or []
