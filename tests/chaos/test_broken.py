"""The simulation has teeth: whichever rule is left out, a seed shows it."""

from __future__ import annotations

import gc
import random

import pytest

from tests.chaos.broken import BROKEN
from tests.chaos.scenes import SCENES, SHAPE, SHAPES, fails_beside_a_boundary_plan
from tests.chaos.seeds import play
from tests.chaos.world import RENDEZVOUS

WITHIN = {
    "no barrier": 60,
    "held is dropped": 60,
    "state kept": 60,
    "loaded later": 60,
    "told before written": 60,
    "silence unnoticed": 60,
    "not told again": 120,
}
"""Seeds in which each is found, at most. The others take more than the fast tests have time for."""
MOST = 1000
COSTS_TIME = "failure unanswered"
"""Members fail again when a deadline has passed, and that is answered."""


def found(name: str, within: int) -> str | None:
    """What the first seed that fails says."""
    with BROKEN[name]():
        for seed in range(within):
            verdict, _ = play(seed)
            if verdict.violation is not None:
                return verdict.violation
            if seed % 50 == 0:
                gc.collect()
    return None


@pytest.mark.parametrize("name", WITHIN)
def test_a_rule_left_out_is_found(name: str) -> None:
    """Within a few seeds."""
    assert found(name, WITHIN[name]) is not None


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [name for name in BROKEN if name not in (*WITHIN, *SCENES, COSTS_TIME)])
def test_a_rule_left_out_is_found_in_time(name: str) -> None:
    """Within more."""
    assert found(name, MOST) is not None


@pytest.mark.parametrize("name", SCENES)
def test_a_rule_left_out_is_found_in_its_scene(name: str) -> None:
    """What takes two or three failures in one step; with the rule in force the same scenes break nothing."""
    seeds = range(40)

    assert all(scene(name, seed) is None for seed in seeds[:10])
    with BROKEN[name]():
        assert any(scene(name, seed) is not None for seed in seeds)


def scene(name: str, seed: int) -> str | None:
    """What a scene broke."""
    verdict, _ = play(seed, shape=SHAPES.get(name, SHAPE), faults=SCENES[name](random.Random(seed)))
    return verdict.violation


def test_a_failure_that_is_not_answered_costs_a_deadline() -> None:
    """Whoever failed waits for a plan, the others for those; with the rule in force nobody waits for any deadline."""
    seeds = range(8)

    assert max(seconds(seed) for seed in seeds) < RENDEZVOUS / 3
    with BROKEN[COSTS_TIME]():
        assert max(seconds(seed) for seed in seeds) > RENDEZVOUS


def seconds(seed: int) -> float:
    """Virtual seconds that such a run takes."""
    verdict, _ = play(seed, shape=SHAPE, faults=fails_beside_a_boundary_plan(random.Random(seed)))
    assert verdict.violation is None
    return verdict.seconds
