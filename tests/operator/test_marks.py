"""Hands at what marks objects as a job's: labels, owners, what the plan's map says. Nothing is lost by it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from spare_operator import names
from tests.operator.api_server import Body
from tests.operator.bed import NAMESPACE, Bed, a_bed, job_body
from tests.operator.loop import run
from tests.operator.test_losses import back, name_of, training
from tests.operator.test_written import goes_on, plan_map


def edit(bed: Bed, plural: str, name: str, **metadata: Any) -> Body:
    """Overwrite fields of an object's metadata; how it was before."""
    before = bed.api.get(plural, NAMESPACE, name)
    bed.api.patch(plural, NAMESPACE, name, metadata=metadata)
    return before


@pytest.mark.parametrize("away", [False, True], ids=["an operator lives", "no operator lives"])
@pytest.mark.parametrize("what", ["all labels", names.JOB_UID, names.INCARNATION, "another group", "owner"])
def test_a_pod_whose_labels_or_owner_are_changed_stays_in_the_plan(tmp_path: Path, what: str, away: bool) -> None:
    """It trains, and gets them back, which is told once; else it would train in no plan, or outlive its job."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            name = name_of(bed, 2)
            labels = dict(bed.api.get("pods", NAMESPACE, name)["metadata"]["labels"])
            if what == "owner":
                change: dict[str, Any] = {"ownerReferences": []}
            elif what == "all labels":
                change = {"labels": {}}
            elif what == "another group":
                change = {"labels": {**labels, names.GROUP_NUMBER: "1"}}
            else:
                change = {"labels": {k: v for k, v in labels.items() if k != what}}
            if away:
                await bed.kill(bed.operators[0][0])
            before = edit(bed, "pods", name, **change)
            if away:
                bed.operator()
            await bed.until(lambda: bed.events("MarksRestored"), "it is told", 40.0)
            await asyncio.sleep(20.0)
            after = bed.api.get("pods", NAMESPACE, name)

            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            assert after["metadata"]["labels"] == labels
            assert after["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]
            assert (bed.status()["epoch"], bed.status()["masked"], len(bed.pods())) == (1, 0, 4)
            (told,) = bed.events("MarksRestored")
            assert name in told
            bed.api.remove("pods", NAMESPACE, name)
            await bed.until(lambda: back(bed), "its end is noticed as any other's", 60.0)

    run(main)


def test_pods_that_are_to_outlive_their_job_get_no_owner(tmp_path: Path) -> None:
    """`kubectl delete --cascade=orphan` takes the owner from the pods while the job is on its way out."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            edit(bed, "sparejobs", "job", finalizers=["orphan"], deletionTimestamp="2026-01-01T00:00:00Z")
            for pod in bed.pods():
                edit(bed, "pods", pod["metadata"]["name"], ownerReferences=[])
            await asyncio.sleep(60.0)

            assert all(pod["metadata"]["ownerReferences"] == [] for pod in bed.pods())
            assert not bed.events("MarksRestored")

    run(main)


