"""Whole runs of a job against agents in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from spare.api.exit_codes import ExitCode
from spare.control.config import Config
from spare.control.plan import Plan
from spare.coordinator.observe import Snapshot
from tests.coordinator.fakes import World
from tests.coordinator.virtual import run

CONFIG = Config("job/1", groups=4, redundancy=3, micro_batches=8)

Script = Callable[[World], Awaitable[None]]


def play(script: Script | None = None, config: Config = CONFIG, *, steps: int = 20) -> tuple[World, Snapshot]:
    """Run a job with a script of mishaps beside it."""

    async def main() -> tuple[World, Snapshot]:
        world = World(config, steps=steps)
        job = asyncio.create_task(world.coordinator().run())
        mishaps = asyncio.create_task(script(world)) if script else None  # type: ignore[arg-type]
        final = await job
        if mishaps is not None:
            await mishaps
        assert world.closed
        return world, final

    return run(main)


def plans(world: World) -> list[Plan]:
    """The recorded plans."""
    return [Plan.from_json(text) for name, text in world.records if name == "plan.json"]


def test_a_job_without_failures_completes() -> None:
    """From the first process to the finish: one plan, every step, equal digests, exit code 0."""
    world, final = play()

    assert (final.exit_code, final.state, final.step, final.masked) == (ExitCode.COMPLETE, "complete", 20, 0)
    assert [plan.epoch for plan in plans(world)] == [1]
    assert final.digest == "d" * 64
    assert [event.reason for event in world.events] == ["Started", "Completed"]


def test_a_killed_worker_is_masked() -> None:
    """The agent reports the exit, one urgent plan goes out without the group, the rest finishes."""

    async def kill(world: World) -> None:
        await world.until(5)
        world.agents[2].kill_worker()

    world, final = play(kill)

    assert (final.exit_code, final.step, final.masked, final.epoch) == (0, 20, 1, 2)
    assert plans(world)[-1].groups == (0, 1, 3)
    assert "group 2 lost (worker killed by signal 9)" in final.plan_reason
    [recovery] = final.recoveries
    assert recovery.groups == (2,)
    assert min(recovery.detect, recovery.plan, recovery.regroup, recovery.patch) >= 0
    assert recovery.total < 0.5
