"""Pods and nodes that go: each loss is handled once, whatever is told of it, how often and in which order."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spare_operator import names
from spare_operator.lease import Timing
from tests.operator.api_server import Body
from tests.operator.bed import NAMESPACE, Bed, PodAgent, a_bed, job_body
from tests.operator.loop import run

LONG = 1_000_000


async def training(bed: Bed, settings: Mapping[str, Any] | None = None, **spec: Any) -> None:
    """A job that trains and does not end by itself. `settings`: of the operator."""
    bed.steps = LONG
    bed.operator(**(settings or {}))
    bed.api.put("sparejobs", job_body(**spec))
    await bed.trains()


def back(bed: Bed, masked: int = 1) -> bool:
    status = bed.status()
    return bool(status["masked"] == masked and status["groups"]["active"] == status["groups"]["desired"])


def name_of(bed: Bed, group: int) -> str:
    name: str = bed.pods(group)[0]["metadata"]["name"]
    return name


def test_a_deleted_pod_is_masked_and_replaced_f28(tmp_path: Path) -> None:
    """F28, F31, F49: one loss, one rejoin, under another name; the other pods, the plan's map and the secrets stay."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            kept = {b["metadata"]["name"]: b["metadata"]["uid"] for b in [*bed.pods(), *bed.api.all("secrets")]}
            maps = [b["metadata"]["uid"] for b in bed.api.all("configmaps")]
            gone = name_of(bed, 2)
            bed.api.remove("pods", NAMESPACE, gone)
            await bed.until(lambda: back(bed), "it is back", 60.0)
            assert [b["metadata"]["uid"] for b in bed.api.all("configmaps")] == maps

            status, after = bed.status(), {p["metadata"]["name"]: p["metadata"]["uid"] for p in bed.pods()}
            assert (status["masked"], status["epoch"], status["restarts"], status["depth"]) == (1, 3, 0, 1.0)
            assert "group 2 lost" in status["lastReorder"]["reason"]
            assert status["lastReorder"]["seconds"] < 5.0
            del kept[gone]
            assert gone not in after
            assert {n: u for n, u in kept.items() if "-p0-" in n}.items() <= after.items()
            assert {b["metadata"]["name"]: b["metadata"]["uid"] for b in bed.api.all("secrets")}.items() <= kept.items()

    run(main)


def test_a_loss_and_its_return_are_four_events_f54(tmp_path: Path) -> None:
    """F54: GroupLost, Reordered, PodCreated, GroupRejoined, each after the status that it is about."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            before = len(bed.events())
            bed.agent(1).kill_worker()
            await bed.until(lambda: back(bed), "it is back", 60.0)
            await asyncio.sleep(10.0)

            told = [event.partition(":")[0] for event in bed.events()[before:]]
            assert told == ["GroupLost", "Reordered", "PodCreated", "GroupRejoined"]
            log = [(kind, key[0]) for _, kind, key, body in bed.api.log if key[0] in ("sparejobs", "events")]
            assert log.index(("MODIFIED", "sparejobs")) < log.index(("ADDED", "events"))

    run(main)


def test_a_pod_deleted_by_force_is_not_asked_to_leave(tmp_path: Path) -> None:
    """It has a grace of 0 s when it is seen going, and is gone at once: a loss, told as one (F54)."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            name = name_of(bed, 1)
            going = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
            bed.stop_delay = 0.2
            bed.api.patch("pods", NAMESPACE, name, metadata=going)
            await bed.until(lambda: bed.events("GroupRejoined"), "it is back", 60.0)

            told = [text.partition(":")[0] for text in bed.events()]
            assert sorted(told[2:]) == ["GroupLost", "GroupRejoined", "PodCreated", "Reordered"]

    run(main)


