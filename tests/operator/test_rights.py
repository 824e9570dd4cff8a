"""Rights that are taken away and given back, and a definition that is deleted: the operator outlives both."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.operator.bed import NAMESPACE, a_bed, job_body
from tests.operator.loop import run
from tests.operator.test_losses import back, training
from tests.operator.test_written import goes_on

EVERYTHING = r"(pods|sparejobs|configmaps|secrets|events|nodes)"


def test_a_loss_while_there_are_no_rights_is_handled_when_they_are_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A binding that somebody deleted, for minutes: the process lives, asks rarely, and goes on at once."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            process = bed.operators[0][1]
            bed.api.denied = EVERYTHING
            calls = len(bed.api.calls)
            await asyncio.sleep(200.0)
            statuses = [c for c in bed.api.calls[calls:] if c.path.endswith("/status")]
            assert len(statuses) < 20, "a status that is refused is written again and again"
            bed.agent(2).die("killed")
            await asyncio.sleep(100.0)
            assert not process.done()
            assert len([r for r in caplog.records if "status could not be written" in r.message]) < 5
            bed.api.denied = ""
            assert await bed.until(lambda: back(bed), "it is back", 60.0) < 60.0
            await asyncio.sleep(60.0)  # kopf tries again for most of a minute before it gives up

            assert (bed.status()["epoch"], bed.status()["restarts"], len(bed.pods())) == (3, 0, 4)
            bed.api.patch("sparejobs", NAMESPACE, "job", spec={"runPolicy": {"suspend": True}})
            await bed.until(lambda: bed.events("Halting"), "watches tell again", 5.0)
            watchers = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("watcher for")]
            assert len(watchers) == len(set(watchers)) == 3, "those that broke are no more"

    run(main)


def test_pods_that_may_not_be_made_are_waited_for(tmp_path: Path) -> None:
    """It is we who may not, and no fault of the job's: it starts when the right is there, and says why it does not."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.api.denied = "POST .*/pods$"
            bed.operator()
            bed.api.put("sparejobs", job_body())
            await bed.until(lambda: bed.condition("Running") == ("False", "PodsNotStarting"), "it is told", 30.0)
            await asyncio.sleep(300.0)
            assert bed.condition("Failed")[0] != "True"
            bed.api.denied = ""
            await bed.until(lambda: bed.condition("Running")[0] == "True", "it starts", 60.0)

    run(main)


def test_jobs_are_watched_once_they_are_defined(tmp_path: Path) -> None:
    """The definition comes after the operator, goes, and comes again: each time what is edited is noticed at once."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.steps = 1_000_000
            bed.api.undefined = {"sparejobs"}
            bed.operator()
            await asyncio.sleep(60.0)
            for _ in range(2):
                bed.api.undefined = set()
                await asyncio.sleep(45.0)  # it is found
                bed.api.put("sparejobs", job_body(groups=1, redundancy=1))
                await asyncio.sleep(5.0)
                assert bed.pods(), "a watch tells of it"
                bed.api.remove("sparejobs", NAMESPACE, "job")
                bed.api.undefined = {"sparejobs"}
                await asyncio.sleep(60.0)
                assert not bed.pods()

            assert not bed.operators[0][1].done()

    run(main)


def test_a_job_that_was_said_to_be_gone_is_taken_up_again(tmp_path: Path) -> None:
    """An API server that has not read its definitions yet answers that there is no such thing."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            bed.api.fail("PUT", "/sparejobs/job/status", 404)
            await asyncio.sleep(40.0)
            await goes_on(bed)
            bed.agent(1).die("killed")
            await bed.until(lambda: back(bed), "it is back", 60.0)

            assert (bed.status()["epoch"], bed.status()["masked"]) == (3, 1)

    run(main)
