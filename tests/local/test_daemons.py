"""A daemon that a worker leaves behind: another session, another parent, an empty environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_run_ends import started
from tests.training.processes import wait_for

DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/usr/bin/tail", ["tail", "-f", sys.argv[1]], {})
    os._exit(0)
os.execvp("sleep", ["sleep", "600"])
"""


def command_of(pid: int) -> str:
    """Empty where the process has just ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def daemons(watched: Path) -> list[int]:
    """Living daemons of this test, whoever adopted them."""
    found = subprocess.run(["pgrep", "-fx", f"tail -f {watched}"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


@pytest.mark.parametrize("agents", ["alive", "killed"])
def test_a_daemon_does_not_outlive_the_run(tmp_path: Path, agents: str) -> None:
    """Its agent has adopted it and ends it; where the agent was killed, the run itself has."""
    script, watched = tmp_path / "daemon.py", tmp_path / "watched"
    watched.touch()
    script.write_text(DAEMON)
    with started(tmp_path, f"[{sys.executable}, {script}, {watched}]", "--no-replacements") as run:
        wait_for("two daemons", lambda: len(daemons(watched)) == 2 or None)
        if agents == "killed":
            found = [pid for pid in run.kin.pids() if "spare-agent" in command_of(pid)]
            assert found
            for pid in found:  # all are known before the first dies, which takes others along
                os.kill(pid, signal.SIGKILL)
        os.kill(run.process.pid, signal.SIGINT)
        run.end()

        assert daemons(watched) == []
