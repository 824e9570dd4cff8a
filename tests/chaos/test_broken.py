"""The simulation has teeth: whichever rule is left out, a seed shows it."""

from __future__ import annotations

import gc
import random

import pytest

from tests.chaos.broken import BROKEN
from tests.chaos.scenes import SCENES, SHAPE
from tests.chaos.seeds import play

WITHIN = {
    "no barrier": 60,
    "held is dropped": 60,
    "state kept": 60,
    "loaded later": 60,
    "told before written": 60,
    "failure unanswered": 60,
    "silence unnoticed": 60,
    "not told again": 120,
}
"""Seeds in which each is found, at most. The others take more than the fast tests have time for."""
MOST = 1000


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
@pytest.mark.parametrize("name", [name for name in BROKEN if name not in (*WITHIN, *SCENES)])
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
    verdict, _ = play(seed, shape=SHAPE, faults=SCENES[name](random.Random(seed)))
    return verdict.violation
