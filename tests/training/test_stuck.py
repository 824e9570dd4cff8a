"""Workers that are alive and get nowhere, their agents beating all the while: each is lost, and nothing with it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from spare.api.exit_codes import ExitCode
from tests.training.processes import commits, environments, wait_for
from tests.training.runs import Run, check_survived, job_file, result, run, start

pytestmark = pytest.mark.slow

STEPS = 8
DETECTION = {"heartbeat": "200ms", "deadAfter": "2s", "hangAfter": "4s"}


def stuck(folder: Path, where: str, step: int = 3) -> Run:
    """A run whose group 1 gets stuck."""
    env = {"STEPS": str(STEPS), "GROUP": "1", "STEP": str(step), "WHERE": where, "MARKS": str(folder)}
    return run(job_file(folder, script="stuck.py", env=env, detection=DETECTION))


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("native", "made no progress for"),
        ("loop", "made no progress for"),
        ("loader", "made no progress for"),
        ("optimizer", "in 'commit'"),
        ("stopped", "its worker was silent for"),
    ],
)
def test_a_stuck_worker_is_lost_and_the_step_goes_on_without_it(tmp_path: Path, where: str, said: str) -> None:
    """In Python, in native code that keeps the lock, in the loader, in the optimizer after the barrier, stopped."""
    done = stuck(tmp_path, where)

    check_survived(done, steps=STEPS, masked=1)
    [loss] = [e for e in done.events if e.get("reason") == "GroupLost"]
    assert loss["groups"] == [1]
    assert said in loss["text"], done.told()


def test_a_worker_that_is_stopped_before_its_hello_is_started_again(tmp_path: Path) -> None:
    """The job starts all the same, and is told why it took so long."""
    done = stuck(tmp_path, "hello")

    check_survived(done, steps=STEPS, masked=0)
    [told] = [e for e in done.events if e.get("reason") == "PodsNotStarting"]
    assert "group 1 is started again: its worker has been stopped for" in told["text"], done.told()


def test_when_all_are_stopped_nobody_is_lost_until_the_job_is_given_up(tmp_path: Path) -> None:
    """Most agents silent at once look like our own network; locally that has an end, which says what it waited for."""
    job = job_file(tmp_path, env={"STEPS": "100000"}, detection=DETECTION)
    process = start(job)
    wait_for("some steps", lambda: commits(tmp_path) > 12 or None)
    [folder] = tmp_path.glob("runs/*")
    for pid, _ in environments(folder):
        os.kill(pid, signal.SIGSTOP)
    done = result(process, job)

    assert done.code == ExitCode.STALLED, done.told()
    assert done.summary["masked"] == 0
    assert "no agent has been heard for" in done.summary["verdict"]
    assert [e["reason"] for e in done.events if e.get("reason") == "Unheard"] == ["Unheard"]


def test_when_all_are_slow_nobody_is_lost_and_the_state_says_stalled(tmp_path: Path) -> None:
    """A step longer than hangAfter, on every group alike."""
    done = run(job_file(tmp_path, env={"STEPS": "2", "MICRO_SECONDS": "6"}, micro_batches=1, detection=DETECTION))

    check_survived(done, steps=2, micro_batches=1, masked=0)
    assert any(e.get("stalled") for e in done.events if e.get("type") == "progress"), done.told()
    assert any(e.get("reason") == "Stalled" and "nobody is lost" in e["text"] for e in done.events)
