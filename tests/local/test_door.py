"""The socket by which a running job is asked for something."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from spare.control.signal import DrainGroup, Signal
from spare.coordinator.observe import Event, GroupSnapshot, Snapshot
from spare.local.door import SOCKET, Door, NoRun, ask


def snapshot() -> Snapshot:
    """Two groups, of which one is lost."""
    group: dict[str, Any] = {"stack": (), "load": 0, "step": 3, "phase": "compute", "still": 0.0, "pid": 1}
    groups = (GroupSnapshot(0, "active", **group), GroupSnapshot(1, "lost", **group, reason="worker killed"))
    fields = dict.fromkeys(Snapshot.__dataclass_fields__)
    return Snapshot(**{**fields, "state": "running", "groups": groups})  # type: ignore[arg-type]


def asked(folder: Path, request: dict[str, Any], *events: Event, close: bool = False) -> tuple[list[Any], list[Signal]]:
    """What is answered, and what the coordinator is told."""
    signals: list[Signal] = []

    async def talk() -> list[Any]:
        told = asyncio.Event()

        def emit(signal: Signal) -> None:
            signals.append(signal)
            told.set()

        door = Door(folder, emit, snapshot)
        await door.open()
        answers = asyncio.create_task(asyncio.to_thread(lambda: list(ask(folder, request))))
        await asyncio.wait({answers, asyncio.create_task(told.wait())}, return_when=asyncio.FIRST_COMPLETED)
        for event in events:
            door.event(event)
        if close:
            door.close()
        async with asyncio.timeout(10):
            found = await answers
        door.close()
        return found

    return asyncio.run(talk()), signals


def test_a_request_is_passed_on_and_its_end_is_told(tmp_path: Path) -> None:
    """Only what concerns that group."""
    events = [
        Event(1.0, "Leaving", "it is asked", (0,)),
        Event(2.0, "Drained", "another one", (1,)),
        Event(3.0, "Checkpointed", "by the way", (0,)),
        Event(4.0, "Drained", "it has left", (0,)),
    ]

    answers, signals = asked(tmp_path, {"drain": 0, "grace": 3.5, "again": False}, *events)

    assert signals == [DrainGroup(0, "spare drain", 3.5, again=False)]
    assert answers == [{"text": "it is asked"}, {"text": "it has left", "code": 0}]


def test_a_group_that_is_lost_instead_is_told(tmp_path: Path) -> None:
    """With another exit code."""
    answers, _ = asked(tmp_path, {"drain": 0}, Event(1.0, "GroupLost", "it died", (0,)))

    assert answers == [{"text": "it died", "code": 1}]


def test_the_end_of_the_job_is_told(tmp_path: Path) -> None:
    """Whoever waits for a group must not wait for ever."""
    answers, _ = asked(tmp_path, {"drain": 0}, close=True)

    assert answers == [{"text": "the job has ended", "code": 1}]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"drain": 4}, "the groups 0 to 1"),
        ({"drain": 1}, "group 1 is lost (worker killed)"),
        ({"x": 1}, "not a request"),
    ],
)
def test_what_cannot_be_is_refused_in_words(tmp_path: Path, request_: dict[str, Any], text: str) -> None:
    """And nobody is told."""
    [answer], signals = asked(tmp_path, request_)

    assert text in answer["text"]
    assert (answer["code"], signals) == (2, [])


def test_only_its_user_gets_in_however_long_the_path_is(tmp_path: Path) -> None:
    """Mode 0600 from its first moment; the kernel's 107 characters are no limit; it is gone afterwards."""
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    modes: list[int] = []

    async def look() -> None:
        door = Door(folder, lambda _: None, snapshot)
        await door.open()
        modes.append(stat.S_IMODE((folder / SOCKET).stat().st_mode))
        door.close()

    asyncio.run(look())

    assert modes == [0o600]
    assert not (folder / SOCKET).exists()
    with pytest.raises(NoRun, match=SOCKET):
        list(ask(folder, {"drain": 0}))


def test_a_socket_that_nobody_serves_is_no_run(tmp_path: Path) -> None:
    """Left behind by a SIGKILL."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / SOCKET))
        with pytest.raises(NoRun, match="refused"):
            list(ask(tmp_path, json.loads('{"drain": 0}')))
