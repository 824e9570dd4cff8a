"""The link to one agent over real loopback sockets: who is believed, what is refused, what survives a broken line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from spare.api import wire
from spare.control.signal import LinkDown, Report, Signal
from spare.coordinator.link import Events, Identity, Link
from spare.coordinator.transport import Tcp

ME = Identity("job/1", "secret", "c1")
HEAD: dict[str, Any] = {"job": "job/1", "epoch": 0, "uid": "u0", "group": 0}
HELLO = wire.Hello(**HEAD, token="secret", store="127.0.0.1:29500")
ALIVE = wire.Alive(**HEAD, worker="running")

Agent = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Told:
    """What the link told."""

    signals: asyncio.Queue[Signal] = field(default_factory=asyncio.Queue)
    refusals: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    sent: list[wire.Down] = field(default_factory=list)

    async def report(self) -> wire.Up:
        signal = await self.signals.get()
        assert isinstance(signal, Report), signal
        return signal.message


@asynccontextmanager
async def linked(agent: Agent, host: str = "127.0.0.1", me: Identity = ME) -> Any:
    """A link to an agent that behaves as told."""
    server = await asyncio.start_server(agent, host, 0)
    address = wire.Address(*server.sockets[0].getsockname()[:2])
    told = Told()
    events = Events(
        told.signals.put_nowait,
        lambda group, why: told.refusals.put_nowait(why),
        lambda group, pod, message: told.sent.append(message),
    )
    link = Link(me, 0, "u0", str(address), Tcp(), events, patience=5.0)
    link.start()
    try:
        yield link, told
    finally:
        await link.close()
        server.close()


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test; a deadline that no passing test comes near to."""

    async def limited() -> None:
        async with asyncio.timeout(10):
            await main

    asyncio.run(limited())


def lines(*out: bytes, then: Agent | None = None) -> Agent:
    """An agent that reads the attach, says these lines, and stays until the line breaks."""

    async def agent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = wire.read(await reader.readline())
        assert isinstance(first, wire.Attach)
        assert (first.token, first.uid, first.coordinator) == ("secret", "u0", "c1")
        writer.writelines(out)
        if then is not None:
            await then(reader, writer)
        else:
            await reader.read()
        writer.close()

    return agent


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_reports_come_up_in_order(host: str) -> None:
    """Hello first, then the rest; also over IPv6 (F15)."""

    async def main() -> None:
        async with linked(lines(HELLO.line(), ALIVE.line()), host) as (link, told):
            assert await told.report() == HELLO
            assert await told.report() == ALIVE
            assert link.up

    run(main())


def test_what_was_a_spare_may_say_its_old_number() -> None:
    """It has taken group 0's place in a job of two groups, and learns that later; another group's number is refused."""

    async def main() -> None:
        spare, other = (ALIVE.model_copy(update={"group": number}) for number in (2, 1))
        hello = HELLO.model_copy(update={"group": 2})
        agent = lines(hello.line(), spare.line(), other.line(), ALIVE.line())
        async with linked(agent, me=replace(ME, groups=2)) as (_, told):
            assert [await told.report() for _ in range(3)] == [hello, spare, ALIVE]
            assert "is of group 1; this is group 0" in await told.refusals.get()

    run(main())


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (HELLO.model_copy(update={"token": "guessed"}), "'hello' without this job's token"),
        (HELLO.model_copy(update={"token": "gues\u00e9"}), "'hello' without this job's token"),
        (HELLO.model_copy(update={"job": "job/2"}), "is for job 'job/2'; this is 'job/1'"),
        (HELLO.model_copy(update={"group": 3}), "is of group 3; this is group 0"),
        (ALIVE, "must be 'hello', not 'alive'"),
        (wire.Refusal(**HEAD, what="attach", reason="too old"), "the agent refused 'attach': too old"),
    ],
)
def test_a_stranger_is_refused_before_it_is_heard(first: wire.Up, why: str) -> None:
    """Nothing of it reaches the inbox but that the line is down (F59)."""

    async def main() -> None:
        async with linked(lines(first.line(), ALIVE.line())) as (link, told):
            assert why in await told.refusals.get()
            down = await told.signals.get()

            assert isinstance(down, LinkDown)
            assert why in down.error
            assert not link.up

    run(main())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"what?\n", "not a message"),
        (b'{"kind": "sing"}\n', "unknown message 'sing'"),
        (ALIVE.model_copy(update={"protocol": 9}).line(), "speaks protocol 9"),
        (ALIVE.model_copy(update={"uid": "older"}).line(), "is for incarnation 'older'; this is 'u0'"),
        (ALIVE.model_copy(update={"group": 2}).line(), "is of group 2"),
        (wire.Stop(job="job/1", epoch=1, uid="u0", reason="x").line(), "'stop' is not for a coordinator"),
        (HELLO.line().replace(b":29500", b":0"), "the port must be 1 to 65535"),
    ],
)
def test_a_wrong_message_is_refused_and_the_line_stays(line: bytes, why: str) -> None:
    """It is told, not acted on; the next one counts (F08, F14)."""

    async def main() -> None:
        async with linked(lines(HELLO.line(), line, ALIVE.line())) as (_, told):
            assert await told.report() == HELLO
            assert await told.report() == ALIVE
            assert why in await told.refusals.get()

    run(main())


