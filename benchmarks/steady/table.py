"""What the measurement of steps without failures says, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import binom

GOAL = 1.02
_COLUMNS = {
    "size": 6,
    "m": 3,
    "reduction": 9,
    "plain ms": 9,
    "ours ms": 9,
    "ratio": 7,
    "95 %": 16,
    "processor": 9,
    "goal": 10,
}
HEADS = " ".join(f"{head:>{width}}" for head, width in _COLUMNS.items())


def bounds(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Between which two of the values the median of what they are drawn from lies, with that confidence.

    By order alone (binomial), so whatever their distribution; the least and the most of them where they are too few.
    """
    ordered = sorted(values)
    outside = int(binom.ppf((1 - confidence) / 2, len(ordered), 0.5))
    place = max(0, outside - 1)
    return ordered[place], ordered[-1 - place]


def verdict(row: Mapping[str, Any]) -> str:
    """Whether the goal is met, as far as the measurement tells."""
    low, high = row["bounds"]
    if high <= GOAL:
        return "met"
    return "missed" if low > GOAL else "met?" if row["ratio"] <= GOAL else "missed?"


def line(row: Mapping[str, Any]) -> str:
    """One row of the table."""
    low, high = row["bounds"]
    return (
        f"{row['size']:>6} {row['micro_batches']:>3} {row['reduction']:>9} {row['plain_ms']:9.2f} "
        f"{row['ours_ms']:9.2f} {row['ratio']:7.3f} {low:7.3f} to {high:5.3f} {row['processor_ratio']:9.3f} "
        f"{verdict(row):>10}"
    )


def _phases(row: Mapping[str, Any]) -> list[tuple[str, list[float], list[float]]]:
    """(phase, calls and microseconds under plain DDP, the same under a session), in the order of a step."""
    plain, ours = row["accounts"]["plain"], row["accounts"]["ours"]
    nothing = [0.0, 0.0, 0.0]
    last = [name for name in plain if name in ours][-4:]  # all else, other threads, agent, coordinator
    names = [name for name in {**plain, **ours} if name not in last] + last
    return [(name, plain.get(name, nothing), ours.get(name, nothing)) for name in names]


def account(row: Mapping[str, Any]) -> str:
    """Where the time of a step goes."""
    heads = f"{row['size']}, m = {row['micro_batches']}: microseconds of a step"
    lines = [f"{heads:70} {'plain: processor':>17} {'wall':>8} {'ours: processor':>17} {'wall':>8}"]
    for name, plain, ours in _phases(row):
        lines.append(f"{name:70} {plain[1]:17.0f} {plain[2]:8.0f} {ours[1]:17.0f} {ours[2]:8.0f}")
    return "\n".join(lines)
