"""A run whose output nobody reads any more."""

from __future__ import annotations

import json
from pathlib import Path

from tests.training.runs import DEADLINE, job_file, start, undisturbed_digest


def test_a_run_goes_on_when_its_reader_leaves(tmp_path: Path) -> None:
    """`spare run ... | head -1`, and a group is lost besides: the job completes, and its summary is in the folder."""
    process = start(job_file(tmp_path, env={"STEPS": "6"}), "--kill", "1@2:compute")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()

    assert process.wait(DEADLINE) == 0
    [path] = tmp_path.glob("runs/*/summary.json")
    summary = json.loads(path.read_text())
    assert (summary["result"], summary["steps"], summary["masked"]) == ("complete", 6, 1)
    assert summary["digest"] == undisturbed_digest(6, 4, 4)
