"""Scripted failures: the text that says them, and that each happens once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spare_runtime.config import BadEnvironment
from spare_runtime.faults import Fault, Faults, ScriptedFailure, parse_faults
from spare_runtime.ledger import Ledger


def test_each_part_is_read() -> None:
    """Action, step and point, and how long a pause lasts."""
    assert parse_faults("kill@20:compute,pause@3:barrier=0.25,freeze@0:regroup") == (
        Fault("kill", 20, "compute", 2.0),
        Fault("pause", 3, "barrier", 0.25),
        Fault("freeze", 0, "regroup", 2.0),
    )
    assert parse_faults("") == ()


def test_a_failure_happens_to_the_rank_that_it_names(tmp_path: Path) -> None:
    """Rank 0 where none is named: the other ranks of the group go on."""
    assert parse_faults("kill.3@2:step")[0].rank == 3
    ledger = Ledger(str(tmp_path), 0, "uid")
    script = "raise@1:step,raise.1@2:step"

    Faults(script, ledger, 0, rank=1).at(1, "step")
    Faults(script, ledger, 0).at(2, "step")
    with pytest.raises(ScriptedFailure):
        Faults(script, ledger, 0, rank=1).at(2, "step")


@pytest.mark.parametrize(
    "bad",
    [
        *("kill", "kill@", "kill@3", "kill@3:", "@3:step", "kill@x:step", "kill@-1:step", "kill@1.5:step"),
        *("explode@3:step", "kill@3:lunch", "kill@3:step=", "kill@3:step=x", "kill 3:step", "kill@3:step "),
        *("pause@3:step=1.2.3", "pause@3:step=.", "pause@3:step=-1", "Kill@3:step", "kill@3:step=1e9"),
    ],
)
def test_what_cannot_be_read_is_named(bad: str) -> None:
    """The part, and what is allowed in its place; the good parts beside it do not hide it."""
    with pytest.raises(BadEnvironment) as refused:
        parse_faults(f"kill@1:step,{bad},kill@2:step")

    assert repr(bad) in str(refused.value)
    assert "ACTION[.RANK]@STEP:POINT" in str(refused.value)


def test_a_fault_happens_once_and_is_written_down_first(tmp_path: Path) -> None:
    """A step that is begun again after a regroup must not fail again."""
    faults = Faults("raise@2:reduce", Ledger(str(tmp_path), 0, "a"), agent_pid=0)
    faults.at(1, "reduce")
    faults.at(2, "compute")

    with pytest.raises(ScriptedFailure, match="step 2, point reduce"):
        faults.at(2, "reduce")
    faults.at(2, "reduce")

    entries = [json.loads(line) for line in (tmp_path / "ledger" / "group-0-a.jsonl").read_text().splitlines()]
    assert [(e["fault"], e["step"], e["point"]) for e in entries] == [("raise", 2, "reduce")]
