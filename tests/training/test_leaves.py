"""However a run ends, none of its processes is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spare.api.exit_codes import ExitCode
from tests.training.runs import check_survived, job_file, result, start


def processes_of(folder: Path) -> list[int]:
    """Processes whose environment or command names the run folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if str(folder).encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # gone meanwhile, or not ours to read
            continue
    return found


def wait_for(what: str, condition: Callable[[], object], deadline: float = 40.0) -> object:
    """The condition's first true value."""
    until = time.monotonic() + deadline
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(0.02)  # a look at another process, not a wait for time to pass
    raise AssertionError(f"waited {deadline} s for {what}")


def commits(folder: Path) -> int:
    """Commits in all ledgers of the runs in `folder`."""
    return sum(p.read_text().count('"commits"') for p in folder.glob("runs/*/ledger/*.jsonl"))


@pytest.mark.parametrize(
    ("sig", "code"),
    [
        (signal.SIGINT, ExitCode.INTERRUPTED),
        pytest.param(signal.SIGTERM, ExitCode.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_the_run_and_every_process(tmp_path: Path, sig: signal.Signals, code: ExitCode) -> None:
    """Ctrl-C, and SIGTERM, in the middle of training."""
    job = job_file(tmp_path, env={"STEPS": "100000"})
    process = start(job)
    wait_for("the first commits", lambda: commits(tmp_path) > 8)

    process.send_signal(sig)
    done = result(process, job)

    assert done.code == code, done.told()
    assert processes_of(tmp_path) == [], done.told()


def test_the_death_of_spare_run_takes_every_process_along(tmp_path: Path) -> None:
    """SIGKILL of `spare run` itself: nobody is there to clean up, so each process looks after itself."""
    process = start(job_file(tmp_path, env={"STEPS": "100000"}))
    wait_for("the first commits", lambda: commits(tmp_path) > 8)

    process.kill()
    process.communicate()

    wait_for("the end of every process", lambda: not processes_of(tmp_path), 10.0)


@pytest.mark.slow
def test_two_runs_at_once_do_not_meet(tmp_path: Path) -> None:
    """No fixed port, no shared name (field case F14)."""
    jobs = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        jobs.append(job_file(tmp_path / name, groups=2, redundancy=2))
    running = [(start(job), job) for job in jobs]

    for process, job in running:
        check_survived(result(process, job), steps=12, groups=2, masked=0)


@pytest.mark.slow
def test_a_job_on_ipv6_loopback_only(tmp_path: Path) -> None:
    """Every address in it is `[::1]:port` (field case F15)."""
    job = job_file(tmp_path, groups=3, redundancy=2)

    done = result(start(job, "--bind", "::1", "--kill", "1@4:reduce"), job)

    check_survived(done, steps=12, groups=3, masked=1)
