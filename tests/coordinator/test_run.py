"""Whole runs of a job against agents in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from spare.api import wire
from spare.api.exit_codes import ExitCode
from spare.control.config import Config
from spare.control.plan import Plan
from spare.coordinator.observe import Snapshot
from tests.coordinator.fakes import World
from tests.coordinator.virtual import run

CONFIG = Config("job/1", groups=4, replace=False, redundancy=3, micro_batches=8)

Script = Callable[[World], Coroutine[None, None, None]]


def play(script: Script | None = None, config: Config = CONFIG, *, steps: int = 20) -> tuple[World, Snapshot]:
    """Run a job with a script of mishaps beside it."""

    async def main() -> tuple[World, Snapshot]:
        world = World(config, steps=steps)
        job = asyncio.create_task(world.coordinator().run())
        if script is not None:
            await script(world)
        final = await job
        assert world.closed
        return world, final

    return run(main)


def plans(world: World) -> list[Plan]:
    """The recorded plans, each once though it is recorded again when what is kept beside it changes."""
    written = [Plan.from_json(text) for name, text in world.records if name == "plan.json"]
    return list({plan.epoch: plan for plan in written}.values())


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


def test_the_plan_is_recorded_before_anybody_is_told() -> None:
    """No agent holds a plan that was not written down at that moment (docs/protocol.md, rule 5)."""

    async def main() -> None:
        world = World(CONFIG, steps=3)
        waits: list[int] = []

        async def record(name: str, text: str) -> None:
            await asyncio.sleep(1.0)
            waits.append(sum(agent.plan is not None for agent in world.everyone))
            world.records.append((name, text))

        world.record = record  # type: ignore[method-assign]
        await world.coordinator().run()

        assert waits[0] == 0

    run(main)


def test_three_groups_lost_at_once_make_one_plan() -> None:
    """One decision: epoch +1, masked +3 (F05)."""

    async def kill(world: World) -> None:
        await world.until(5)
        for group in (1, 3, 6):
            world.agents[group].die("node n1 went")

    world, final = play(kill, Config("job/1", groups=8, replace=False, redundancy=4, micro_batches=8))

    assert (final.exit_code, final.epoch, final.masked) == (0, 2, 3)
    assert plans(world)[-1].groups == (0, 2, 4, 5, 7)
    assert "groups 1,3,6 lost (node n1 went)" in final.plan_reason
    assert [event.reason for event in world.events if event.groups == (1, 3, 6)] == ["GroupLost", "Reordered"]


def test_a_second_loss_during_the_regroup_joins_the_recovery() -> None:
    """Two kills 2 ms apart: two plans, one recovery with both groups, timed from the first sign."""

    async def kill(world: World) -> None:
        await world.until(5)
        world.agents[2].die("killed")
        await asyncio.sleep(0.002)
        world.agents[0].die("killed")

    world, final = play(kill)

    assert (final.exit_code, final.masked) == (0, 2)
    assert plans(world)[-1].groups == (1, 3)
    assert plans(world)[-1].leader == 1
    assert [recovery.groups for recovery in final.recoveries] == [(0, 2)]


def test_a_collective_that_fails_though_all_live_is_answered() -> None:
    """Suspect, probe of all, the same members under a new epoch; nobody is masked."""

    async def fail(world: World) -> None:
        await world.until(5)
        agent = world.agents[1]
        agent.tell(agent.message(wire.Suspect, step=5, phase="reduce", error="reset by peer", unreachable=(3,)))

    world, final = play(fail)

    assert (final.exit_code, final.epoch, final.masked) == (0, 2, 0)
    assert plans(world)[-1].groups == (0, 1, 2, 3)
    assert plans(world)[-1].base == 2
    assert [recovery.groups for recovery in final.recoveries] == [()]


def test_a_frozen_group_is_lost_after_dead_after() -> None:
    """SIGSTOP of agent and worker: no connection drops, silence tells."""

    async def freeze(world: World) -> None:
        await world.until(5)
        world.agents[1].frozen = True

    world, final = play(freeze)

    assert (final.exit_code, final.masked, final.epoch) == (0, 1, 2)
    assert "its agent was silent for" in final.plan_reason
    assert (1, "uid-1-1") in world.deleted
    [recovery] = final.recoveries
    assert CONFIG.dead_after <= recovery.detect <= CONFIG.dead_after + 1


def test_a_worker_that_computes_for_ever_is_lost_after_hang_after() -> None:
    """Its agent is well, the others wait in the reduction of the same step."""

    async def hang(world: World) -> None:
        await world.until(5)
        world.agents[3].stuck = True

    config = Config("job/1", groups=4, replace=False, redundancy=3, micro_batches=8, hang_after=10.0)
    _, final = play(hang, config)

    assert (final.exit_code, final.masked) == (0, 1)
    assert "no progress for" in final.plan_reason


def test_a_broken_line_loses_nobody() -> None:
    """All connections drop and are refused for a while: training goes on, the links are dialled again."""

    async def cut(world: World) -> None:
        await world.until(3)
        world.cut = True
        for agent in world.everyone:
            for down, up in agent.channels:
                down.shut()
                up.shut()
        await asyncio.sleep(2)
        world.cut = False

    _, final = play(cut, steps=100)

    assert (final.exit_code, final.masked, final.epoch) == (0, 0, 1)


def test_the_coordinators_own_network_away_for_long_loses_nobody() -> None:
    """Longer than deadAfter without any agent: it is our own network, and an event says so."""

    async def cut(world: World) -> None:
        await world.until(3)
        world.cut = True
        for agent in world.everyone:
            for down, up in agent.channels:
                down.shut()
                up.shut()
        await asyncio.sleep(20)
        world.cut = False

    world, final = play(cut, steps=600)

    assert (final.exit_code, final.masked, final.epoch) == (0, 0, 1)
    assert [event.reason for event in world.events].count("Unheard") == 1


def test_a_plan_missed_while_the_line_was_broken_is_told_at_the_next_hello() -> None:
    """The loss falls into the time without a line to group 0: it hears of the plan when it is reached again."""

    async def cut(world: World) -> None:
        await world.until(5)
        down, up = world.agents[0].channels[-1]
        down.shut()
        up.shut()
        world.agents[2].kill_worker()

    world, final = play(cut)

    assert (final.exit_code, final.masked) == (0, 1)
    assert world.agents[0].plan is not None
    assert world.agents[0].plan.epoch == 2


def test_an_agent_without_the_token_is_refused() -> None:
    """It never becomes ready, the refusals are announced once, and the start times out naming it (F59, F16)."""

    async def forge(world: World) -> None:
        world.forged.add(1)

    world, final = play(
        forge, Config("job/1", groups=4, replace=False, redundancy=3, micro_batches=8, start_timeout=10.0)
    )

    assert final.exit_code == ExitCode.STALLED
    assert "group 1: no connection to its agent" in final.verdict
    assert "without this job's token" in final.verdict
    assert [event.reason for event in world.events].count("Refused") == 1


def test_stop_ends_everything() -> None:
    """Ctrl-C: exit code 130, every agent is told to stop, the backend is closed."""

    async def main() -> None:
        world = World(CONFIG, steps=10_000)
        coordinator = world.coordinator()
        job = asyncio.create_task(coordinator.run())
        await world.until(3)
        coordinator.stop("interrupted by the user")
        final = await job

        assert (final.exit_code, final.state) == (ExitCode.INTERRUPTED, "failed")
        assert all(agent.dead for agent in world.everyone)

    run(main)


def test_wipe_out_ends_with_a_report() -> None:
    """The hosts of one shard die: exit code 3, the shards and their hosts are named."""

    async def kill(world: World) -> None:
        await world.until(5)
        assert world.agents[0].plan is not None
        for group in Plan.from_json(world.records[-1][1]).schedule.placement.hosts(0):
            world.agents[group].die("killed")

    _, final = play(kill, Config("job/1", groups=4, replace=False, redundancy=2, micro_batches=8))

    assert final.exit_code == ExitCode.WIPE_OUT
    assert "shard 0: its hosts were groups" in final.verdict
    assert final.masked == 0


def test_a_failing_chore_ends_the_run_loudly() -> None:
    """A bug in the backend is raised by run, after everything was closed."""

    async def main() -> None:
        world = World(CONFIG)

        async def create(group: int) -> None:
            raise ZeroDivisionError("bug")

        world.create = create  # type: ignore[method-assign]
        try:
            await world.coordinator().run()
        except ZeroDivisionError:
            assert world.closed
        else:
            raise AssertionError("the bug was swallowed")

    run(main)
