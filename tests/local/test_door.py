"""The socket by which a run is asked for something."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from spare.cli.conduct import opened
from spare.cli.lines import Lines
from spare.cli.main import main
from spare.control.signal import Signal
from spare.coordinator.observe import Event, GroupSnapshot
from spare.coordinator.snapshot import snapshot_of
from spare.local.door import SOCKET, Door, ask, listens
from tests.control.drive import started


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


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"drain": 1, "grace": float("nan")}, "grace is nan; allowed is a number of seconds from 0 to 2147483647"),
        ({"drain": 1, "grace": float("inf")}, "grace is inf; allowed"),
        ({"drain": 1, "grace": -1}, "grace is -1; allowed"),
        ({"drain": 1, "grace": "soon"}, "grace is 'soon'; allowed"),
        ({"drain": "1"}, "drain is '1'; allowed is the number of a group"),
        ({"drain": 1, "again": 0}, "again is 0; allowed is true or false"),
        ({}, "drain is None; allowed"),
        ([], "a request is one JSON object"),
    ],
)
def test_what_is_asked_for_wrongly_reaches_no_coordinator(tmp_path: Path, request_: Any, said: str) -> None:
    """It would be acted on by who conducts the job: a number that is none ended it."""
    asked: list[Signal] = []

    async def asking() -> list[dict[str, Any]]:
        door = Door(tmp_path, asked.append, lambda: pytest.fail("it is refused before"))
        await door.open()
        try:
            return await asyncio.to_thread(lambda: list(ask(tmp_path, request_)))
        finally:
            door.close()

    [answer] = asyncio.run(asking())

    assert answer["code"] == 2
    assert said in answer["text"]
    assert asked == []


@pytest.mark.parametrize("grace", ["nan", "inf", "-1", "1e300"])
def test_a_grace_is_a_number_of_seconds(tmp_path: Path, grace: str) -> None:
    """Refused before anybody is asked, here and on a cluster."""
    done = CliRunner().invoke(main, ["drain", "1", "--grace", grace, "--runs", str(tmp_path)])

    assert done.exit_code == 2
    assert f"'{grace}' is no number from 0 to" in done.output


def test_a_run_whose_folder_holds_no_sockets_goes_on_without_a_door(tmp_path: Path) -> None:
    """Some file systems have none: then nobody can ask, and that is said."""
    told: list[str] = []

    class Told(Lines):
        def note(self, text: str) -> None:
            told.append(text)

    bound(tmp_path / "run").close()  # as good as any other reason why there cannot be one
    door = Door(tmp_path / "run", lambda signal: None, lambda: pytest.fail("nobody asks"))
    asyncio.run(opened(door, Told()))
    door.close()

    assert told == ["spare drain cannot reach this run: Address already in use"]


@pytest.mark.parametrize(
    ("reason", "groups", "code"),
    [
        ("Drained", (1,), 0),
        ("GroupLost", (1, 2), 1),
        ("WipeOut", (0, 1), 1),
        ("Halting", (), 1),
        ("GroupLost", (2,), None),
    ],
)
def test_who_asks_is_told_the_end_of_it(tmp_path: Path, reason: str, groups: tuple[int, ...], code: int | None) -> None:
    """Whatever it is: the group has left or is lost, or the job stops as a whole because it cannot do without it."""
    here = GroupSnapshot(1, "active", (), 0, 5, "compute", 0.0, 0)
    seen = snapshot_of(started().state, 0.0)
    seen = replace(seen, groups=(seen.groups[0], here, *seen.groups[2:]))

    async def asking() -> list[dict[str, Any]]:
        asked = asyncio.Event()
        door = Door(tmp_path, lambda signal: asked.set(), lambda: seen)
        await door.open()
        answers = asyncio.create_task(asyncio.to_thread(lambda: list(ask(tmp_path, {"drain": 1}))))
        async with asyncio.timeout(30.0):
            await asked.wait()
        door.event(Event(0.0, reason, "what happened", groups))
        if code is None:
            door.event(Event(0.0, "Drained", "the end", (1,)))
        found = await answers
        door.close()
        return found

    [answer] = asyncio.run(asking())

    assert answer == ({"text": "the end", "code": 0} if code is None else {"text": "what happened", "code": code})
