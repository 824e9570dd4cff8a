"""Errors of the training script are no failures to mask: the job ends and shows their text."""

from __future__ import annotations

from pathlib import Path

import pytest

from spare.api.exit_codes import ExitCode
from spare.planner import place
from tests.training.runs import job_file, run


@pytest.mark.parametrize(
    ("groups", "at", "text"),
    [
        ("1", "3", "bad sample in step 3"),
        pytest.param("0,1,2", "3", "bad sample in step 3", marks=pytest.mark.slow),
        pytest.param("1", "import", "flux_capacitor", marks=pytest.mark.slow),
        pytest.param("2", "end", "cannot save the model", marks=pytest.mark.slow),
        pytest.param("0", "exit", "code 3", marks=pytest.mark.slow),
        pytest.param("1", "break", "group 1 ended after 1 step,", marks=pytest.mark.slow),
    ],
)
def test_an_exception_ends_the_job_with_its_text(tmp_path: Path, groups: str, at: str, text: str) -> None:
    """On one group or on all, before the session, inside it or after it."""
    job = job_file(tmp_path, groups=3, redundancy=2, script="raising.py", env={"RAISE_IN": groups, "RAISE_AT": at})

    done = run(job)

    assert done.code == ExitCode.USER_ERROR, done.told()
    assert done.summary["result"] == "failed", done.told()
    assert done.summary["masked"] == 0, done.told()
    assert text in done.output, done.told()


def test_a_wipe_out_ends_with_a_report_that_names_the_shards(tmp_path: Path) -> None:
    """Two hosts a shard, both killed: no checkpoint to go back to, so the job fails and says why."""
    job = job_file(tmp_path, groups=3, redundancy=2)
    first, second = place(3, 2).hosts(1)

    done = run(job, "--kill", f"{first}@3", "--kill", f"{second}@5")

    assert done.code == ExitCode.WIPE_OUT, done.told()
    assert done.summary["result"] == "failed", done.told()
    assert "shard 1" in done.output, done.told()
    assert done.summary["lost"] == 0, done.told()
