"""The simulation has teeth: whichever rule is left out, a seed shows it."""

from __future__ import annotations

import gc

import pytest

from tests.chaos.broken import BROKEN
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
MOST = 3000


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
@pytest.mark.parametrize("name", [name for name in BROKEN if name not in WITHIN])
def test_a_rule_left_out_is_found_in_time(name: str) -> None:
    """Within some thousands: what takes two or three failures in one step."""
    assert found(name, MOST) is not None
