"""Curves in a terminal: a line of blocks for a live view, and a plot of several series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
MARKS = "·o+x"
"""One per series, in the order drawn; later ones cover earlier ones."""


def sparkline(values: Sequence[float], width: int) -> str:
    """The values in `width` characters at most, each the mean of its share."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    columns = min(width, len(finite))
    means = []
    for column in range(columns):
        share = finite[column * len(finite) // columns : (column + 1) * len(finite) // columns]
        means.append(sum(share) / len(share))
    low, high = min(means), max(means)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((mean - low) * scale)] for mean in means)


def plot(series: Mapping[str, Sequence[tuple[float, float]]], width: int = 72, height: int = 16) -> str:
    """Points (x, y) of named series in one frame, with the ranges of both axes and a legend."""
    points = [point for values in series.values() for point in values]
    if not points:
        return "(nothing to draw)"
    (left, right), (low, high) = ((min(axis), max(axis)) for axis in zip(*points, strict=True))
    grid = [[" "] * width for _ in range(height)]
    for mark, values in zip(MARKS, series.values(), strict=False):
        for x, y in values:
            column = round((x - left) / (right - left or 1) * (width - 1))
            row = round((high - y) / (high - low or 1) * (height - 1))
            grid[row][column] = mark
    labels = [f"{high:9.4g} |", *["          |"] * (height - 2), f"{low:9.4g} |"]
    lines = [label + "".join(row).rstrip() for label, row in zip(labels, grid, strict=True)]
    axis = f"{left:<.6g}".ljust(width - 8) + f"{right:>8.6g}"
    legend = "   ".join(f"{mark} {name}" for mark, name in zip(MARKS, series, strict=False))
    return "\n".join([*lines, " " * 10 + "+" + "-" * width, " " * 11 + axis, " " * 11 + legend])
