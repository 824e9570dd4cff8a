"""What the measurement of steps without failures says, for people: lines of the terminal, and docs/steady-state.md."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
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


_TEXT = """# A step without failures, measured

Written by `make bench-steady`; [decision 14](decisions/0014-steady-state.md) says why a step is as it is.

A job of {groups} groups trains the GPT of examples/gpt, with micro-batches of 128 tokens, under
DistributedDataParallel over gloo (gradient_as_bucket_view, `no_sync` for all micro-batches but the last) and under a
session. Both have a model and an optimizer (SGD) of their own in the same processes and compute as much on data of the
same kind; blocks of steps of both alternate, the first of each is left out, and neighbours are compared: the ratio is
the median, over {pairs} pairs, of the quotient of the blocks' median step times. Agents and coordinator run beside
them, as in any job. *Processor* is the same ratio of the processor time of all threads of the training process: where
more processes than cores share a machine, as here, it says more than the clock on the wall. The goal is {goal}.

{machine}.
"""


def write(found: Mapping[str, Any], docs: Path) -> None:
    """Into `docs`: steady-state.md."""
    pairs = found["rows"][0]["pairs"]
    text = _TEXT.format(groups=found["groups"], pairs=pairs, goal=found["goal"], machine=_machine())
    heads = ("parameters", "micro-batches", "reduction", "plain, ms", "session, ms", "ratio (quartiles)", "processor")
    lines = [text, _cells(*heads), _cells(*("---" for _ in heads))]
    for r in found["rows"]:
        low, high = r["quartiles"]
        times = f"{r['plain_ms']:.2f}", f"{r['ours_ms']:.2f}", f"{r['ratio']:.3f} ({low:.3f} to {high:.3f})"
        which = f"{r['parameters']:,}", r["micro_batches"], r["reduction"]
        lines.append(_cells(*which, *times, f"{r['processor_ratio']:.3f}"))
    for row in found["accounts"]:
        lines += _section(row)
    docs.mkdir(parents=True, exist_ok=True)
    (docs / "steady-state.md").write_text("\n".join(lines) + "\n")


def _section(row: Mapping[str, Any]) -> list[str]:
    m = row["micro_batches"]
    lines = ["", f"## Where a step's time goes: {row['parameters']:,} parameters, {m} micro-batch{'es' * (m > 1)}", ""]
    lines += ["Microseconds of one step; timing them takes some, too.", ""]
    lines += [_cells("", "plain: processor", "wall", "session: processor", "wall"), _cells(*["---"] * 5)]
    for name, plain, ours in _phases(row):
        lines.append(_cells(name, *(f"{value:.0f}" if value else "" for value in (*plain[1:], *ours[1:]))))
    return lines


def _cells(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _machine() -> str:
    models = [text.partition(":")[2].strip() for text in _cpuinfo() if text.startswith("model name")]
    of = f" ({models[0]})" if models else ""
    versions = f"Python {platform.python_version()}, torch {metadata.version('torch')}"
    return f"Measured on {os.cpu_count()} cores{of}, {versions}, one thread for each process's computing"


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []
