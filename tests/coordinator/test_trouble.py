"""The place where groups run does not do what it is asked for: tried again and said, and it ends no training."""

from __future__ import annotations

import asyncio

import pytest

from spare.api.exit_codes import ExitCode
from spare.control.config import Config
from spare.control.signal import Suspend
from spare.coordinator.observe import Snapshot
from tests.coordinator.fakes import World
from tests.coordinator.virtual import run

CONFIG = Config("job/1", groups=4, replace=False, redundancy=3, micro_batches=8)


class Troubled(World):
    """Calls of one kind fail so many times."""

    def __init__(self, kind: str, times: float, begin: int = 0) -> None:
        super().__init__(CONFIG, steps=100)
        self.kind, self.times, self.begin, self.calls = kind, times, begin, 0

    def trouble(self, kind: str) -> None:
        if kind == self.kind:
            self.calls += 1
            if self.begin < self.calls <= self.begin + self.times:
                raise OSError(28, "No space left on device")

    async def record(self, name: str, text: str) -> None:
        self.trouble("record")
        await super().record(name, text)

    async def delete(self, group: int, uid: str) -> None:
        self.trouble("delete")
        await super().delete(group, uid)

    async def let_go(self, group: int, uid: str) -> None:
        self.trouble("let_go")
        await super().let_go(group, uid)

    def said(self) -> list[str]:
        return [event.text for event in self.events if event.reason == "BackendFailed"]


def play(world: Troubled) -> Snapshot:
    """A job whose group 2 is killed in step 5."""

    async def main() -> Snapshot:
        coordinator = world.coordinator()
        job = asyncio.create_task(coordinator.run())
        await world.until(5)
        world.agents[2].kill_worker()
        if world.times == float("inf"):
            await asyncio.sleep(10.0)
            coordinator.stop("Ctrl-C received")
        return await job

    return run(main)


@pytest.mark.parametrize(("kind", "begin"), [("record", 1), ("delete", 0)])
def test_what_fails_for_a_while_is_tried_again(kind: str, begin: int) -> None:
    """The job completes, and two events say it: the first failure, and the try that succeeded."""
    world = Troubled(kind, 5, begin)

    final = play(world)

    assert (final.exit_code, final.step, final.masked) == (ExitCode.COMPLETE, 100, 1)
    assert world.deleted[0][0] == 2
    [first, last] = world.said()
    assert "No space left on device; it is tried again" in first
    assert "but try 6 succeeded" in last


def test_a_plan_that_cannot_be_written_down_is_told_to_nobody() -> None:
    """Whoever waits for it goes on waiting; the order to end is heard all the same."""
    world = Troubled("record", float("inf"), begin=1)

    final = play(world)

    assert final.exit_code == ExitCode.INTERRUPTED
    assert {plan.epoch for agent in world.everyone for plan in agent.plans} == {1}
    assert "plan 2 could not be written down" in world.said()[0]
    assert world.closed


def test_no_line_outlives_its_job() -> None:
    """A host vanishes, and the job ends before what its group was to be told is given up: nobody dials it any more."""
    world = World(CONFIG, steps=100)

    async def main() -> list[str]:
        coordinator = world.coordinator()
        job = asyncio.create_task(coordinator.run())
        await world.until(5)
        world.agents[2].die("its host is gone")
        await asyncio.sleep(0.2)
        coordinator.stop("Ctrl-C received")
        await job
        return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("link to")]

    assert run(main) == []


def test_a_job_that_is_to_stop_ends_in_time_though_nothing_can_be_written_down() -> None:
    """SIGTERM gives a grace; that a disk is full makes it no longer."""
    world = Troubled("record", float("inf"), begin=1)

    async def main() -> Snapshot:
        coordinator = world.coordinator()
        job = asyncio.create_task(coordinator.run())
        await world.until(5)
        world.agents[2].kill_worker()
        await asyncio.sleep(10.0)
        coordinator.emit(Suspend("SIGTERM received", 5.0))
        async with asyncio.timeout(30.0):
            return await job

    final = run(main)

    assert final.exit_code == ExitCode.STALLED
    assert "SIGTERM received: groups 0-1,3 had not stopped" in final.verdict
    assert world.closed
