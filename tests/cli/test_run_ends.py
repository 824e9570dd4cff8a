"""`spare run` as a process: how it ends before training has begun, and what it prints where there is no terminal.

The workers are plain sleepers, so the job never gets beyond its start; tests/training ends jobs in mid-step.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spare.api.exit_codes import ExitCode
from spare.local.processes import Kin
from tests.cli.test_refusals import job_file
from tests.training.processes import wait_for

SPARE = Path(sysconfig.get_path("scripts")) / "spare"
DEADLINE = 30.0


class Started:
    """A run with a worker process in every group."""

    def __init__(self, folder: Path, command: str, *arguments: str) -> None:
        program = f"spec.template.spec.containers[0].command={command}"
        job, runs = str(job_file(folder, groups=2)), str(folder / "runs")
        line = [str(SPARE), "run", job, "--runs", runs, "--env", "SECRET=1", "--set", program]
        self.process = subprocess.Popen(
            [*line, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        folders = lambda: next(iter((folder / "runs").glob("*")), None)  # noqa: E731
        self.folder = wait_for("the run folder", folders)
        self.kin = Kin(f"SPARE_JOB=j/{self.folder.name}")
        wait_for("two agents and two workers", lambda: len(self.workers()) == 2 or None)

    def workers(self) -> list[int]:
        return [pid for pid in self.kin.pids() if name_of(pid) == "sleep"]

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, out, err


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@contextmanager
def started(folder: Path, command: str, *arguments: str) -> Iterator[Started]:
    run = Started(folder, command, *arguments)
    try:
        yield run
    finally:
        run.process.kill()
        run.process.communicate()
        assert run.kin.kill(5.0) == []


@pytest.mark.parametrize(
    ("sig", "code", "said"),
    [
        (signal.SIGINT, ExitCode.INTERRUPTED, "ending the job"),
        (signal.SIGTERM, ExitCode.SIGTERM, "all groups stop after the step in flight"),
        (signal.SIGHUP, ExitCode.SIGHUP, "ending the job"),
    ],
)
def test_the_first_signal_ends_the_job_cleanly(tmp_path: Path, sig: signal.Signals, code: ExitCode, said: str) -> None:
    """Its own exit code, no process left, and plain lines with the place of the logs."""
    with started(tmp_path, "[sleep, '600']") as run:
        os.kill(run.process.pid, sig)
        exit_code, out, err = run.end()

        assert exit_code == code
        assert run.kin.pids() == []
        assert said in err
        assert "no process of the job is left" in err
        assert f"logs: {run.folder}/group-G.log" in out
        assert ("Interrupted" in out) or sig is signal.SIGTERM
        assert "\x1b" not in out


def test_the_second_signal_kills_at_once(tmp_path: Path) -> None:
    """Agents under SIGSTOP would have to be waited for otherwise."""
    with started(tmp_path, "[sh, -c, \"trap '' TERM; while :; do sleep 600; done\"]") as run:
        for pid in set(run.kin.pids()) - set(run.workers()):
            os.kill(pid, signal.SIGSTOP)
        os.kill(run.process.pid, signal.SIGINT)
        assert run.process.stderr is not None
        assert "ending the job" in run.process.stderr.readline()
        os.kill(run.process.pid, signal.SIGINT)
        exit_code, _, err = run.end()

        assert exit_code == ExitCode.INTERRUPTED
        assert "killing" in err
        assert run.kin.pids() == []


def test_the_summary_of_an_interrupted_run_is_one_object_too(tmp_path: Path) -> None:
    """The last line of stdout, whatever the end."""
    with started(tmp_path, "[sleep, '600']", "--json") as run:
        os.kill(run.process.pid, signal.SIGINT)
        _, out, _ = run.end()
        lines = [json.loads(line) for line in out.splitlines()]

        assert lines[0]["type"] == "begin"
        summary = lines[-1]
        assert (summary["exit_code"], summary["steps"], summary["lost"]) == (ExitCode.INTERRUPTED, 0, 0)
        assert summary["recoveries"] == []
        assert summary["folder"] == str(run.folder)


def test_a_reader_that_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    """`spare run ... | head -1`: what comes later cannot be written, and the job is none the worse for it."""
    with started(tmp_path, "[sleep, '600']") as run:
        assert run.process.stdout is not None
        assert run.process.stderr is not None
        run.process.stdout.close()
        os.kill(run.process.pid, signal.SIGINT)

        assert run.process.wait(DEADLINE) == ExitCode.INTERRUPTED
        assert "the output cannot be written any more (Broken pipe)" in run.process.stderr.read()
        assert run.kin.pids() == []
        summary = json.loads((run.folder / "summary.json").read_text())
        assert summary["exit_code"] == ExitCode.INTERRUPTED


def test_a_run_folder_that_is_removed_ends_the_run_by_name(tmp_path: Path) -> None:
    """The next plan could not be written down, and all would wait for it; nothing could be counted at the end."""
    with started(tmp_path, "[sleep, '600']") as run:
        shutil.rmtree(run.folder)
        exit_code, _, err = run.end()

        assert exit_code == ExitCode.USER_ERROR
        assert f"Error: {run.folder} was removed while the job ran" in err
        assert "after step 0" in err
        assert run.kin.pids() == []


@pytest.mark.parametrize("after", [0.3, 0.6, None])
def test_ctrl_c_in_the_first_second_has_its_exit_code(tmp_path: Path, after: float | None) -> None:
    """While it still loads, and as soon as there is a run folder: no traceback of ours, and nothing is left."""
    job, runs = str(job_file(tmp_path, groups=2)), tmp_path / "runs"
    line = [str(SPARE), "run", job, "--runs", str(runs), "--env", "SECRET=1"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        if after is None:
            wait_for("the run folder", lambda: any(runs.glob("*")) or None)
        else:
            time.sleep(after)  # the moment is what is tested
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE)

    if process.returncode == -signal.SIGINT:  # 130 to a shell as well: Python's own end, before our first line
        assert "in main" not in err
    else:
        assert process.returncode == ExitCode.INTERRUPTED, err
        assert "Traceback" not in err
