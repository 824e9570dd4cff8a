"""Warm spares on a cluster: pods of their own, made last, that take the place of a lost group under its label."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spare_operator import names
from spare_operator.metrics import Collector
from tests.operator.api_server import Body
from tests.operator.bed import NAMESPACE, Bed, a_bed, job_body
from tests.operator.loop import run
from tests.operator.test_losses import back, training


def spares(bed: Bed) -> dict[str, Body]:
    """Pods that wait as spares, by name."""
    return {p["metadata"]["name"]: p for p in bed.pods() if names.SPARE_NUMBER in p["metadata"]["labels"]}


def ready(bed: Bed) -> int:
    return int(bed.status().get("groups", {}).get("spare", 0))


def metrics(bed: Bed) -> dict[str, float]:
    """What Prometheus would be told of spares, by name and state."""
    operator = bed.operators[0][0]
    told = Collector(lambda: True, lambda: operator.jobs).collect()
    samples = [sample for metric in told for sample in metric.samples if "_spares" in sample.name]
    return {" ".join([s.name, *([s.labels["state"]] if "state" in s.labels else [])]): s.value for s in samples}


async def warm(bed: Bed, count: int = 1) -> None:
    """A job that trains, with its spares ready."""
    await training(bed, spares=count)
    await bed.until(lambda: ready(bed) == count, "the spares are ready", 60.0)


def test_spares_are_made_last_and_told_apart(tmp_path: Path) -> None:
    """Names, labels and status of their own; they are in no plan, and end well with the job."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await warm(bed, 2)
            made = [c for _, kind, key, c in bed.api.log if kind == "ADDED" and key[0] == "pods"]
            kinds = ["spare" if names.SPARE_NUMBER in pod["metadata"]["labels"] else "group" for pod in made]
            assert kinds == ["group"] * 4 + ["spare"] * 2
            assert {name.rpartition("-p0-")[0] for name in spares(bed)} == {"job-s0", "job-s1"}
            assert all(names.GROUP_NUMBER not in pod["metadata"]["labels"] for pod in spares(bed).values())
            groups = bed.status()["groups"]
            assert groups == {"desired": 4, "active": 4, "joining": 0, "spare": 2, "sparesDesired": 2, "lost": 0}
            assert (bed.status()["epoch"], bed.condition("Degraded")[0]) == (1, "")
            assert sorted(bed.events("SpareReady")) == ["SpareReady: spare 0 ready", "SpareReady: spare 1 ready"]

            for world in bed.worlds.values():
                world.steps = bed.agent(0).committed + 3
            await bed.until(lambda: bed.condition("Complete")[0] == "True", "it completes")
            await bed.until(lambda: all(p["status"]["phase"] == "Succeeded" for p in bed.pods()), "pods end well")

    run(main)


def test_a_spare_takes_the_place_of_a_lost_group(tmp_path: Path) -> None:
    """No pod is made for the group: the spare's gets its label, and another spare is made and told once."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.start_delay = 30.0
            await warm(bed)
            ((name, pod),) = spares(bed).items()
            before = len(bed.events())
            bed.agent(2).kill_worker()
            took = await bed.until(lambda: back(bed), "it is back", 60.0)

            assert took < 10.0  # a pod takes thirty seconds to start
            labels = bed.api.get("pods", NAMESPACE, name)["metadata"]["labels"]
            assert (labels[names.GROUP_NUMBER], labels.get(names.SPARE_NUMBER)) == ("2", None)
            assert labels[names.INCARNATION] == pod["metadata"]["labels"][names.INCARNATION]
            await bed.until(lambda: ready(bed) == 1, "another spare is ready", 60.0)
            told = [event.partition(":")[0] for event in bed.events()[before:]]
            assert told == ["GroupLost", "Reordered", "SpareUsed", "PodCreated", "GroupRejoined", "SpareReady"] or (
                told == ["GroupLost", "Reordered", "SpareUsed", "GroupRejoined", "PodCreated", "SpareReady"]
            )
            assert {name.rpartition("-p0-")[0] for name in spares(bed)} == {"job-s0"}
            assert [p["metadata"]["name"] for p in bed.pods(2) if p["status"]["phase"] == "Running"] == [name]
            assert (bed.status()["masked"], bed.status()["epoch"]) == (1, 3)
            assert metrics(bed) == {
                "spare_job_spares wanted": 1,
                "spare_job_spares ready": 1,
                "spare_job_spares_used_total": 1,
            }

            bed.agent(2).kill_worker()  # and the same again, with what was a spare as the group that is lost
            await bed.until(lambda: back(bed, 2), "it is back again", 60.0)

    run(main)


@pytest.mark.parametrize("how", ["deleted", "evicted", "node"])
def test_a_spare_that_goes_is_no_loss(tmp_path: Path, how: str) -> None:
    """Another is made; no plan, no condition, nothing masked."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await warm(bed)
            ((name, pod),) = spares(bed).items()
            if how == "deleted":
                bed.api.remove("pods", NAMESPACE, name)
            elif how == "evicted":
                gone = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
                bed.api.patch("pods", NAMESPACE, name, status={"conditions": [gone]})
            else:
                bed.agents[name].die("killed")
            await bed.until(lambda: name not in spares(bed) or how == "node", "it is gone", 60.0)
            others = await bed.until(lambda: spares(bed).keys() - {name}, "another is made", 60.0)
            await bed.until(lambda: ready(bed) == 1 and len(bed.events("SpareReady")) == 2, "it is ready", 60.0)

            status = bed.status()
            assert (status["epoch"], status["masked"], bed.condition("Degraded")[0]) == (1, 0, ""), others
            assert len(bed.events("SpareLost")) == 1
            assert pod["metadata"]["uid"] not in {p["metadata"]["uid"] for p in spares(bed).values()} or how == "node"

    run(main)


