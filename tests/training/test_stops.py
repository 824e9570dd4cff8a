"""SIGSTOP: a process that is there and does nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.runs import check_survived, job_file, run

STEPS = 10


def test_a_frozen_worker_is_lost_after_dead_after(tmp_path: Path) -> None:
    """Its agent still beats; the worker's silence is what counts. Peers blocked on its open connection are freed."""
    done = run(job_file(tmp_path, env={"STEPS": str(STEPS)}), "--freeze", "2@4:reduce")

    check_survived(done, steps=STEPS, masked=1)
    assert done.summary["recoveries"][0]["groups"] == [2], done.told()


@pytest.mark.slow
def test_a_short_pause_costs_time_and_nobody(tmp_path: Path) -> None:
    """Shorter than deadAfter: everybody waits, no plan is made."""
    done = run(job_file(tmp_path, env={"STEPS": str(STEPS)}), "--pause", "1@4:compute=0.5")

    check_survived(done, steps=STEPS, masked=0)
    assert done.summary["epoch"] == 1, done.told()
