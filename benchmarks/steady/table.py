"""What the measurement of steps without failures says, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GOAL = 1.02
_COLUMNS = {
    "size": 6,
    "m": 3,
    "reduction": 9,
    "plain ms": 9,
    "ours ms": 9,
    "ratio": 7,
    "quartiles": 16,
    "processor": 9,
}
HEADS = " ".join(f"{head:>{width}}" for head, width in _COLUMNS.items())


def line(row: Mapping[str, Any]) -> str:
    """One row of the table."""
    low, high = row["quartiles"]
    return (
        f"{row['size']:>6} {row['micro_batches']:>3} {row['reduction']:>9} {row['plain_ms']:9.2f} "
        f"{row['ours_ms']:9.2f} {row['ratio']:7.3f} {low:7.3f} to {high:5.3f} {row['processor_ratio']:9.3f}"
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
