"""What the measurement of steps without failures makes of its blocks."""

from __future__ import annotations

import importlib
import random
from pathlib import Path
from typing import Any

import pytest

STEADY = Path(__file__).parents[2] / "benchmarks" / "steady"


@pytest.fixture(name="table")
def _table(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A script's neighbour, found as the script finds it."""
    monkeypatch.syspath_prepend(str(STEADY))
    return importlib.import_module("table")


def test_the_bounds_hold_the_true_median_as_often_as_they_say(table: Any) -> None:
    """Of a skewed distribution, too: 40 pairs, 2,000 times."""
    chance = random.Random(1)
    held = 0
    for _ in range(2000):
        low, high = table.bounds([chance.expovariate(1.0) for _ in range(40)])
        held += low <= 0.6931 <= high  # ln 2
    assert 0.94 <= held / 2000 <= 0.98


def test_few_values_are_bounded_by_the_least_and_the_most_of_them(table: Any) -> None:
    """Nothing narrower can be said of five."""
    assert table.bounds([3.0, 1.0, 2.0, 5.0, 4.0]) == (1.0, 5.0)


@pytest.mark.parametrize(
    ("ratio", "low", "high", "said"),
    [(1.01, 1.0, 1.02, "met"), (1.01, 0.9, 1.1, "met?"), (1.05, 0.9, 1.1, "missed?"), (1.05, 1.03, 1.1, "missed")],
)
def test_what_a_measurement_cannot_tell_is_said_with_a_question_mark(
    table: Any, ratio: float, low: float, high: float, said: str
) -> None:
    """The goal is 1.02."""
    assert table.verdict({"ratio": ratio, "bounds": [low, high]}) == said