def test_with_too_few_groups_training_waits(tmp_path: Path) -> None:
    """minGroups: Running is False for that reason while fewer are there; True and Degraded again once enough are."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed, groups=4, redundancy=4, minGroups=3)
            bed.start_delay = 40.0
            for group in (1, 2):
                bed.api.remove("pods", NAMESPACE, name_of(bed, group))
            await bed.until(lambda: bed.condition("Running") == ("False", "BelowMinGroups"), "it waits", 30.0)
            step = bed.agent(0).committed
            await asyncio.sleep(10.0)
            assert bed.agent(0).committed <= step + 1
            assert bed.condition("Degraded")[0] != "True"
            await bed.until(lambda: bed.condition("Running")[0] == "True", "it trains again", 90.0)
            await bed.until(lambda: bed.agent(0).committed > step + 2, "steps are committed", 30.0)

            assert (bed.status()["masked"], bed.status()["restarts"]) == (2, 0)

    run(main)


def test_events_of_a_pod_that_was_replaced_change_nothing_f24(tmp_path: Path) -> None:
    """F24: DELETED and Failed of a former pod, again and late, and a replay of all: epoch and masked stay."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            old = copy.deepcopy(bed.pods(1)[0])
            bed.api.remove("pods", NAMESPACE, old["metadata"]["name"])
            await bed.until(lambda: back(bed), "it is back", 60.0)
            before = bed.status()["epoch"], bed.status()["masked"]
            [operator] = [each[0] for each in bed.operators]
            assert operator.jobs is not None
            failed = {**old, "status": {"phase": "Failed"}}
            for body, deleted in ((old, True), (failed, False), (old, False), (old, True)):
                operator.jobs.see_pod(body, deleted=deleted)
            for pod in bed.pods():  # a watch that begins anew shows everything again
                operator.jobs.see_pod(pod)
            await asyncio.sleep(30.0)

            assert (bed.status()["epoch"], bed.status()["masked"]) == before
            assert len(bed.pods()) == 4

    run(main)


def test_a_pod_deleted_and_made_again_at_once_is_one_loss_f25(tmp_path: Path) -> None:
    """F25: uids are compared, so a successor of the same name within 100 ms is one loss and one rejoin."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            old = bed.pods(3)[0]
            fresh: Body = {"metadata": {k: old["metadata"][k] for k in ("name", "namespace", "labels")}}
            fresh["spec"] = {k: v for k, v in old["spec"].items() if k != "nodeName"}
            bed.api.remove("pods", NAMESPACE, old["metadata"]["name"])
            bed.api.put("pods", fresh)
            await bed.until(lambda: back(bed), "it is back", 60.0)
            await asyncio.sleep(30.0)

            assert bed.status()["masked"] == 1
            assert len(bed.events("GroupRejoined")) == 1
            assert len(bed.pods()) == 4

    run(main)


def test_a_successor_does_not_wait_for_a_pod_that_cannot_go_f31(tmp_path: Path) -> None:
    """F31: the node is dead, its pod stays Terminating for ever; the group is back under another name."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            name = name_of(bed, 1)
            node = bed.api.get("pods", NAMESPACE, name)["spec"]["nodeName"]
            bed.dead_nodes.add(node)
            bed.agents[name].frozen = True
            await bed.until(lambda: back(bed), "it is back", 90.0)

            there = {p["metadata"]["name"]: p["metadata"] for p in bed.pods(1)}
            assert len(there) == 2
            assert "deletionTimestamp" in there[name]

    run(main)


