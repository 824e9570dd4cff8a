"""Curves in a terminal."""

from __future__ import annotations

import math

from spare.cli.curve import plot, sparkline


def test_a_sparkline_falls_with_its_values() -> None:
    """Highest block first, lowest last, no wider than asked for."""
    assert sparkline([8, 7, 6, 5, 4, 3, 2, 1], 8) == "█▇▆▅▄▃▂▁"
    assert len(sparkline(range(1000), 60)) == 60


def test_a_sparkline_of_nothing_much_is_still_one() -> None:
    """No values, one value, equal values, and values that are no numbers."""
    assert sparkline([], 10) == ""
    assert sparkline([1.0], 10) == "▁"
    assert sparkline([2.0, 2.0], 10) == "▁▁"
    assert sparkline([math.nan, 1.0, math.inf, 2.0], 10) == "▁█"


def test_a_plot_has_both_series_and_their_ranges() -> None:
    """Corners of the frame are the least and the greatest."""
    text = plot({"calm": [(0, 4.0), (10, 2.0)], "rough": [(0, 4.0), (10, 1.0)]}, width=20, height=5)
    rows = text.splitlines()

    assert rows[0].startswith("        4 |o")
    assert rows[4].startswith("        1 |")
    assert rows[4].endswith("o")
    assert "· calm" in rows[-1]
    assert "o rough" in rows[-1]


def test_a_plot_of_nothing_says_so() -> None:
    """No series, and series without points; one point is drawn."""
    assert plot({}) == plot({"a": []}) == "(nothing to draw)"
    assert "·" in plot({"a": [(1, 1.0)]}).splitlines()[0]
