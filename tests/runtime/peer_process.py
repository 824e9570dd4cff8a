"""A member of a job as a process of its own, told what to do one call at a time. Run as a script by `peers`.

The script imports torch once and forks for every connection, so that a new member costs milliseconds.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import socket
import sys
import threading
import time
from multiprocessing.connection import Connection, Listener
from typing import Any

import torch

from spare.api.wire import Plan
from spare_runtime.agent.lifeline import die_with
from spare_runtime.config import Environment, read_environment
from spare_runtime.meeting import Meeting
from spare_runtime.store import StoreServer


class Member:
    """What the process can be asked to do; every method is one command."""

    def __init__(self, env: Environment) -> None:
        self.bind, self.token = env.bind, env.token
        self.store = StoreServer(env.bind, env.token)
        self.meeting: Meeting | None = None
        self.own: list[socket.socket] = []

    @property
    def met(self) -> Meeting:
        """The newest meeting."""
        assert self.meeting is not None
        return self.meeting

    def store_address(self) -> str:
        """Of this member's own store."""
        return str(self.store.address)

    def meet(self, plan: Plan, deadline: float, timeout: float) -> None:
        """Another meeting, in place of the last one."""
        if self.meeting is not None:
            self.meeting.drop()
        self.meeting = Meeting(plan, self.store, self.token, self.bind, deadline, timeout)

    def enter(self) -> None:
        """Reach the leader's store."""
        self.met.enter()

    def exchange(self, mine: str) -> dict[int, str]:
        """Say one's facts and hear the others'."""
        return self.met.exchange(mine)

    def connect(self) -> None:
        """Wait for the process group."""
        self.met.group()

    def reduce(self, value: float) -> float:
        """Sum of one number over all."""
        tensor = torch.tensor([value], dtype=torch.float64)
        self.met.reduce([tensor], lambda: None)
        return float(tensor)

    def barrier(self) -> None:
        """The commit barrier."""
        self.met.barrier(lambda: None)

    def broadcast(self, value: float) -> float:
        """The lowest member's number."""
        tensor = torch.tensor([value])
        self.met.broadcast([tensor], self.met.members[0])
        return float(tensor)

    def interrupt(self) -> None:
        """As the thread that reads plans does; the one command that does not wait for its turn."""
        self.met.interrupt()

    def connect_of_its_own(self) -> None:
        """As a training script may: a listener, and a connection to it."""
        listener = socket.create_server(("127.0.0.1", 0))
        near = socket.create_connection(listener.getsockname())
        self.own = [listener, near, listener.accept()[0]]

    def own_connection_works(self) -> bool:
        """Whether what one end says is heard at the other."""
        _, near, far = self.own
        near.sendall(b"x")
        far.settimeout(10.0)
        return far.recv(1) == b"x"

    def go_deaf(self) -> None:
        """From now on gloo does not notice that connections are cut, as it sometimes does not."""
        self.met._cut = lambda: None  # type: ignore[method-assign]

    def send(self, value: float) -> None:
        """Begin a sum ahead of `reduce`."""
        self.met.send(torch.tensor([value], dtype=torch.float64))

    def drop(self) -> None:
        """Leave."""
        self.met.drop()

    def rounds(self, plans: list[Plan], meetings_fail: bool) -> tuple[int, int]:
        """Meet under plan after plan; how many descriptors and threads are left over by it."""
        before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
        for plan in plans:
            self.meet(plan, 10.0, 1.0 if meetings_fail else 10.0)
            self.enter()
            self.exchange("")
            if not meetings_fail:
                self.reduce(1.0)
        self.drop()
        self.meeting = None
        until = time.monotonic() + 10
        while threading.active_count() > threads and time.monotonic() < until:
            time.sleep(0.01)
        gc.collect()
        return len(os.listdir("/proc/self/fd")) - before, threading.active_count() - threads

    def pid(self) -> int:
        """This process."""
        return os.getpid()


def serve(line: Connection, env: Environment) -> None:
    """Answer each command with its result, or with the exception, and the seconds that it took."""
    member = Member(env)
    work: queue.Queue[tuple[str, tuple[Any, ...]]] = queue.Queue()

    def listen() -> None:
        try:
            while True:
                name, *arguments = line.recv()
                if name == "interrupt":
                    member.interrupt()
                else:
                    work.put((name, tuple(arguments)))
        except (EOFError, OSError):
            os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        name, arguments = work.get()
        began = time.monotonic()
        try:
            result, error = getattr(member, name)(*arguments), None
        except Exception as raised:  # noqa: BLE001  # the test's to judge
            result, error = None, (type(raised).__name__, str(raised), getattr(raised, "unreachable", None))
        line.send((result, error, time.monotonic() - began))


def main() -> None:
    """Fork a member for every connection, until the test's process ends."""
    env = read_environment()
    assert env.parent is not None
    die_with(env.parent)
    torch.set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    me = os.getpid()
    with Listener(sys.argv[1], "AF_UNIX") as listener:
        print("ready", flush=True)  # noqa: T201
        while True:
            line = listener.accept()
            if os.fork() == 0:
                listener.close()
                die_with(me)
                serve(line, env if line.recv() != "::1" else read_environment({**os.environ, "SPARE_BIND": "::1"}))
            line.close()


if __name__ == "__main__":
    main()
