"""SIGSTOP: a process that is there and does nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.training.processes import commits, processes_of, wait_for
from tests.training.runs import check_survived, job_file, result, run, start

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


@pytest.mark.slow
def test_a_machine_that_stands_still_for_longer_than_dead_after_loses_nobody(tmp_path: Path) -> None:
    """A paused container or machine: all processes of the run at once, the coordinator with them."""
    file = job_file(tmp_path, env={"STEPS": "60", "MICRO_SECONDS": "0.02"})
    process = start(file)
    wait_for("commits", lambda: commits(tmp_path) > 8)
    all_of_it = [process.pid, *processes_of(tmp_path)]
    for pid in all_of_it:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(6.0)  # deadAfter is 2 s here, hangAfter 4 s
    for pid in reversed(all_of_it):
        os.kill(pid, signal.SIGCONT)
    done = result(process, file)

    check_survived(done, steps=60, masked=0)
    assert done.summary["epoch"] == 1, done.told()
    assert any("stood still for" in e.get("text", "") for e in done.events), done.told()
