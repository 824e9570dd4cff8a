"""The door to a local run: a Unix socket in its folder, on which the same user may ask for a group to leave.

One JSON object a line: first the request, then what happens, the last with the exit code of who asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spare.api.exit_codes import ExitCode
from spare.api.reasons import EventReason
from spare.api.template import MAX_GRACE
from spare.control.signal import DrainGroup, Signal
from spare.coordinator.observe import Event, Snapshot

SOCKET: Final = "control.sock"
_CREDENTIALS: Final = struct.Struct("3i")
_REQUEST_DEADLINE: Final = 5.0
_ENDS: Final = {
    EventReason.DRAINED: ExitCode.COMPLETE,
    EventReason.GROUP_LOST: ExitCode.USER_ERROR,
    EventReason.WIPE_OUT: ExitCode.USER_ERROR,
    EventReason.HALTING: ExitCode.USER_ERROR,
}
"""A group that the job cannot do without makes it stop as a whole; that concerns every group."""
_TOLD: Final = (EventReason.LEAVING, EventReason.REORDERED, *_ENDS)


def listens(folder: Path) -> bool:
    """Whether a run is behind the door of this folder: one that was killed leaves its socket there."""
    with socket.socket(socket.AF_UNIX) as trial, _beside(folder) as path:
        try:
            trial.connect(path)
        except OSError:
            return False
    return True


class NoRun(Exception):
    """Nobody is behind that door; the text says which."""


@dataclass(eq=False)
class _Asker:
    group: int
    writer: asyncio.StreamWriter
    over: asyncio.Event


class Door:
    """Takes requests for one run, and observes what comes of them."""

    def __init__(self, folder: Path, emit: Callable[[Signal], None], snapshot: Callable[[], Snapshot]) -> None:
        self._folder, self._emit, self._snapshot = folder, emit, snapshot
        self._server: asyncio.Server | None = None
        self._askers: list[_Asker] = []

    async def open(self) -> None:
        """Listen. Raises OSError."""
        with _beside(self._folder) as path:
            listener = socket.socket(socket.AF_UNIX)
            before = os.umask(0o177)
            try:
                listener.bind(path)
            except OSError:
                listener.close()
                raise
            finally:
                os.umask(before)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)

    def close(self) -> None:
        """Nobody gets in any more; who still waits is told that the job has ended."""
        for asker in self._askers:
            _say(asker.writer, text="the job has ended", code=int(ExitCode.USER_ERROR))
            asker.over.set()
        if self._server is not None:
            self._server.close()
            (self._folder / SOCKET).unlink(missing_ok=True)

    # --- observer ---------------------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """Pass on what concerns a group that somebody asked about."""
        reason = EventReason(event.reason)
        for asker in self._askers:
            if reason in _TOLD and (asker.group in event.groups or reason is EventReason.HALTING):
                end = {"code": int(_ENDS[reason])} if reason in _ENDS else {}
                _say(asker.writer, text=event.text, **end)
                if end:
                    asker.over.set()

    def state(self, snapshot: Snapshot) -> None:
        """See Observer."""

    # --- a request --------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if _user_of(writer) not in (os.getuid(), 0):
                _say(writer, text="only the user who runs the job may ask", code=int(ExitCode.USER_ERROR))
                return
            async with asyncio.timeout(_REQUEST_DEADLINE):
                asked = _request(json.loads(await reader.readline()))
            refusal = self._refusal(asked.group)
            if refusal is not None:
                text, code = refusal
                _say(writer, text=text, code=int(code))
                return
            await self._drain(asked, reader, writer)
        except (ValueError, TimeoutError) as error:
            what = str(error) or f"nothing was asked for within {_REQUEST_DEADLINE:g} s"
            _say(writer, text=f"not a request: {what}", code=int(ExitCode.USAGE))
        finally:
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            writer.close()

    async def _drain(self, asked: DrainGroup, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asker = _Asker(asked.group, writer, asyncio.Event())
        self._askers.append(asker)
        self._emit(asked)
        over, gone = asyncio.ensure_future(asker.over.wait()), asyncio.ensure_future(reader.read())
        try:
            await asyncio.wait({over, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            gone.cancel()
            self._askers.remove(asker)

    def _refusal(self, group: int) -> tuple[str, ExitCode] | None:
        """Why that group cannot leave now, and the exit code for it; None if it can."""
        seen = self._snapshot()
        if not 0 <= group < len(seen.groups):
            return f"group {group}: the job has the groups 0 to {len(seen.groups) - 1}", ExitCode.USAGE
        here = seen.groups[group]
        if here.state not in ("active", "joining"):
            why = f" ({here.reason})" if here.reason else ""
            text = f"group {group} is {here.state}{why}: only a group that trains can leave; the job is {seen.state}"
            return text, ExitCode.USER_ERROR
        return None


def _request(raw: object) -> DrainGroup:
    """What is asked for. What comes in here is acted on by who conducts the job, so it must be right.

    Raises:
        ValueError: naming the field, its value and what is allowed.
    """
    if not isinstance(raw, dict):
        raise ValueError("a request is one JSON object")
    group, grace, again = raw.get("drain"), raw.get("grace"), raw.get("again", True)
    if isinstance(group, bool) or not isinstance(group, int):
        raise ValueError(f"drain is {group!r}; allowed is the number of a group")
    number = isinstance(grace, int | float) and not isinstance(grace, bool)
    if grace is not None and not (number and 0 <= grace <= MAX_GRACE):
        raise ValueError(f"grace is {grace!r}; allowed is a number of seconds from 0 to {MAX_GRACE}")
    if not isinstance(again, bool):
        raise ValueError(f"again is {again!r}; allowed is true or false")
    return DrainGroup(group, "spare drain", None if grace is None else float(grace), again)


def ask(folder: Path, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Ask the run in `folder`; gives its answers as they come, the last with a `code`.

    Raises:
        NoRun: no run listens there.
    """
    try:
        with _beside(folder) as path, socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as lines:
                for line in lines:
                    yield json.loads(line)
    except OSError as error:
        raise NoRun(f"no run listens at {folder / SOCKET} ({error.strerror or error})") from error


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[str]:
    """The socket's name by way of the folder's descriptor: the kernel takes 107 characters, a path may have more."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET}"
    finally:
        os.close(fd)


def _user_of(writer: asyncio.StreamWriter) -> int:
    peer = writer.get_extra_info("socket")
    _, user, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(user)


def _say(writer: asyncio.StreamWriter, **what: Any) -> None:
    if not writer.is_closing():
        writer.write(json.dumps(what).encode() + b"\n")
