"""What the journals of one run say: times, and what became of every micro-batch. Pure.

A micro-batch is in the final history if the gradient of a step holds it that was not rolled back; of a step that was
committed more than once the last time counts.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """Of one run. Times are seconds; None where it did not happen."""

    step_time: float
    """Median from commit to commit before the kill."""
    recovery: float | None
    """From the kill to the first commit of the step that was in flight, or would have been next."""
    rejoin: float | None
    """From the kill to the first commit of the lost group's next process."""
    rejoin_stall: float | None
    """Longest time from commit to commit of the others while that process came in, beyond a usual step. None where they
    were started again themselves."""
    redone: int
    """Steps that were committed more than once."""
    lost: int
    """Micro-batches between the first timed step's and the last one in the final history that are not in it."""
    repeated: int
    """Times that a micro-batch is in the final history beyond the first."""
    wasted: int
    """Gradients that were computed and are in nothing, or are in it without having been needed."""
    smallest: float
    """Micro-batches in the smallest step of the final history, from the first timed one on."""


def read(lines: Iterable[str]) -> list[Event]:
    """Events of one process; a last line that is torn is dropped."""
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def audit(journals: Mapping[str, list[Event]], warm: int = 5) -> Finding:
    """Judge a run.

    Args:
        journals: Events by process, one journal a process.
        warm: Steps at the beginning that are not timed, nor looked at for losses: systems differ in how they get
            together, and nothing has failed by then.
    """
    events = sorted((e | {"process": p} for p, own in journals.items() for e in own), key=lambda e: e["at"])
    commits = [e for e in events if e["event"] == "committed"]
    kill = next((e for e in events if e["event"] == "killed"), None)
    history: dict[int, dict[str, float]] = {}
    for e in commits:
        history[e["step"]] = e["counts"]
    times: dict[int, int] = {}
    for counts in history.values():
        for number, count in counts.items():
            times[int(number)] = times.get(int(number), 0) + round(count)
    firsts = _firsts(commits)
    before = [e for e in firsts if e["step"] >= warm and (kill is None or e["at"] < kill["at"])]
    step_time = statistics.median(b["at"] - a["at"] for a, b in itertools.pairwise(before))
    last, ended = max(history), commits[-1]["at"]
    computed = sum(e["event"] == "computed" and e["at"] <= ended and e["step"] <= last for e in events)
    recovery, rejoin, stall = _times(kill, events, firsts, step_time) if kill else (None, None, None)
    return Finding(
        step_time=step_time,
        recovery=recovery,
        rejoin=rejoin,
        rejoin_stall=stall,
        redone=_redone(commits),
        lost=sum(number not in times for number in range(_first(history, warm), max(times))),
        repeated=sum(count - 1 for count in times.values()),
        wasted=computed - len(times),
        smallest=min(sum(counts.values()) for number, counts in history.items() if number >= warm),
    )


def _first(history: Mapping[int, Mapping[str, float]], warm: int) -> int:
    """The lowest micro-batch in the first step that is looked at, or in a later one."""
    return min(int(number) for step, counts in history.items() if step >= warm for number in counts)


def _firsts(commits: list[Event]) -> list[Event]:
    """Whoever committed a step first, in order of time; steps that were rolled back come anew."""
    found: list[Event] = []
    for e in commits:
        if not found or e["step"] > found[-1]["step"] or e["step"] < found[-1]["step"] - 1:
            found.append(e)
    return found


def _redone(commits: list[Event]) -> int:
    """Steps that some group committed more than once."""
    seen: dict[tuple[int, int], int] = {}
    for e in commits:
        key = (e["group"], e["step"])
        seen[key] = seen.get(key, 0) + 1
    return len({step for (_, step), count in seen.items() if count > 1})


def _times(
    kill: Event, events: list[Event], firsts: list[Event], usual: float
) -> tuple[float | None, float | None, float | None]:
    at, group = kill["at"], kill["group"]
    wanted = kill["step"] + (kill["point"] == "between")
    commits = [e for e in events if e["event"] == "committed" and e["at"] > at]
    recovery = next((e["at"] - at for e in commits if e["step"] >= wanted), None)
    again = [e for e in events if e["group"] == group and e["at"] > at and e["process"] != kill["process"]]
    back = next((e["at"] for e in again if e["event"] == "committed"), None)
    if back is None or recovery is None:
        return recovery, None, None
    if any(e["event"] == "start" and e["group"] != group and e["at"] > at for e in events):
        return recovery, back - at, None  # all were started again: that pause is the recovery
    began = max(again[0]["at"], at + recovery)
    others = [e["at"] for e in firsts if began <= e["at"] <= back + 1.0]
    gaps = [b - a for a, b in itertools.pairwise(others)]
    return recovery, back - at, max(0.0, max(gaps, default=0.0) - usual)
