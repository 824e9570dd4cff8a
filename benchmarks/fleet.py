"""How many agents one coordinator carries: `make bench-fleet`.

The real coordinator, with the real connections, against simulated agents: 1,000 on real sockets, in a process of their
own, and more in virtual time, where what counts is the processor time of the coordinator and its agents together. Every
agent sends a heartbeat each second and commits a step, of which it reports as many as real ones do. Measured: from the
first plan's decision until every agent runs under it, the same after 1, 10 and 100 losses at once, the coordinator's
processor time and memory while nothing fails, and the messages that it takes. The last line is one JSON object of all
figures.
"""

from __future__ import annotations

import asyncio
import json
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run from a checkout, installed or not

from benchmarks.fleet_agents import JOB, TOKEN, Agent, Fleet, uid_of
from spare.api import wire
from spare.control.config import Config
from spare.control.signal import AgentUp
from spare.coordinator.actor import Coordinator
from spare.coordinator.backend import Emit
from tests.coordinator import virtual

LOSSES = (1, 10, 100)
PERIOD = 1.0
DEADLINE = 300.0
GOALS = {"pushed": 1.0, "processor": 0.2, "megabytes": 300.0}


class Backend:
    """Starts nothing: the agents are there. A lost group comes back under another name, if asked to."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.records = self.starts = 0
        self._emit: Emit | None = None

    async def open(self, emit: Emit) -> None:
        """See spare.coordinator.backend.Backend."""
        self._emit = emit

    async def create(self, group: int) -> None:
        """See spare.coordinator.backend.Backend."""
        assert self._emit is not None
        self.starts += 1
        self._emit(AgentUp(group, uid_of(group, self.starts), self.address))

    async def delete(self, group: int, uid: str) -> None:
        """See spare.coordinator.backend.Backend."""

    async def record(self, name: str, text: str) -> None:
        """See spare.coordinator.backend.Backend."""
        self.records += 1

    async def close(self) -> None:
        """See spare.coordinator.backend.Backend."""


class Lines:
    """A connection in memory: `spare.coordinator.transport.Channel`."""

    def __init__(self, fleet: Fleet) -> None:
        self._up: asyncio.Queue[bytes] = asyncio.Queue()
        self._agent: Agent | None = None
        self._fleet = fleet

    async def read(self) -> bytes:
        """See Channel."""
        return await self._up.get()

    async def write(self, data: bytes) -> None:
        """See Channel."""
        if self._agent is not None:
            self._agent.take(data)
            return
        attach = wire.read(data)
        self._agent = Agent(attach.uid, self._up.put_nowait)
        self._agent.welcome()
        self._fleet.enter(self._agent)

    async def close(self) -> None:
        """See Channel."""


class Memory:
    """`spare.coordinator.transport.Transport` without sockets."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def connect(self, address: wire.Address) -> Lines:
        """See Transport."""
        return Lines(self._fleet)


def config(groups: int) -> Config:
    """A job as large as wanted, whose lost groups stay away."""
    # Redundancy: a hundred losses at once must not wipe out a shard.
    return Config(JOB, groups, redundancy=min(9, groups), micro_batches=32, heartbeat=PERIOD, replace=False)


async def until(done: Any, what: str) -> None:
    """Wait until `done()`, looking every millisecond.

    Raises:
        click.ClickException: it did not come about in time.
    """
    try:
        async with asyncio.timeout(DEADLINE):
            while not done():  # noqa: ASYNC110 (what is looked at is a value, nobody sets an event for it)
                await asyncio.sleep(0.001)
    except TimeoutError as error:
        raise click.ClickException(f"{what}: not after {DEADLINE:.0f} s") from error


def running(coordinator: Coordinator) -> bool:
    """Whether every member runs under the present plan."""
    state = coordinator.state
    plan = state.plan
    return plan is not None and all(state.groups[g].running >= plan.epoch for g in state.live)


def _without(coordinator: Coordinator, groups: list[int]) -> bool:
    return running(coordinator) and not set(groups) & set(coordinator.state.live)


def _epoch(coordinator: Coordinator) -> int:
    plan = coordinator.state.plan
    return plan.epoch if plan is not None else 0


async def losses(coordinator: Coordinator, lose: Any, clock: Any) -> dict[str, dict[str, float]]:
    """Let 1, 10, 100 groups die at once; seconds from the first sign to all running, wall or virtual and processor."""
    found = {}
    gone = 0
    for count in LOSSES:
        groups = list(range(gone, gone + count))
        gone += count
        old = coordinator.state.plan
        assert old is not None
        epoch = old.epoch
        began, spent = clock(), time.process_time()
        lose(groups)
        await until(lambda epoch=epoch: _epoch(coordinator) > epoch, f"a plan after {count} losses")
        planned = clock()
        await until(lambda groups=groups: _without(coordinator, groups), f"every agent running after {count} losses")
        acked = clock()
        plans = _epoch(coordinator) - epoch  # what comes some milliseconds after the rest makes a plan of its own
        figures = {"plan": planned - began, "acked": acked - began, "plans": plans}
        found[str(count)] = figures | {"processor": time.process_time() - spent}
        await asyncio.sleep(2 * PERIOD)
    return found


