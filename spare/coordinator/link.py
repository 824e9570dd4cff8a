"""The connection to one agent: dialled, kept, dialled again; messages both ways.

An agent that is not there, breaks off or says something wrong is redialled until the link is closed: whether it is
lost is not decided here. What is to be sent waits in a slot per kind of message, so a plan replaces an older one that
has not gone out, and an agent that reads nothing costs no memory and holds nobody up.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spare.api import wire
from spare.control.signal import LinkDown, Report
from spare.coordinator.backend import Emit
from spare.coordinator.transport import Channel, Transport

logger = logging.getLogger(__name__)

BACKOFF_FIRST: Final = 0.05
BACKOFF_MOST: Final = 2.0
"""Seconds between two tries to reach an agent, doubled from the first to the most."""


@dataclass(frozen=True)
class Identity:
    """Who calls, and how it proves that it may."""

    job: str
    token: str
    coordinator: str
    """Incarnation of the coordinator, for the agents' logs."""
    term: int = 0
    """Number of its leadership, where coordinators follow each other: see `wire.Attach`."""
    groups: int | None = None
    """Of the job: who says a higher number was started as a spare, and may have taken a group's place since."""


@dataclass(frozen=True)
class Events:
    """Whom a link tells. All are called from the event loop and return at once."""

    emit: Emit
    refused: Callable[[int, str], None]
    """(group, why): a line or a message was not acted on."""
    sent: Callable[[int, int, wire.Down], None]
    """(group, pod, message): the connection took it."""


class Link:
    """One agent's connection. `start` begins to dial, `close` ends everything."""

    def __init__(
        self,
        identity: Identity,
        group: int,
        uid: str,
        address: str,
        transport: Transport,
        events: Events,
        *,
        patience: float,
        pod: int = 0,
    ) -> None:
        """`patience`: seconds for a connection to be made, and for the hello on it."""
        self.group = group
        self.pod = pod
        self.uid = uid
        self.address = address
        self.up = False
        """Whether the agent has said hello on a connection that stands."""
        self._identity = identity
        self._transport = transport
        self._events = events
        self._patience = patience
        self._slots: dict[str, wire.Down] = {}
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._backoff = BACKOFF_FIRST
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def start(self) -> None:
        """Begin to dial."""
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"link to group {self.group}, pod {self.pod}"
        )

    def send(self, message: wire.Down) -> None:
        """Send as soon as the connection stands and takes it; an unsent message of the same kind is dropped."""
        self._slots[message.kind] = message
        self._empty.clear()
        self._filled.set()

    async def flushed(self) -> None:
        """Wait until nothing is left to be sent. No deadline of its own."""
        await self._empty.wait()

    async def close(self) -> None:
        """Hang up, for good."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    # --- one connection after the other -----------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._closed:
            try:
                why = await self._connection()
            except wire.Refused as error:
                self._events.refused(self.group, str(error))
                why = str(error)
            except TimeoutError:
                why = f"no answer within {self._patience:g} s"
            except (OSError, EOFError) as error:
                why = str(error) or type(error).__name__
            except Exception as error:  # a bug: told with its place, and survived as a connection that broke
                logger.exception("the link to group %d, pod %d failed", self.group, self.pod)
                why = f"a defect of this program, please report it: {error!r}"
            self._events.emit(LinkDown(self.group, self.uid, f"{self.address}: {why}", self.pod))
            await asyncio.sleep(self._backoff)
            self._backoff = min(2 * self._backoff, BACKOFF_MOST)

    async def _connection(self) -> str:
        """Dial, attach and serve. Returns why it ended, or raises."""
        try:
            address = wire.Address.parse(self.address)
        except ValueError as error:
            raise wire.Refused(str(error)) from error
        async with asyncio.timeout(self._patience):
            channel = await self._transport.connect(address)
        try:
            async with asyncio.timeout(self._patience):
                hello = await self._attach(channel)
            self._backoff = BACKOFF_FIRST
            self.up = True
            self._events.emit(Report(hello))
            await self._serve(channel)
        finally:
            self.up = False
            await channel.close()
        return "the agent closed the connection"

    async def _attach(self, channel: Channel) -> wire.Hello:
        me = self._identity
        attach = wire.Attach(
            job=me.job, epoch=0, uid=self.uid, token=me.token, coordinator=me.coordinator, term=me.term
        )
        await channel.write(attach.line())
        line = await channel.read()
        if not line:
            raise EOFError("the agent closed the connection before its hello")
        hello = wire.read(line)
        if isinstance(hello, wire.Refusal):
            raise wire.Refused(f"the agent refused {hello.what!r}: {hello.reason}")
        if not isinstance(hello, wire.Hello):
            raise wire.Refused(f"the first message of an agent must be 'hello', not {hello.kind!r}")
        if not hmac.compare_digest(hello.token.encode(), me.token.encode()):
            raise wire.Refused("'hello' without this job's token")
        if (why := self._foreign(hello)) is not None:
            raise wire.Refused(why)
        self.uid = hello.uid  # a new incarnation at the old address: it replaces the one that we knew
        return hello

    def _foreign(self, message: wire.Message, uid: str | None = None) -> str | None:
        why = wire.stale(message, job=self._identity.job, uid=message.uid if uid is None else uid)
        said, groups = getattr(message, "group", self.group), self._identity.groups
        if why is None and said != self.group and (groups is None or max(said, self.group) < groups):
            why = f"message {message.kind!r} is of group {said}; this is group {self.group}"
        if why is None and getattr(message, "pod", self.pod) != self.pod:
            why = f"message {message.kind!r} is of pod {getattr(message, 'pod', None)}; this is pod {self.pod}"
        return why

    async def _serve(self, channel: Channel) -> None:
        """Read until the other side closes; write meanwhile. A failed write ends the reading too."""
        loop = asyncio.get_running_loop()
        reading = loop.create_task(self._reading(channel))
        writing = loop.create_task(self._writing(channel))
        try:
            done, _ = await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, writing):  # in this order: a set's would differ from run to run
                if task in done:
                    task.result()
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _reading(self, channel: Channel) -> None:
        while line := await channel.read():
            try:
                message = wire.read(line)
                why = self._foreign(message, self.uid)
                if why is None and isinstance(message, wire.Down):
                    why = f"message {message.kind!r} is not for a coordinator"
            except wire.Refused as error:
                self._events.refused(self.group, str(error))
                continue
            if why is not None:
                self._events.refused(self.group, why)
            elif not isinstance(message, wire.Down):
                self._events.emit(Report(message))

    async def _writing(self, channel: Channel) -> None:
        self._filled.set()  # what an earlier connection left
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._slots:
                kind, message = next(iter(self._slots.items()))
                if message.uid == self.uid:  # else made for an incarnation that the agent is no more
                    await channel.write(message.line())
                    self._events.sent(self.group, self.pod, message)
                # It keeps its place until it is written, so a broken line costs no order: the agent takes one twice.
                if self._slots.get(kind) is message:
                    del self._slots[kind]
            self._empty.set()
