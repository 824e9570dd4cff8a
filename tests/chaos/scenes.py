"""Mishaps chosen for one rule each: what it takes two or three failures in one step to see."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.chaos.faults import Fault
from tests.chaos.world import Shape

SHAPE = Shape(groups=3, redundancy=3, micro_batches=2, steps=30, compute=0.02)


def _at(kind: str, at: float, point: str, group: int, seconds: float = 0.05) -> Fault:
    return Fault(kind, at, point, group, (group + 1) % SHAPE.groups, seconds)


def _dies_with_the_commit(rng: random.Random) -> tuple[Fault, ...]:
    """The first to commit dies: the others hold the step reduced, and fail in the barrier or pass it."""
    return (_at("kill worker", 0.08 + rng.random() * 0.1, "committed", rng.randrange(3)),)


def _fails_while_a_joiner_loads(rng: random.Random) -> tuple[Fault, ...]:
    """The survivors hold the step reduced while a joiner still loads, and commit it in the regroup."""
    group = rng.randrange(3)
    return (
        _at("kill worker", 0.06, "computing", group),
        _at("kill worker", 0.6 + rng.random() * 0.2, "the commit barrier", (group + 1) % 3),
    )


def _fails_twice(rng: random.Random) -> tuple[Fault, ...]:
    """A barrier fails, and then the reduction of the same step."""
    first, second, third = rng.sample(range(3), 3)
    return (
        _at("glitch", 0.08 + rng.random() * 0.1, "the commit barrier", first),
        _at("kill worker", 0.25, "the reduction", second),
        _at("kill worker", 0.25, "the reduction", third),
    )


def fails_beside_a_boundary_plan(rng: random.Random) -> tuple[Fault, ...]:
    """A group leaves at the next commit, and the step before it fails twice, though nobody dies."""
    group, at = rng.randrange(3), 0.08 + rng.random() * 0.3
    return (
        Fault("evict", at, None, group, (group + 1) % 3, 5.0),
        _at("glitch", at, "the reduction", (group + 1) % 3),
        _at("glitch", at + 0.01, "the commit barrier", (group + 2) % 3),
    )


def cannot_wait(rng: random.Random) -> tuple[Fault, ...]:
    """A group must be gone before the step ends, and hands on what it holds of it; perhaps another dies meanwhile."""
    group = rng.randrange(4)
    leaves = Fault("evict", 0.1 + rng.random() * 0.3, None, group, (group + 1) % 4, 0.5 + rng.random() * 0.2)
    dies = Fault("kill worker", leaves.at + rng.random() * 0.5, None, (group + 1) % 4, group, 1.0)
    return (leaves, dies) if rng.random() < 0.3 else (leaves,)


def cannot_wait_for_another(rng: random.Random) -> tuple[Fault, ...]:
    """A group waits in the reduction or the barrier for one that stands still, and must be gone before that goes on, or
    in that very moment; perhaps a collective fails as well, or another group dies."""
    group, at = rng.randrange(4), 0.1 + rng.random() * 0.3
    slow, third = (group + 1) % 4, (group + 2) % 4
    if rng.random() < 0.5:
        grace, point = 0.02 + rng.random() * 0.04, rng.choice(("the reduction", "the commit barrier"))
        stands = grace * 2 / 3 + rng.random() * 0.01 - 0.005
        leaves = Fault("evict", at, "the reduction", group, slow, grace)
        return leaves, Fault("freeze worker", at, point, slow, group, stands)
    leaves = Fault("evict", 0.5 + rng.random() * 0.3, None, group, slow, 1.2 + rng.random() * 0.6)
    hands_on = leaves.at + leaves.seconds * 2 / 3
    point = rng.choice(("computing", "the reduction", "the commit barrier"))
    freeze = Fault("freeze worker", at, point, slow, group, hands_on + 1.0 - at)
    kind = rng.choice(("glitch", "kill worker"))
    more = Fault(kind, hands_on + rng.random() * 0.1 - 0.05, None, third, group, 1.0)
    return (leaves, freeze, more) if rng.random() < 0.5 else (leaves, freeze)


def _offers_and_commits(rng: random.Random) -> tuple[Fault, ...]:
    """Who may become the heir stands still in the reduction, while a group that waits in the barrier must be gone; then
    the barrier fails at the former alone: the leaver commits a step that its heir has not committed yet."""
    at, grace = 0.1 + rng.random() * 0.3, 0.02 + rng.random() * 0.02
    heir, leaver = rng.choice(((1, 2), (1, 2), (2, 1), (1, 0), (1, 3)))
    return (
        Fault("evict", at, "the reduction", leaver, heir, grace),
        Fault("freeze worker", at, "the reduction", heir, leaver, grace * 2 / 3 + rng.random() * 0.006),
        Fault("glitch", at, "the commit barrier", heir, leaver, 1.0),
    )


LONG_STEPS = Shape(groups=4, redundancy=3, micro_batches=16, steps=2, compute=0.05)

SCENES: dict[str, Callable[[random.Random], tuple[Fault, ...]]] = {
    "never all": _dies_with_the_commit,
    "given while it changes": _fails_while_a_joiner_loads,
    "given too early": _fails_while_a_joiner_loads,
    "old sum counts": _fails_twice,
    "handed on while it changes": _offers_and_commits,
}
SHAPES: dict[str, Shape] = {"handed on while it changes": LONG_STEPS}
"""Of scenes that need another job than SHAPE."""
