"""The network: hosts that cannot reach each other for a while, connections with an order, calls without one.

A cut between two hosts holds what is sent until it heals, as TCP does; connections may also be reset, and what was on
its way is then lost. A host that vanishes closes nothing.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from typing import Any

from tests.chaos.core import Core, Node

END = b""


class Net:
    """Who can reach whom."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._cuts: dict[frozenset[str], float] = {}
        self.vanished: set[str] = set()

    def cut(self, one: str, other: str, seconds: float) -> None:
        """Hold everything between two hosts for a while."""
        pair = frozenset((one, other))
        self._cuts[pair] = max(self._cuts.get(pair, 0.0), self.core.now + seconds)

    def heals(self, one: str, other: str) -> float:
        """When the two can reach each other: now, or later."""
        if not self._cuts or one == other:
            return self.core.now
        return max(self._cuts.get(frozenset((one, other)), 0.0), self.core.now)

    def send(self, source: str, to: Node, call: Callable[..., object], *args: Any) -> None:
        """Let something happen at a node, one message later. No order among such messages."""
        if source in self.vanished or to.host in self.vanished:
            return
        arrives = self.heals(source, to.host) + self.core.latency()
        self.core.at(arrives, to, self._arrive, (source, to, call, args))

    def _arrive(self, source: str, to: Node, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        heals = self.heals(source, to.host)
        if heals > self.core.now:  # the cut came while it was on its way
            self.core.at(heals + self.core.latency(), to, self._arrive, (source, to, call, args))
        else:
            call(*args)


class Stream:
    """One direction of a connection: lines in their order, then its end or an error. Read by one coroutine."""

    def __init__(self, net: Net, source: str, to: Node) -> None:
        self._net, self._source, self._to = net, source, to
        self._coming: collections.deque[bytes] = collections.deque()
        self.here: collections.deque[bytes] = collections.deque()
        """Lines that have arrived."""
        self.on_line: Callable[[], None] | None = None
        """Told of each arrival, where no coroutine reads."""
        self._last = 0.0
        self._waiter: asyncio.Future[None] | None = None
        self.closed = False
        """By the sender; nothing more is taken."""
        self.error: str | None = None
        self.twice = 0.0
        """How probable it is that a line comes twice."""

    def put(self, line: bytes) -> None:
        """Send a line."""
        net, now = self._net, self._net.core.now
        if self.closed or self._source in net.vanished or self._to.host in net.vanished:
            return
        self._last = max(self._last, net.heals(self._source, self._to.host) + net.core.latency())
        for _ in range(2 if line != END and self.twice and net.core.random.random() < self.twice else 1):
            self._coming.append(line)
            net.core.at(max(self._last, now), self._to, self._pump)

    def close(self) -> None:
        """Send the end."""
        if not self.closed:
            self.put(END)
            self.closed = True

    def reset(self, error: str) -> None:
        """Lose what is on its way; the reader gets an error."""
        if self.error is None:
            self.error, self.closed = error, True
            self._coming.clear()
            self._net.core.at(self._net.core.now + self._net.core.latency(), self._to, self._wake)

    def _pump(self) -> None:
        if not self._coming:
            return
        net = self._net
        heals = net.heals(self._source, self._to.host)
        if heals > net.core.now:
            net.core.at(heals + net.core.latency(), self._to, self._pump)
            return
        self.here.append(self._coming.popleft())
        self._wake()

    def _wake(self) -> None:
        if self.on_line is not None:
            self.on_line()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def readline(self) -> bytes:
        """The next line; empty at the end.

        Raises:
            ConnectionResetError: the connection broke.
        """
        while not self.here:
            if self.error is not None:
                raise ConnectionResetError(self.error)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        line = self.here[0]
        if line != END:  # an end stays the end
            self.here.popleft()
        return line


class Writer:
    """The sender's side, as `asyncio.StreamWriter` shows it."""

    def __init__(self, connection: Connection, stream: Stream) -> None:
        self._connection, self._stream = connection, stream

    def write(self, data: bytes) -> None:
        """Send a line."""
        self._stream.put(data)

    def is_closing(self) -> bool:
        """Whether it was closed or broke."""
        return self._stream.closed

    def close(self) -> None:
        """Hang up, both ways."""
        self._connection.close(self._stream)

    async def drain(self) -> None:
        """Nothing is held back here."""
        if self._stream.error is not None:
            raise ConnectionResetError(self._stream.error)


class Connection:
    """Two streams between a dialler and who was dialled."""

    def __init__(self, net: Net, dialler: Node, dialled: Node) -> None:
        self.dialler, self.dialled = dialler, dialled
        self.down = Stream(net, dialler.host, dialled)
        self.up = Stream(net, dialled.host, dialler)

    def close(self, mine: Stream) -> None:
        """One side hangs up: the other reads its end; what it still says reaches nobody."""
        mine.close()
        other = self.up if mine is self.down else self.down
        other.closed = True

    def reset(self, error: str) -> None:
        """It breaks."""
        self.down.reset(error)
        self.up.reset(error)

    def gone(self, node: Node) -> None:
        """The kernel closes the connections of a process that has ended."""
        self.close(self.down if node is self.dialler else self.up)


class Channel:
    """The coordinator's end, as `spare.coordinator.transport.Channel` has it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def read(self) -> bytes:
        """See Channel."""
        return await self._connection.up.readline()

    async def write(self, data: bytes) -> None:
        """See Channel."""
        down = self._connection.down
        if down.error is not None or down.closed:
            raise BrokenPipeError(down.error or "the connection is closed")
        down.put(data)

    async def close(self) -> None:
        """See Channel."""
        self._connection.close(self._connection.down)