def test_a_job_whose_former_was_deleted_without_its_pods_says_what_to_do(tmp_path: Path) -> None:
    """`--cascade=orphan`, and applied again: what has its names is nobody's any more, and is to be removed by hand."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            former = bed.job()["metadata"]["uid"]
            for plural in ("pods", "configmaps", "secrets"):
                for each in bed.api.all(plural):
                    edit(bed, plural, each["metadata"]["name"], ownerReferences=[])
            bed.api.remove("sparejobs", NAMESPACE, "job")
            bed.api.put("sparejobs", job_body())
            await bed.until(lambda: bed.events("BackendFailed"), "it is told", 20.0)
            (told,) = bed.events("BackendFailed")
            assert told.endswith(
                f"kubectl -n team delete pods,configmaps,secrets,networkpolicies -l {names.JOB_UID}={former}"
            )
            for plural in ("pods", "configmaps", "secrets"):
                for each in bed.api.all(plural):
                    bed.api.remove(plural, NAMESPACE, each["metadata"]["name"])
            await bed.until(lambda: bed.status().get("step", 0) > 1, "the new one trains", 60.0)

    run(main)


@pytest.mark.parametrize("how", ["edited", "emptied", "marks", "edited, and lost at once"])
def test_a_plan_s_map_that_is_edited_is_written_again(tmp_path: Path, how: str) -> None:
    """Garbage in it, or without labels and owner: the next plan is written all the same, and a later operator reads it.

    Else the survivors of the next loss would wait for a plan that can never be written.
    """

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            data, labels = plan_map(bed)["data"], plan_map(bed)["metadata"]["labels"]
            if how == "marks":
                edit(bed, "configmaps", "job-plan", labels={}, ownerReferences=[])
            elif how == "emptied":
                bed.api.put("configmaps", {"metadata": {"name": "job-plan", "namespace": NAMESPACE}})
            else:
                bed.api.patch("configmaps", NAMESPACE, "job-plan", data={"plan.json": "{}", "epoch": "x"})
            if "at once" not in how:
                await bed.until(lambda: plan_map(bed).get("data") == data, "it is written again", 30.0)
                await bed.until(lambda: plan_map(bed)["metadata"]["labels"] == labels, "it is marked", 30.0)
                await bed.kill(bed.operators[0][0])
                bed.operator()
                await goes_on(bed)
            bed.agent(1).die("killed")
            await bed.until(lambda: back(bed), "it is back", 60.0)

            assert (bed.status()["epoch"], bed.status()["masked"]) == (3, 1)
            assert plan_map(bed)["metadata"]["ownerReferences"]

    run(main)


def test_a_secret_without_labels_is_known_by_its_owner(tmp_path: Path) -> None:
    """A later operator goes on with it. None is immutable: kubelets keep such a one for as long as pods refer to its
    name, and give the pods of a job that is made anew the former's."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            assert not any(secret.get("immutable") for secret in bed.api.all("secrets"))
            await bed.kill(bed.operators[0][0])
            for name in ("job-agent", "job-operator"):
                edit(bed, "secrets", name, labels={})
            bed.operator()
            await goes_on(bed)

            assert not bed.events("BackendFailed")

    run(main)


def test_the_last_event_is_posted_once_whoever_dies(tmp_path: Path) -> None:
    """Between the last status and the event about it: the next operator posts it, and one after that does not again."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            first = bed.operator()

            def die(kind: str, key: tuple[str, str, str], body: Body) -> None:
                if key[0] == "sparejobs" and bed.condition("Complete")[0] == "True" and bed.operators:
                    first.lease._renewed = float("-inf")

            bed.api.watchers.append(die)
            bed.api.put("sparejobs", job_body())
            await bed.until(lambda: bed.condition("Complete")[0] == "True", "it completes")
            await bed.kill(first)
            bed.api.watchers.remove(die)
            assert not bed.events("Completed")
            for _ in range(2):
                later = bed.operator()
                await bed.until(lambda: bed.events("Completed"), "it is told", 40.0)
                await asyncio.sleep(20.0)
                await bed.kill(later)

            (told,) = bed.events("Completed")
            complete = next(c for c in bed.status()["conditions"] if c["type"] == "Complete")
            assert told == f"Completed: {complete['message']}"

    run(main)


def test_an_old_job_s_end_is_not_told_again(tmp_path: Path) -> None:
    """The API server has forgotten the event long ago: an operator that comes tells of no job that ended yesterday."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            first = bed.operator()
            bed.api.put("sparejobs", job_body())
            await bed.until(lambda: bed.events("Completed"), "it is told")
            await asyncio.sleep(5.0)
            await bed.kill(first)
            for event in bed.api.all("events"):
                bed.api.remove("events", NAMESPACE, event["metadata"]["name"])
            await asyncio.sleep(3600.0)
            bed.operator()
            await asyncio.sleep(60.0)

            assert not bed.api.all("events")

    run(main)