def test_room_goes_to_groups_before_spares(tmp_path: Path) -> None:
    """A quota for the groups alone: the job is none the worse, and a lost group has the room that it left."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.api.quota[NAMESPACE] = 4
            await training(bed, spares=1)
            await bed.until(lambda: bed.events("QuotaExceeded"), "the spare waits for room")
            assert bed.events("QuotaExceeded")[0].startswith("QuotaExceeded: spare 0: ")
            assert (bed.condition("Running"), bed.condition("Degraded")[0]) == (("True", "Started"), "")

            for number in (1, 3):
                before = {p["metadata"]["name"] for p in bed.pods()}
                bed.api.remove("pods", NAMESPACE, bed.pods(number)[0]["metadata"]["name"])
                await bed.until(lambda n=number: back(bed, (n + 1) // 2), "it is back", 90.0)  # type: ignore[misc]
                fresh = [p for p in bed.pods() if p["metadata"]["name"] not in before]
                assert [p["metadata"]["labels"].get(names.GROUP_NUMBER) for p in fresh] == [str(number)]
            assert spares(bed) == {}

            bed.api.quota[NAMESPACE] = 5
            await bed.until(lambda: ready(bed) == 1, "the spare comes when there is room", 90.0)

    run(main)


def test_a_pod_of_a_group_comes_before_that_of_a_spare(tmp_path: Path) -> None:
    """Both wait for room, the group for longer between two tries: what room there is, is the group's."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.steps = 1_000_000
            bed.operator()
            bed.api.quota[NAMESPACE] = 5
            bed.api.put("sparejobs", job_body(spares=2))
            await bed.until(lambda: ready(bed) == 1, "one spare is ready, the other waits for room")
            bed.api.quota[NAMESPACE] = 3
            for number in (1, 2):
                bed.agent(number).kill_worker()
            await bed.until(lambda: bed.status()["groups"]["active"] == 3, "one is back by the spare", 30.0)
            for pod in [p for p in bed.pods() if p["status"]["phase"] == "Failed"]:
                bed.api.remove("pods", NAMESPACE, pod["metadata"]["name"])
            await asyncio.sleep(45.0)
            before = {p["metadata"]["name"] for p in bed.pods()}
            bed.api.quota[NAMESPACE] = 4
            await bed.until(lambda: {p["metadata"]["name"] for p in bed.pods()} - before, "there is room for one", 60.0)

            (fresh,) = {p["metadata"]["name"] for p in bed.pods()} - before
            assert "-g2-" in fresh

    run(main)


def test_an_operator_that_comes_back_keeps_the_spares(tmp_path: Path) -> None:
    """The same pods wait on, and are of use."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await warm(bed, 2)
            there = set(spares(bed))
            await bed.kill(bed.operators[0][0])
            await asyncio.sleep(30.0)
            bed.operator()
            await bed.until(lambda: len(bed.operators) == 1 and ready(bed) == 2, "they are known again", 60.0)
            await asyncio.sleep(30.0)
            assert set(spares(bed)) == there

            bed.agent(0).kill_worker()
            await bed.until(lambda: back(bed), "it is back", 60.0)
            assert bed.pods(0)[-1]["metadata"]["name"] in there

    run(main)


def test_a_label_that_could_not_be_changed_is_changed_later(tmp_path: Path) -> None:
    """The plan counts, not the label: an operator that comes meanwhile takes nobody for a spare that is a group."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await warm(bed)
            ((name, _),) = spares(bed).items()
            fault = bed.api.fail("PATCH", f"/pods/{name}", 500, "away", times=1_000_000)
            bed.agent(1).kill_worker()
            await bed.until(lambda: back(bed), "it is back", 60.0)
            assert name in spares(bed)
            await bed.kill(bed.operators[0][0])
            bed.operator()
            await asyncio.sleep(60.0)
            assert (bed.status()["epoch"], bed.status()["masked"]) == (3, 1)
            assert not bed.agents[name].dead

            fault.times = 0
            await bed.until(lambda: name not in spares(bed), "the label is right", 120.0)
            assert [p["metadata"]["name"] for p in bed.pods(1) if p["status"]["phase"] == "Running"] == [name]

    run(main)


def test_a_spare_overtakes_a_pod_that_finds_no_place(tmp_path: Path) -> None:
    """Two losses, one spare, then containers that cannot start: the next spare that is ready is not kept from it."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await warm(bed)
            bed.stuck["-g2-"] = "ImagePullBackOff"
            bed.agent(1).kill_worker()
            bed.agent(2).kill_worker()
            await bed.until(lambda: back(bed, 2), "both are back", 120.0)

            running = [p["metadata"]["name"] for n in (1, 2) for p in bed.pods(n) if p["status"]["phase"] == "Running"]
            assert all(name.startswith("job-s0-") for name in running), running
            await bed.until(lambda: not [p for p in bed.pods() if "-g2-" in p["metadata"]["name"]][1:], "it is deleted")
            assert (bed.condition("Running"), bed.condition("Degraded")[0]) == (("True", "Started"), "False")

    run(main)