def test_a_new_incarnation_at_the_old_address_is_passed_on() -> None:
    """A restarted container: the decision is not the link's (F13)."""

    async def main() -> None:
        fresh = HELLO.model_copy(update={"uid": "u0b"})
        async with linked(lines(fresh.line())) as (link, told):
            assert await told.report() == fresh
            assert link.uid == "u0b"

    run(main())


def test_an_unsent_plan_is_replaced_by_a_newer_one() -> None:
    """What waits while the line is down: one of each kind, the newest (a slow agent costs no memory)."""

    async def main() -> None:
        may_answer, got = asyncio.Event(), asyncio.Queue[bytes]()

        async def agent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            await may_answer.wait()
            writer.write(HELLO.line())
            while line := await reader.readline():
                got.put_nowait(line)
            writer.close()

        async with linked(agent) as (link, told):
            for nonce in range(3):
                link.send(wire.Probe(job="job/1", epoch=1, uid="u0", nonce=nonce))
            link.send(wire.Finish(job="job/1", epoch=1, uid="u0"))
            link.send(wire.Stop(job="job/1", epoch=1, uid="older", reason="for an older incarnation"))
            may_answer.set()
            await link.flushed()

            assert [m.kind for m in told.sent] == ["probe", "finish"]
            assert wire.read(await got.get()) == wire.Probe(job="job/1", epoch=1, uid="u0", nonce=2)
            assert wire.read(await got.get()).kind == "finish"

    run(main())


def test_a_broken_line_is_dialled_again() -> None:
    """The agent closes; the next connection says hello again."""

    async def main() -> None:
        async def close_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pass

        async with linked(lines(HELLO.line(), then=close_at_once)) as (_, told):
            assert await told.report() == HELLO
            assert isinstance(await told.signals.get(), LinkDown)
            assert await told.report() == HELLO

    run(main())


def test_an_agent_that_reads_nothing_does_not_hold_up_the_close() -> None:
    """Its buffers are full; the connection is dropped all the same."""

    async def main() -> None:
        release = asyncio.Event()

        async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await release.wait()

        async with linked(lines(HELLO.line(), then=deaf)) as (link, told):
            await told.report()
            for _ in range(40):
                link.send(wire.Stop(job="job/1", epoch=1, uid="u0", reason="x" * 1_000_000))
                await asyncio.sleep(0)
            await link.close()
            release.set()

    run(main())


def test_a_line_longer_than_any_message_breaks_the_connection() -> None:
    """It is refused by its length, and no more of it is read."""

    async def main() -> None:
        async with linked(lines(HELLO.line(), b"x" * (wire.MAX_LINE + 10) + b"\n")) as (_, told):
            assert await told.report() == HELLO
            assert "longer than" in await told.refusals.get()
            assert isinstance(await told.signals.get(), LinkDown)

    run(main())


def test_a_defect_is_told_and_survived(caplog: pytest.LogCaptureFixture) -> None:
    """An error that nobody thought of ends no link in silence: it is logged with its place, and redialled."""

    async def main() -> None:
        async with linked(lines(HELLO.line())) as (link, told):
            assert await told.report() == HELLO
            real, calls = link._transport.connect, []

            async def connect(address: wire.Address) -> Any:
                calls.append(address)
                if len(calls) == 1:
                    raise ZeroDivisionError("nobody thought of this")
                return await real(address)

            link._transport.connect = connect
            link._task.cancel()
            await asyncio.wait({link._task})
            link.start()
            while not isinstance(down := await told.signals.get(), LinkDown):
                pass

            assert "nobody thought of this" in down.error
            assert await told.report() == HELLO

    run(main())
    [record] = [each for each in caplog.records if each.name == "spare.coordinator.link"]
    assert record.exc_info is not None
