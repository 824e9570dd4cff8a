"""Coordinators that are killed and come back, with agents in memory, in virtual time (docs/protocol.md, rule 5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace

import pytest

from spare.api.exit_codes import ExitCode
from spare.control.config import Config
from spare.control.plan import Plan
from spare.coordinator.observe import Snapshot
from tests.coordinator.fakes import World
from tests.coordinator.virtual import run

CONFIG = Config("job/1", groups=4, replace=False, redundancy=3, micro_batches=8)


def play(
    before: Callable[[World], Coroutine[None, None, None]],
    away: Callable[[World], Coroutine[None, None, None]],
    config: Config = CONFIG,
) -> tuple[World, Snapshot]:
    """Run a job: `before` runs beside it, the coordinator is killed, `away` runs without one, another comes."""

    async def main() -> tuple[World, Snapshot]:
        world = World(config, steps=20)
        job = asyncio.create_task(world.coordinator().run())
        await before(world)
        await world.kill(job)
        await away(world)
        return world, await world.coordinator().run()

    return run(main)


def epochs(world: World) -> list[int]:
    """Of the plans, in the order of their first record."""
    return list(dict.fromkeys(Plan.from_json(text).epoch for _, text in world.records))


async def nothing(world: World) -> None:
    """Nothing happens."""


def until(step: int) -> Callable[[World], Coroutine[None, None, None]]:
    """Let the job commit so many steps."""
    return lambda world: world.until(step)


def test_training_goes_on_meanwhile() -> None:
    """F29: five steps without a coordinator; the next one finds all as it was, and nobody regroups."""
    world, final = play(until(5), until(10))

    assert (final.exit_code, final.step, final.masked) == (ExitCode.COMPLETE, 20, 0)
    assert epochs(world) == [1]
    assert all([plan.epoch for plan in agent.plans] == [1] for agent in world.everyone)
    assert len(world.everyone) == 4


def test_a_failure_meanwhile_waits() -> None:
    """And is handled, once, by the one that comes."""

    async def fail(world: World) -> None:
        world.agents[2].kill_worker()
        await asyncio.sleep(30.0)

    world, final = play(until(5), fail)

    assert (final.exit_code, final.step, final.masked) == (ExitCode.COMPLETE, 20, 1)
    assert epochs(world) == [1, 2]


def test_a_whole_group_that_died_meanwhile_is_lost_by_its_silence() -> None:
    """Nobody tells of its end: the agent died with it, before the new coordinator looked."""

    async def fail(world: World) -> None:
        world.agents[2].die("node gone")
        await asyncio.sleep(1.0)

    world, final = play(until(5), fail)

    assert (final.exit_code, final.step, final.masked) == (ExitCode.COMPLETE, 20, 1)
    assert epochs(world) == [1, 2]


@pytest.mark.parametrize("record", [1, 2])
def test_killed_while_it_writes_a_plan(record: int) -> None:
    """Written or not, the plan is told once or made once: no epoch has two digests, no loss counts twice."""

    async def main() -> tuple[World, Snapshot]:
        world = World(replace(CONFIG, replace=True), steps=20)
        job = asyncio.create_task(world.coordinator().run())
        killed = asyncio.Event()
        real = world.record

        async def dying(name: str, text: str) -> None:
            if Plan.from_json(text).epoch == 2:
                if record == 2:
                    await real(name, text)
                killed.set()
                await asyncio.sleep(60.0)
            await real(name, text)

        world.record = dying  # type: ignore[method-assign]
        await world.until(5)
        world.agents[2].kill_worker()
        await killed.wait()
        await world.kill(job)
        world.record = real  # type: ignore[method-assign]
        return world, await world.coordinator().run()

    world, final = run(main)

    digests = {(plan.epoch, plan.digest) for plan in (Plan.from_json(text) for _, text in world.records)}
    assert (final.exit_code, final.step, final.masked) == (ExitCode.COMPLETE, 20, 1)
    assert len(digests) == len({epoch for epoch, _ in digests})


def test_killed_while_groups_are_created() -> None:
    """F27: what is there already is not made again."""

    async def main() -> tuple[World, Snapshot]:
        world = World(CONFIG, steps=20)
        real, count = world.create, 0

        async def slow(group: int) -> None:
            nonlocal count
            count += 1
            if count > 2:
                await asyncio.sleep(60.0)
            await real(group)

        world.create = slow  # type: ignore[method-assign]
        job = asyncio.create_task(world.coordinator().run())
        await asyncio.sleep(1.0)
        await world.kill(job)
        world.create = real  # type: ignore[method-assign]
        return world, await world.coordinator().run()

    world, final = run(main)

    assert final.exit_code == ExitCode.COMPLETE
    assert sorted(agent.group for agent in world.everyone) == [0, 1, 2, 3]


def test_killed_again_and_again() -> None:
    """Every tenth of a second: training does not notice."""

    async def main() -> tuple[World, Snapshot]:
        world = World(CONFIG, steps=20)
        job = asyncio.create_task(world.coordinator().run())
        await world.until(1)
        while not world.reached(20):
            await asyncio.sleep(0.1)
            await world.kill(job)
            job = asyncio.create_task(world.coordinator().run())
        return world, await job

    world, final = run(main)

    assert (final.exit_code, final.masked, epochs(world)) == (ExitCode.COMPLETE, 0, [1])


def test_a_finished_job_stays_finished() -> None:
    """F34, F39: another coordinator makes nothing of it, and ends what is left."""

    async def main() -> tuple[World, Snapshot]:
        world = World(CONFIG, steps=3)
        await world.coordinator().run()
        count = len(world.everyone)
        final = await world.coordinator().run()
        assert len(world.everyone) == count
        return world, final

    _, final = run(main)

    assert (final.exit_code, final.state) == (ExitCode.COMPLETE, "complete")
    assert final.verdict == "complete: 3 steps on 4 groups, 0 losses masked"
