"""Simulated agents for `benchmarks/fleet.py`: they say what real ones say, as often, and compute nothing.

As a program it listens for all of them on one loopback port and takes orders from its standard input, one JSON object a
line: {"lose": [groups]} lets their workers die, {"count": 1} prints how many messages were sent and resets the count.
"""

# ruff: noqa: T201 (a program that talks to its parent by lines)
from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run from a checkout, installed or not

from spare.api import wire
from spare_runtime.telling import pause

JOB, TOKEN = "fleet", "benchmark"
STORE = "127.0.0.1:1"


def uid_of(group: int, incarnation: int) -> str:
    """What the simulated agent of a group is called."""
    return f"{group}-{incarnation}"


class Agent:
    """One agent and its worker, on whatever carries its lines."""

    def __init__(self, uid: str, send: Callable[[bytes], None]) -> None:
        self.uid, self.group = uid, int(uid.split("-")[0])
        self.epoch = self.step = self.sent = 0
        self.lost = False
        self._send = send
        self._began = self._next = 0.0

    def say(self, kind: type[wire.Up], **fields: object) -> None:
        """Send a report."""
        head = {"job": JOB, "uid": self.uid, "epoch": self.epoch, "group": self.group}
        self._send(kind(**head, **fields).line())  # type: ignore[arg-type]
        self.sent += 1

    def welcome(self) -> None:
        """The answer to `attach`: ready to train."""
        self.say(wire.Hello, token=TOKEN, pid=1, store=STORE, step=self.step)

    def take(self, line: bytes) -> None:
        """Act on what the coordinator says."""
        message = wire.read(line)
        if self.lost:
            return
        if isinstance(message, wire.Plan) and message.admission is not None and message.epoch > self.epoch:
            self.epoch = message.epoch
            self._began, self._next = asyncio.get_running_loop().time(), 0.0
            self.say(wire.Running, step=self.step)
        elif isinstance(message, wire.Probe):
            self.beat(message.nonce)

    def beat(self, nonce: int | None = None) -> None:
        """A sign of life."""
        self.say(wire.Alive, nonce=nonce, worker="running", step=self.step, phase="compute")

    def commit(self, now: float, ranks: int) -> None:
        """A step is committed, which is reported as often as real workers do."""
        self.step += 1
        if now >= self._next:
            self._next = now + pause(now - self._began, ranks)
            self.say(wire.Committed, step=self.step, loss=1.0, computed=8)

    def lose(self) -> None:
        """The worker dies."""
        self.say(wire.Exited, signal=9)
        self.lost = True


class Fleet:
    """All agents of one job, and their clockwork: a heartbeat and a step each `period`, spread over it."""

    def __init__(self, groups: int, period: float) -> None:
        self.groups, self.period = groups, period
        self.agents: dict[int, Agent] = {}

    def enter(self, agent: Agent) -> None:
        """The agent is there from now on."""
        self.agents[agent.group] = agent
        loop = asyncio.get_running_loop()
        loop.call_later(self.period * agent.group / self.groups, self._tick, agent)

    def _tick(self, agent: Agent) -> None:
        if agent.lost or self.agents.get(agent.group) is not agent:
            return
        agent.beat()
        if agent.epoch:
            agent.commit(asyncio.get_running_loop().time(), self.groups)
        asyncio.get_running_loop().call_later(self.period, self._tick, agent)

    def sent(self) -> int:
        """Messages since the last call."""
        total = sum(agent.sent for agent in self.agents.values())
        for agent in self.agents.values():
            agent.sent = 0
        return total


class Connection(asyncio.Protocol):
    """An agent on a socket."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._rest = fleet, b""
        self._agent: Agent | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol."""
        if self._agent is not None:
            self._agent.lost = True

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if self._agent is not None:
                self._agent.take(line)
                continue
            attach = wire.read(line)
            assert isinstance(attach, wire.Attach)
            assert attach.token == TOKEN
            assert self._transport is not None
            self._agent = Agent(attach.uid, self._transport.write)
            self._agent.welcome()
            self._fleet.enter(self._agent)


async def serve(groups: int, period: float) -> None:
    """Until standard input ends."""
    fleet = Fleet(groups, period)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(fleet), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        order = json.loads(line)
        for group in order.get("lose", ()):
            fleet.agents[group].lose()
        if "count" in order:
            print(fleet.sent(), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