@pytest.mark.slow
def test_a_full_quota_keeps_a_replacement_waiting_and_no_more_f46(tmp_path: Path) -> None:
    """F46: Running and Degraded meanwhile, never Failed; back within a minute of there being room."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            bed.api.quota[NAMESPACE] = 3
            bed.agent(1).die("killed")
            await bed.until(lambda: bed.condition("Degraded")[0] == "True", "it is degraded")
            await asyncio.sleep(300.0)
            degraded = next(c for c in bed.status()["conditions"] if c["type"] == "Degraded")

            assert bed.condition("Running")[0] == "True"
            assert "QuotaExceeded: group 1: pods " in degraded["message"]
            del bed.api.quota[NAMESPACE]
            assert await bed.until(lambda: back(bed), "it is back", 60.0) < 60.0

    run(main)


@pytest.mark.slow
def test_a_queue_gets_its_pods_back_before_it_is_asked_for_more_f48(tmp_path: Path) -> None:
    """F48: with Kueue's label no name comes twice, a pod is made once the old one is gone, at most 8 in 2 minutes."""
    template: Body = {
        "metadata": {"labels": {names.QUEUE_NAME: "gpus"}},
        "spec": {"containers": [{"name": "trainer", "image": "i", "command": ["python", "t.py"]}]},
    }

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed, template=template)
            bed.stop_delay = 3.0
            made: list[str] = []
            began = asyncio.get_running_loop().time()

            def evict(kind: str, key: tuple[str, str, str], body: Body) -> None:
                if key[0] != "pods" or body["metadata"]["labels"][names.GROUP_NUMBER] != "1" or kind != "ADDED":
                    return
                others = [p for p in bed.pods(1) if p["metadata"]["uid"] != body["metadata"]["uid"]]
                assert not others, "the old pod is still there"
                made.append(key[2])
                asyncio.get_running_loop().call_later(2.0, bed.api.remove, *key)

            bed.compute = 0.1  # each is back among the others before it is taken away again
            bed.api.watchers.append(evict)
            bed.api.remove("pods", NAMESPACE, name_of(bed, 1))
            await asyncio.sleep(120.0 - (asyncio.get_running_loop().time() - began))

            assert len(made) == len(set(made))
            assert 2 <= len(made) <= 8

    run(main)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_watches_that_say_nothing_only_cost_seconds_f61(tmp_path: Path) -> None:
    """F61: an idle hour, then every watch is dead: a lost pod is noticed in less than 10 s all the same."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.compute = 30.0
            slow = Timing(duration=150.0, renew_within=100.0, retry=20.0)
            detection = {"heartbeat": "30s", "deadAfter": "2m", "hangAfter": "20m"}
            await training(bed, {"timing": slow}, detection=detection)
            await asyncio.sleep(3600.0)
            bed.api.mute_watches = True
            bed.agent(2).frozen = True  # nothing but the object tells
            bed.api.remove("pods", NAMESPACE, name_of(bed, 2))
            took = await bed.until(lambda: bed.status()["masked"] == 1, "the loss is noticed", 20.0)

            assert took < 10.0

    run(main, limit=10_000.0)


@pytest.mark.slow
def test_nothing_is_written_while_nothing_happens_f04(tmp_path: Path) -> None:
    """F04: a hundred ticks on one view: the job's and the plan's resourceVersion stay."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            for group in range(4):
                bed.agent(group).stuck = True
            await asyncio.sleep(10.0)
            before = bed.job()["metadata"]["resourceVersion"]
            await asyncio.sleep(100.0)

            assert bed.job()["metadata"]["resourceVersion"] == before

    run(main)


def test_three_pods_of_one_node_are_one_decision_f05(tmp_path: Path) -> None:
    """F05: a node goes without a word; its three groups are lost together: epoch +1, masked +3, the node is named."""

    async def main() -> None:
        async with a_bed(tmp_path, nodes=3) as bed:
            bed.steps = LONG
            await bed.started(job_body(groups=8, redundancy=5))
            by_node: dict[str, list[PodAgent]] = {}
            for pod in bed.pods():
                by_node.setdefault(pod["spec"]["nodeName"], []).append(bed.agents[pod["metadata"]["name"]])
            node, agents = next((n, a) for n, a in by_node.items() if len(a) == 3)
            bed.dead_nodes.add(node)
            for agent in agents:
                agent.frozen = True
            await bed.until(lambda: bed.status()["masked"] == 3, "all three are lost", 30.0)

            assert bed.status()["epoch"] == 2
            assert node in bed.status()["lastReorder"]["reason"]
            await bed.until(lambda: bed.events("GroupLost"), "it is told", 5.0)
            assert len(bed.events("GroupLost")) == 1

    run(main)
