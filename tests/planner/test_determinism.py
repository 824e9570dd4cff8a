"""Same input, same bytes: over hash seeds, over processes, over time."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from spare.planner import Placement, healthy, patch, place, reorder, whole_healthy, whole_reorder
from tests.planner import oracles

GOLDEN = Path(__file__).parent / "golden" / "plans.json"


def _cases() -> Iterable[tuple[str, Placement, int, list[list[int]]]]:
    """A name, a placement, m, and the live groups of one plan after another."""
    topology = [(f"zone-{g * 7 % 3}", f"node-{g % 10}") for g in range(60)]
    some = [live for live in oracles.kills(60, 7) if len(live) in (59, 58, 50, 45, 40)]
    yield "golomb-60", place(60, 6), 16, [*some, list(range(60))]
    yield "zones-60", place(60, 6, topology=topology), 32, [*some, some[1], list(range(60))]
    yield "consecutive-60", place(60, 6, "Consecutive"), 8, some[:4]
    yield "golomb-8", place(8, 3), 8, [[0, 1, 2, 4, 5, 6, 7], [0, 1, 2, 4, 5, 7], [0, 1, 2, 3, 4, 5, 7], [*range(8)]]


def digests() -> dict[str, list[str]]:
    """SHA-256 of every plan, reason and patch of every case, in order."""
    found: dict[str, list[str]] = {}
    for name, placement, m, lives in _cases():
        schedule, whole, lines = healthy(placement, m), whole_healthy(placement), []
        for live in lives:
            missing = sum(schedule.mask(g) for g in range(placement.groups) if g not in set(live))
            answer = reorder(schedule, live)
            parts = patch(placement, m, live, missing)
            schedule, whole = answer.schedule, whole_reorder(whole, live).schedule
            text = [schedule.to_json(), answer.reason, sorted(parts.items()), whole.orders, whole.suppliers]
            lines.append(hashlib.sha256(json.dumps(text).encode()).hexdigest())
        found[name] = lines
    return found


def test_plans_are_those_of_the_committed_file() -> None:
    """A changed plan for the same input shows in review: rewrite with `python -m tests.planner.test_determinism`."""
    assert digests() == json.loads(GOLDEN.read_text())["digests"]


def test_a_small_plan_is_the_committed_one_in_full() -> None:
    """The bytes of one plan, readable in the file, so that a change of the format shows as such."""
    schedule = reorder(healthy(place(8, 3), 8), [0, 1, 2, 4, 5, 6, 7]).schedule

    assert json.loads(schedule.to_bytes()) == json.loads(GOLDEN.read_text())["plan"]
    assert b" " not in schedule.to_bytes()


def test_the_hash_seed_does_not_matter() -> None:
    """Another process with another PYTHONHASHSEED makes the same plans."""
    root = Path(__file__).parents[2]
    output = subprocess.run(
        [
            sys.executable,
            "-c",
            "import json; from tests.planner.test_determinism import digests; print(json.dumps(digests()))",
        ],
        env=os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": str(root)},
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout

    assert json.loads(output) == digests()


def _rewrite() -> None:
    plan = reorder(healthy(place(8, 3), 8), [0, 1, 2, 4, 5, 6, 7]).schedule.to_json()
    lines = ",\n  ".join(f'"{key}": {json.dumps(value)}' for key, value in sorted(plan.items()))
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(f'{{"digests": {json.dumps(digests(), indent=1)},\n"plan": {{\n  {lines}\n}}}}\n')


if __name__ == "__main__":
    _rewrite()
