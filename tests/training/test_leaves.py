"""However a run ends, none of its processes is left."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from spare.api.exit_codes import ExitCode
from tests.training.processes import commits, is_loopback, listeners, processes_of, wait_for
from tests.training.runs import check_survived, job_file, result, start


@pytest.mark.parametrize(
    ("sig", "code"),
    [
        (signal.SIGINT, ExitCode.INTERRUPTED),
        pytest.param(signal.SIGTERM, ExitCode.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_the_run_and_every_process(tmp_path: Path, sig: signal.Signals, code: ExitCode) -> None:
    """Ctrl-C, and SIGTERM, in the middle of training. Until then every listening socket is a loopback one (F58)."""
    job = job_file(tmp_path, env={"STEPS": "100000"})
    process = start(job)
    wait_for("the first commits", lambda: commits(tmp_path) > 8)
    open_to = listeners(processes_of(tmp_path))
    assert len(open_to) >= 12, open_to  # each group: agent, store, gloo
    assert all(is_loopback(address) for address in open_to), open_to

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
