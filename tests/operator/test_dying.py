"""An operator that dies at any of its writes, before it hears that it was done: the next one goes on from there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.operator.api_server import Body
from tests.operator.bed import NAMESPACE, Bed, a_bed, job_body
from tests.operator.loop import run
from tests.operator.test_losses import LONG, back, training

pytestmark = pytest.mark.slow


def dies_at(bed: Bed, nth: int) -> asyncio.Event:
    """Have the operator die at its nth change of a plan, a status, a Secret, or at its nth pod; set once it is dead."""
    dead, seen = asyncio.Event(), 0
    operator = bed.operators[0][0]

    async def kill() -> None:
        await bed.kill(operator)
        dead.set()

    def count(kind: str, key: tuple[str, str, str], body: Body) -> None:
        nonlocal seen
        made = kind == "ADDED" and key[0] in ("pods", "secrets", "configmaps")
        seen += made or (kind == "MODIFIED" and key[0] in ("sparejobs", "configmaps"))
        if seen == nth and not dead.is_set():
            bed.api.watchers.remove(count)
            bed._spawn(kill())

    bed.api.watchers.append(count)
    return dead


@pytest.mark.parametrize("nth", range(1, 10))
def test_at_any_write_of_a_start(tmp_path: Path, nth: int) -> None:
    """Two Secrets, four pods, the status, the plan: nothing is made twice, and nobody is lost."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.steps = LONG
            bed.operator()
            dead = dies_at(bed, nth)
            bed.api.put("sparejobs", job_body())
            async with asyncio.timeout(60.0):
                await dead.wait()
            bed.operator()
            await bed.trains(5)

            status = bed.status()
            assert (len(bed.pods()), len(bed.api.all("secrets"))) == (4, 2)
            assert (status["epoch"], status["masked"], status["restarts"]) == (1, 0, 0)

    run(main)


@pytest.mark.parametrize("nth", range(1, 9))
def test_at_any_write_after_a_loss(tmp_path: Path, nth: int) -> None:
    """The plan without the group, its status, the replacement, the plan with it: one loss, one return."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            dead = dies_at(bed, nth)
            bed.api.remove("pods", NAMESPACE, bed.pods(2)[0]["metadata"]["name"])
            async with asyncio.timeout(60.0):
                await dead.wait()
            bed.operator()
            await bed.until(lambda: back(bed), "it is back", 90.0)
            await asyncio.sleep(10.0)

            assert (bed.status()["epoch"], bed.status()["restarts"], len(bed.pods())) == (3, 0, 4)

    run(main)
