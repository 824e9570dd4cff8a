"""A real `spare-agent` with a small worker, and the coordinator's end of the line in the test's hands."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from spare.api import wire
from tests.runtime.plans import JOB, TOKEN, UID

M = TypeVar("M", bound=wire.Message)
AGENT = Path(sysconfig.get_path("scripts")) / "spare-agent"
WORKER = Path(__file__).with_name("worker_script.py")
DEADLINE = 20.0


def until(condition: Callable[[], object], what: str, deadline: float = DEADLINE) -> None:
    """Look again until it holds."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > deadline:
            pytest.fail(f"in {deadline} s it did not happen that {what}")
        time.sleep(0.002)


def lives(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Line:
    """A connection to the agent, as a coordinator has one."""

    def __init__(self, address: wire.Address) -> None:
        self._socket = socket.create_connection(address, timeout=DEADLINE)
        self._lines = self._socket.makefile("rb")
        self.seen: list[wire.Message] = []

    def send(self, message: wire.Down | bytes) -> None:
        """One message, or bytes that may be none."""
        self._socket.sendall(message if isinstance(message, bytes) else message.line())

    def attach(self, **changed: Any) -> None:
        """The first message."""
        known: dict[str, Any] = {"job": JOB, "uid": UID, "epoch": 0, "token": TOKEN, "coordinator": "c"}
        self.send(wire.Attach(**known | changed))

    def next(self, kind: type[M], fits: Callable[[M], bool] = lambda _: True) -> M:
        """The next message of a kind, past others."""
        until = time.monotonic() + DEADLINE
        while time.monotonic() < until:
            line = self._lines.readline()
            assert line, f"the agent hung up before it sent a {kind.__name__}; it sent {self.seen[-5:]}"
            message = wire.read(line)
            self.seen.append(message)
            if isinstance(message, kind) and fits(message):
                return message
        pytest.fail(f"no {kind.__name__} in {DEADLINE} s; seen last: {self.seen[-5:]}")

    def rest(self) -> list[wire.Message]:
        """Everything until the agent hangs up."""
        return [wire.read(line) for line in self._lines]

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._socket.close()


class Stage:
    """One agent and what can be seen of it."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], address: wire.Address) -> None:
        self.folder, self.process, self.address = folder, process, address
        self.heard = folder / "heard"
        self._lines: list[Line] = []

    def line(self) -> Line:
        """Another connection; nothing is said yet."""
        self._lines.append(Line(self.address))
        return self._lines[-1]

    def attached(self) -> Line:
        """A connection whose token was right."""
        line = self.line()
        line.attach()
        return line

    def ready(self) -> Line:
        """As `attached`, when the worker has said hello."""
        line = self.attached()
        line.next(wire.Hello, lambda hello: hello.pid > 0)
        return line

    def worker(self) -> int:
        """The worker's process."""
        until(lambda: self.told("pid"), "the worker began")
        return int(self.told("pid")[0].split()[1])

    def told(self, pattern: str = "") -> list[str]:
        """Lines that the worker got, as they came."""
        lines = self.heard.read_text().splitlines() if self.heard.exists() else []
        return [line for line in lines if re.search(pattern, line)]

    def ends(self) -> int:
        """The agent's exit code."""
        return self.process.wait(DEADLINE)

    def stderr(self) -> str:
        """What the agent and its worker wrote."""
        return (self.folder / "stderr").read_text()

    def family(self) -> list[int]:
        """All living processes that this agent's environment reached."""
        mark, found = f"SPARE_DIR={self.folder}\0".encode(), []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and lives(int(entry)):
                try:
                    if mark in Path(f"/proc/{entry}/environ").read_bytes():
                        found.append(int(entry))
                except (FileNotFoundError, ProcessLookupError, PermissionError):
                    continue
        return found

    def close(self) -> None:
        """Nothing may be left."""
        for line in self._lines:
            line.close()
        for pid in self.family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(DEADLINE)


@contextmanager
def acting(folder: Path, *orders: str, command: list[str] | None = None, **env: str) -> Iterator[Stage]:
    """An agent whose worker follows orders; see `worker_script`."""
    reader, writer = os.pipe()
    told = {
        **os.environ,
        "SPARE_JOB": JOB,
        "SPARE_GROUP": "0",
        "SPARE_UID": UID,
        "SPARE_TOKEN": TOKEN,
        "SPARE_DIR": str(folder),
        "SPARE_ANNOUNCE_FD": str(writer),
        "SPARE_HEARTBEAT": "0.2",
        "SPARE_DEAD_AFTER": "5",
    }
    worker = command or [sys.executable, "-I", "-S", str(WORKER), str(folder / "heard"), *orders]
    with open(folder / "stderr", "wb") as stderr:
        process = subprocess.Popen(
            [str(AGENT), "--", *worker], env=told | env, pass_fds=[writer], stderr=stderr, stdin=subprocess.DEVNULL
        )
    os.close(writer)
    with os.fdopen(reader) as announced:
        address = announced.readline().strip()
    assert address, (folder / "stderr").read_text()
    stage = Stage(folder, process, wire.Address.parse(address))
    try:
        yield stage
    finally:
        stage.close()
