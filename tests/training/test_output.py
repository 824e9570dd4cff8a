"""A run whose output nobody reads any more."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

from tests.training.processes import wait_for
from tests.training.runs import DEADLINE, check_survived, job_file, result, start, undisturbed_digest


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


def test_a_reader_that_stands_still_holds_nobody_up(tmp_path: Path) -> None:
    """Failures are answered and the job completes while nobody reads; who reads later finds the summary."""
    job = job_file(tmp_path, env={"STEPS": "40", "MICRO_SECONDS": "0.01"})
    process = start(job, "--kill", "1@20:compute")
    assert process.stdout is not None
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
    wait_for("the summary", lambda: list(tmp_path.glob("runs/*/summary.json")), DEADLINE)

    check_survived(result(process, job), steps=40, masked=1)
