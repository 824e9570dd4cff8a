"""Members of one job as processes, driven call by call: real stores and process groups, over loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import pytest

from spare.api.wire import Plan
from tests.runtime.plans import JOB, TOKEN, UID, plan

SCRIPT = Path(__file__).with_name("peer_process.py")
DEADLINE = 30.0


def until(condition: Callable[[], object], what: str, deadline: float = DEADLINE) -> None:
    """Look again until it holds."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > deadline:
            pytest.fail(f"in {deadline} s it did not happen that {what}")
        time.sleep(0.002)


@dataclass
class Answer:
    """What came of a call."""

    result: Any
    error: tuple[str, str, Any] | None
    seconds: float

    @property
    def failed(self) -> str:
        """Name of what was raised."""
        assert self.error is not None, f"nothing was raised; the result was {self.result}"
        return self.error[0]

    @property
    def text(self) -> str:
        """What the exception says."""
        assert self.error is not None
        return self.error[1]


class Peer:
    """One member's process."""

    def __init__(self, group: int, line: Connection) -> None:
        self.group, self._line = group, line
        self.address: str = self.call("store_address").result
        self.pid: int = self.call("pid").result

    def ask(self, name: str, *arguments: Any) -> None:
        """Begin a call."""
        self._line.send((name, *arguments))

    def busy(self, seconds: float = 0.0) -> bool:
        """Whether the call is still under way, after waiting for at most so long."""
        return not self._line.poll(seconds)

    def answer(self, deadline: float = DEADLINE) -> Answer:
        """The end of the call."""
        assert self._line.poll(deadline), f"group {self.group} is still at it after {deadline} s"
        return Answer(*self._line.recv())

    def call(self, name: str, *arguments: Any) -> Answer:
        """A whole call, which must succeed."""
        self.ask(name, *arguments)
        answer = self.answer()
        assert answer.error is None, f"group {self.group}: {name} failed: {answer.error}"
        return answer

    def signal(self, sig: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, sig)

    def blocked(self) -> None:
        """Wait until its main thread sleeps in the kernel, in the call that it was asked for."""

        def sleeps() -> bool:
            stat = Path(f"/proc/{self.pid}/task/{self.pid}/stat").read_text()
            return stat.rpartition(")")[2].split()[0] == "S" and self.busy()

        until(sleeps, f"group {self.group} waits")


class Peers:
    """Some members; group numbers are ranks, and group 0 leads."""

    def __init__(self, members: list[Peer]) -> None:
        self.members = members

    def __iter__(self) -> Iterator[Peer]:
        return iter(self.members)

    def plan(self, group: int, epoch: int = 1, live: tuple[int, ...] | None = None, leader: str = "") -> Plan:
        """The group's part of a plan."""
        live = tuple(range(len(self.members))) if live is None else live
        address = leader or self.members[live[0]].address
        return plan(epoch, group=group, live=live, stores=(address,))

    def begin(self, epoch: int = 1, deadline: float = DEADLINE, timeout: float = DEADLINE, **more: Any) -> None:
        """Every member has a meeting of this epoch; nothing is connected."""
        for peer in more.pop("who", self.members):
            peer.call("meet", self.plan(peer.group, epoch, **more), deadline, timeout)

    def all(self, name: str, *arguments: Any) -> list[Any]:
        """The same call at all members at once; their results."""
        for peer in self.members:
            peer.ask(name, *arguments)
        answers = [peer.answer() for peer in self.members]
        assert all(a.error is None for a in answers), answers
        return [a.result for a in answers]

    def met(self, epoch: int = 1, **more: Any) -> None:
        """All members, connected."""
        self.begin(epoch, **more)
        self.all("enter")
        self.all("connect")


@contextmanager
def nursery(folder: Path) -> Iterator[Callable[[int, str], Peers]]:
    """Makes members; all of them end with it."""
    socket = f"{folder}/peers"
    env = {**os.environ, "SPARE_JOB": JOB, "SPARE_GROUP": "0", "SPARE_UID": UID, "SPARE_TOKEN": TOKEN}
    env |= {"SPARE_PARENT": str(os.getpid()), "TORCH_CPP_LOG_LEVEL": "FATAL"}
    lines: list[Connection] = []
    with subprocess.Popen([sys.executable, str(SCRIPT), socket], env=env, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"

            def members(count: int, bind: str = "127.0.0.1") -> Peers:
                while lines:
                    lines.pop().close()  # the members of the test before end
                for _ in range(count):
                    lines.append(Client(socket))
                    lines[-1].send(bind)
                return Peers([Peer(group, line) for group, line in enumerate(lines)])

            yield members
        finally:
            process.kill()
