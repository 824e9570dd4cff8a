"""The socket by which a run is asked for something."""

from __future__ import annotations

import socket
from pathlib import Path

from click.testing import CliRunner

from spare.cli.main import main
from spare.local.door import SOCKET, listens


def bound(folder: Path) -> socket.socket:
    """A run's socket, as a killed run leaves it until somebody listens."""
    folder.mkdir()
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(folder / SOCKET))
    return made


def test_a_run_that_was_killed_is_not_taken_for_a_running_one(tmp_path: Path) -> None:
    """Its socket is still there: with it alone no job is running, and beside another one it is not counted."""
    bound(tmp_path / "dead").close()
    assert not listens(tmp_path / "dead")

    alone = CliRunner().invoke(main, ["drain", "1", "--runs", str(tmp_path)])
    assert (alone.exit_code, "no job is running" in alone.output) == (2, True)

    with bound(tmp_path / "alive") as alive:
        alive.listen()
        assert listens(tmp_path / "alive")
        with bound(tmp_path / "other") as other:
            other.listen()
            both = CliRunner().invoke(main, ["drain", "1", "--runs", str(tmp_path)])

    assert "2 jobs are running" in both.output
    assert "dead" not in both.output
