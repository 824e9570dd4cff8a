"""The agent's side of a session that is a world of one group, in the session's own process."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from spare.api import wire
from spare.planner import healthy, place

M = 3
HERE = {"SPARE_JOB": "j", "SPARE_GROUP": "0", "SPARE_UID": "u", "SPARE_TOKEN": "t", "SPARE_RENDEZVOUS_TIMEOUT": "20"}
KEPT: list[Any] = []
"""What must live as long as this process: a session whose agent hangs up ends it."""


def part(epoch: int, base: int, store: str) -> wire.Plan:
    """A plan with one group, which leads, hosts everything and computes it."""
    placement = place(1, 1)
    return wire.Plan(
        job="j",
        uid="u",
        epoch=epoch,
        base=base,
        digest=f"d{epoch}",
        group=0,
        admission=1,
        origin=1,
        members="0",
        stores=(store,),
        leader_group=0,
        placement=wire.PlacementRule(groups=1, redundancy=1, offsets=placement.offsets, strategy="Golomb"),
        micro_batches=M,
        schedule=healthy(placement, M).ranges(0),
        writer=0,
        reason="a test",
    )


class AgentEnd:
    """The agent's side: gives the first plan to who says hello, ends the job when it is done."""

    def __init__(self, finish: bool = True) -> None:
        self.messages: list[wire.Message] = []
        self._finish, self._store = finish, ""
        self._news = threading.Condition()
        self._listener = socket.socket(socket.AF_UNIX)
        name = f"session-{os.getpid()}-{len(KEPT)}"
        self._listener.bind("\0" + name)
        self._listener.listen()
        os.environ.update(HERE | {"SPARE_AGENT": "@" + name})
        threading.Thread(target=self._serve, daemon=True).start()
        KEPT.append(self)

    def _serve(self) -> None:
        self._line, _ = self._listener.accept()
        for text in self._line.makefile("rb"):
            message = wire.read(text)
            if isinstance(message, wire.Hello):
                assert message.store is not None
                self._store = message.store
                self.push(1, 1)
            if isinstance(message, wire.Done) and self._finish:
                self._line.sendall(wire.Finish(job="j", uid="u", epoch=0).line())
            with self._news:
                self.messages.append(message)
                self._news.notify_all()

    def push(self, epoch: int, base: int) -> None:
        """Another plan."""
        self._line.sendall(part(epoch, base, self._store).line())

    def wait(self, fits: Callable[[wire.Message], bool]) -> None:
        """Until a message came."""
        with self._news:
            assert self._news.wait_for(lambda: any(map(fits, self.messages)), 20.0), self.messages

    def kinds(self) -> list[str]:
        """Of all that came, heartbeats left out."""
        return [m.kind for m in self.messages if m.kind != "alive"]
