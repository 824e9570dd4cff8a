"""What all jobs of one operator share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from spare.api import wire
from spare.coordinator.transport import Channel, Transport
from spare_operator import names
from spare_operator.cluster import Cluster
from spare_operator.network import Operators
from spare_operator.nodes import Nodes


@dataclass(frozen=True)
class Surroundings:
    """Handed to each job."""

    cluster: Cluster
    nodes: Nodes
    leading: Callable[[], bool]
    """Whether this operator may still act."""
    identity: str
    """Incarnation of this operator, for the agents' logs."""
    term: int
    """Number of its leadership."""
    agent_port: int = names.AGENT_PORT
    operators: Operators | None = None
    """Whom each job's NetworkPolicy lets in beside its own pods; None: no policies are made."""
    clock: Callable[[], float] = time.monotonic
    """Runs as the event loop's does; replaced by tests, as `wall` is."""
    wall: Callable[[], float] = time.time

    def now(self) -> datetime:
        """The time for others to read: UTC, to the second, as Kubernetes writes it."""
        return datetime.fromtimestamp(self.wall(), UTC).replace(microsecond=0)


class Fenced:
    """A transport that says nothing once we may not act: who was stopped may wake up as one of two operators (F63)."""

    def __init__(self, inner: Transport, leading: Callable[[], bool]) -> None:
        self._inner = inner
        self._leading = leading

    async def connect(self, address: wire.Address) -> Channel:
        """See Transport."""
        if not self._leading():
            raise ConnectionAbortedError("this operator does not hold the lease")
        return _FencedChannel(await self._inner.connect(address), self._leading)


class _FencedChannel:
    def __init__(self, inner: Channel, leading: Callable[[], bool]) -> None:
        self._inner = inner
        self._leading = leading

    async def read(self) -> bytes:
        return await self._inner.read()

    async def write(self, data: bytes) -> None:
        if not self._leading():
            raise ConnectionAbortedError("this operator does not hold the lease")
        await self._inner.write(data)

    async def close(self) -> None:
        await self._inner.close()
