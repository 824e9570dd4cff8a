"""A group three times as slow as the others: told, and by `Rebalance` given so much less that steps are short."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.training.runs import Run, check_survived, job_file, run

STEPS = 70
MICRO, SLOW = 0.03, 0.09
"""Seconds for a micro-batch, of healthy groups and of the slow one: sleep, so that a busy machine changes little."""


def slowed(folder: Path, steps: int, until: int, **spec: Any) -> Run:
    """Four groups with m = 8; group 2 is slow until a step."""
    env = {"STEPS": str(steps), "MICRO_SECONDS": str(MICRO), "SLOW": f"2,0,{until},{SLOW - MICRO}"}
    detection = {"heartbeat": "200ms", "deadAfter": "5s", "hangAfter": "20s", "slowAfter": "2s"}
    return run(job_file(folder, micro_batches=8, env=env, detection=detection, **spec))


def seconds_of(done: Run, first: int, end: int) -> float:
    """Median length of the steps from one to another, as told while they went by."""
    seen = [(e["step"], e["at"]) for e in done.events if e.get("type") == "progress"]
    return median(float(b[1] - a[1]) for a, b in pairwise(seen) if b[0] == a[0] + 1 and first < b[0] <= end)


def told(done: Run, reason: str, text: str) -> list[dict[str, Any]]:
    """Events of a kind."""
    return [e for e in done.events if e.get("reason") == reason and text in e["text"]]


@pytest.mark.slow
def test_a_slow_group_gets_less_and_steps_get_as_short_as_the_planner_says(tmp_path: Path) -> None:
    """From 8 x 90 ms to about 10 x 30 ms (at 30 % of the speed: 3 micro-batches, the others at most 10); nothing is
    lost, and weights are bit for bit those of an even run. Recovered, it gets an even share again."""
    done = slowed(tmp_path, STEPS, until=40, onStraggler="Rebalance")

    check_survived(done, steps=STEPS, micro_batches=8, masked=0)
    [slow] = told(done, "Straggler", "times as long as the median")
    [less, even] = told(done, "Reordered", "group 2 computes at")
    [well] = told(done, "Straggler", "about as fast as the others again")
    assert slow["groups"] == less["groups"] == well["groups"] == even["groups"] == [2]
    assert "at 100 % of the speed" in even["text"]
    states = [e for e in done.events if e.get("type") == "progress"]
    begun = min(e["step"] for e in states if e["at"] > less["at"]) + 2
    healed = max(e["step"] for e in states if e["at"] < even["at"])
    before, after = seconds_of(done, 3, begun - 2), seconds_of(done, begun, 40)
    assert 0.6 < before < 1.2, done.told()
    assert 0.25 < after / before < 0.65, (before, after)  # predicted: 300 / 720 = 0.42
    assert seconds_of(done, healed + 3, STEPS) < 0.6 * before  # even shares of healthy groups: 240 ms
    assert any(e.get("stragglers", {}).get("2", 0) > 2 for e in states)


@pytest.mark.slow
def test_by_default_a_slow_group_is_told_and_left_alone(tmp_path: Path) -> None:
    """One event, no plan."""
    done = slowed(tmp_path, 12, until=12)

    check_survived(done, steps=12, micro_batches=8, masked=0)
    assert len(told(done, "Straggler", "group 2 takes")) == 1, done.told()
    assert done.summary["epoch"] == 1
