"""Snapshots, recoveries and outcomes for tests of what is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spare.api.ledger import Audit
from spare.cli.outcome import Outcome
from spare.coordinator.observe import GroupSnapshot, Recovery, Snapshot

FOLDER = Path("/runs/gpt-1")


def group(number: int, **changes: Any) -> GroupSnapshot:
    fields: dict[str, Any] = {
        "state": "active",
        "stack": (number, number + 1),
        "load": 8,
        "step": 7,
        "phase": "compute",
        "still": 0.0,
        "pid": 100 + number,
    }
    return GroupSnapshot(group=number, **(fields | changes))


def snapshot(**changes: Any) -> Snapshot:
    fields: dict[str, Any] = {
        "job": "gpt/gpt-1",
        "state": "running",
        "epoch": 1,
        "step": 7,
        "depth": 1.0,
        "loss": 2.5,
        "groups": (group(0), group(1)),
        "masked": 0,
        "restarts": 0,
        "checkpoint": None,
        "refused": 0,
        "stalled": False,
        "plan_reason": "start",
        "recoveries": (),
        "exit_code": None,
        "verdict": "",
        "digest": None,
    }
    return Snapshot(**(fields | changes))


def recovery(**changes: Any) -> Recovery:
    fields: dict[str, Any] = {
        "groups": (1,),
        "step": 7,
        "epoch": 2,
        "detect": 0.01,
        "plan": 0.02,
        "regroup": 0.03,
        "patch": 0.04,
        "total": 0.1,
        "decided_at": 1000.0,
        "reason": "group 1 lost",
    }
    return Recovery(**(fields | changes))


def audit(**changes: Any) -> Audit:
    fields: dict[str, Any] = {"steps": 7, "entries": 224, "lost": 0, "doubled": 0, "repeated": 0, "problems": ()}
    return Audit(**(fields | changes))


def outcome(last: Snapshot | None = None, **changes: Any) -> Outcome:
    last = last or snapshot(state="complete", exit_code=0, digest="ab" * 32)
    fields: dict[str, Any] = {
        "snapshot": last,
        "audit": audit(),
        "recoveries": (recovery(),),
        "exit_code": 0,
        "folder": FOLDER,
        "unhappened": (),
    }
    return Outcome(**(fields | changes))