async def on_sockets(groups: int, seconds: float) -> dict[str, Any]:
    """Agents in another process, on loopback."""
    program = str(Path(__file__).with_name("fleet_agents.py"))
    pipe = asyncio.subprocess.PIPE
    fleet = await asyncio.create_subprocess_exec(
        sys.executable, program, str(groups), str(PERIOD), stdin=pipe, stdout=pipe
    )
    assert fleet.stdin is not None
    assert fleet.stdout is not None
    orders, answers = fleet.stdin, fleet.stdout
    try:
        port = int(await answers.readline())
        backend = Backend(f"127.0.0.1:{port}")
        coordinator = Coordinator(config(groups), backend, token=TOKEN)
        task = asyncio.create_task(coordinator.run())
        started = time.monotonic()
        await until(lambda: coordinator.state.plan is not None, "the first plan")
        planned = time.monotonic()
        await until(lambda: running(coordinator), "every agent running")
        figures: dict[str, Any] = {"connected": planned - started, "pushed": time.monotonic() - planned}

        async def count() -> int:
            orders.write(b'{"count": 1}\n')
            return int(await answers.readline())

        await asyncio.sleep(2 * PERIOD)
        await count()
        began, spent = time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        messages, wall = await count(), time.monotonic() - began
        figures["processor"] = (time.process_time() - spent) / wall
        figures["messages a second"] = messages / wall
        figures["losses"] = await losses(
            coordinator, lambda gone: orders.write(json.dumps({"lose": gone}).encode() + b"\n"), time.monotonic
        )
        figures["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        coordinator.stop("measured")
        await task
    finally:
        orders.close()
        await fleet.wait()
    return figures


async def in_memory(groups: int, seconds: float) -> dict[str, Any]:
    """Agents in this process, in virtual time: processor seconds are those of both sides."""
    fleet = Fleet(groups, PERIOD)
    loop = asyncio.get_running_loop()
    coordinator = Coordinator(
        config(groups), Backend("127.0.0.1:1"), token=TOKEN, transport=Memory(fleet), clock=loop.time, wall=loop.time
    )
    began = time.process_time()
    task = loop.create_task(coordinator.run())
    await until(lambda: running(coordinator), "every agent running")
    figures: dict[str, Any] = {"started, processor": time.process_time() - began}
    fleet.sent()
    spent = time.process_time()
    await asyncio.sleep(seconds)
    figures["processor"] = (time.process_time() - spent) / seconds
    figures["messages a second"] = fleet.sent() / seconds
    figures["losses"] = await losses(
        coordinator, lambda gone: [fleet.agents[group].lose() for group in gone], loop.time
    )
    coordinator.stop("measured")
    await task
    return figures


def report(title: str, figures: dict[str, Any]) -> None:
    """For people."""
    click.echo(title)
    for name, value in figures.items():
        if name != "losses":
            goal = GOALS.get(name) if title.startswith("1000 ") else None
            verdict = "" if goal is None else f"   goal {goal:g}: {'met' if value <= goal else 'MISSED'}"
            click.echo(f"  {name:22} {value:10.3f}{verdict}")
    click.echo(f"  {'losses at once':22} {'plan':>10} {'acked':>10} {'processor':>10} {'plans':>6}   seconds")
    for count, each in figures["losses"].items():
        click.echo(
            f"  {count:>22} {each['plan']:10.3f} {each['acked']:10.3f} {each['processor']:10.3f} {each['plans']:6}"
        )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--groups", default=1000, show_default=True, type=click.IntRange(200), help="On real sockets.")
@click.option("--virtual", "beyond", default=10000, show_default=True, type=click.IntRange(0), help="0: leave out.")
@click.option("--seconds", default=15.0, show_default=True, help="Of the steady state.")
def main(groups: int, beyond: int, seconds: float) -> None:
    """Measure the coordinator against a fleet of simulated agents."""
    figures: dict[str, Any] = {"python": platform.python_version(), "cpu": platform.machine()}
    figures[str(groups)] = asyncio.run(on_sockets(groups, seconds))
    report(f"{groups} agents on sockets", figures[str(groups)])
    if beyond:
        figures[f"{beyond} virtual"] = virtual.run(lambda: in_memory(beyond, seconds))
        report(f"{beyond} agents in virtual time (processor seconds of both sides)", figures[f"{beyond} virtual"])
        ratio = figures[f"{beyond} virtual"]["processor"] / figures[str(groups)]["processor"]
        click.echo(f"processor time of {beyond} against {groups} agents: {ratio:.1f} times")
        figures["ratio"] = ratio
    click.echo(json.dumps(figures))


if __name__ == "__main__":
    main()
