"""However a run ends, none of its processes is left."""

from __future__ import annotations

import signal
import subprocess
import time
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


NAMELESS = 'mount --bind "$0" /etc/hosts && mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'
"""Runs a command where no name is known, and the name server that there is never answers."""


@pytest.mark.slow
def test_f11_a_job_where_no_name_resolves(tmp_path: Path) -> None:
    """F11: plans carry addresses: with the name service off the job finishes, loss and return included, as fast as
    ever. One lookup alone would stand still for ten seconds."""
    hosts, servers = tmp_path / "hosts", tmp_path / "resolv.conf"
    hosts.write_text("")
    servers.write_text("nameserver 192.0.2.1\n")
    under = ["unshare", "--map-root-user", "--mount", "sh", "-c", NAMELESS, str(hosts), str(servers)]
    if subprocess.run([*under, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine lets nobody mount in a namespace of its own")
    known = subprocess.run([*under, "getent", "hosts", "example.org"], capture_output=True, check=False)
    assert known.returncode != 0, "names resolve all the same"
    job = job_file(tmp_path, env={"STEPS": "900", "MICRO_SECONDS": "0.005"})

    done = result(start(job, "--kill", "1@20:reduce", under=under), job)

    check_survived(done, steps=900, masked=1)
    assert [e["groups"] for e in done.events if e.get("reason") == "GroupRejoined"] == [[1]], done.told()
    [recovery] = done.summary["recoveries"]
    assert recovery["total"] < 5.0, done.told()


@pytest.mark.slow
def test_a_second_sigterm_in_a_long_step_is_no_failure_of_the_groups(tmp_path: Path) -> None:
    """All are killed at once because somebody asked for it: no wipe-out, and the exit code of the signal."""
    process = start(job_file(tmp_path, env={"STEPS": "1000", "MICRO_SECONDS": "2"}))
    wait_for("the first step", lambda: commits(tmp_path) >= 4)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)  # two at one moment are one
    process.send_signal(signal.SIGTERM)
    done = result(process, tmp_path / "job.yaml")

    assert done.code == ExitCode.SIGTERM, done.told()
    assert done.summary["verdict"] == "SIGTERM received again", done.told()
    assert processes_of(tmp_path) == [], done.told()
