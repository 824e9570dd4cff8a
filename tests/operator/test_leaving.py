"""Pods that must go, and jobs that are to stop for a while: in good order, before anybody is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spare.api import wire
from spare_operator.backend import LOOK
from spare_operator.nodes import SETTLE
from tests.operator.bed import NAMESPACE, a_bed
from tests.operator.loop import run
from tests.operator.test_losses import back, name_of, training


def test_a_pod_that_is_being_deleted_leaves_at_once_f36(tmp_path: Path) -> None:
    """F36: deletionTimestamp with a grace of 600 s: asked to leave and replaced within a second, not in ten minutes."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.stop_delay = 600.0
            await training(bed)
            old = name_of(bed, 2)
            bed.api.patch("pods", NAMESPACE, old, metadata={"deletionGracePeriodSeconds": 600})
            bed.api.remove("pods", NAMESPACE, old, grace=True)
            took = await bed.until(lambda: len(bed.pods(2)) == 2, "its replacement is made", 30.0)

            assert took < 2.5  # asked within one; let go at the next commit
            await bed.until(lambda: back(bed, masked=0), "the replacement trains")
            assert bed.status()["masked"] == 0

    run(main)


def test_a_disruption_is_enough_to_leave_f36(tmp_path: Path) -> None:
    """An eviction announces itself by a condition, before the pod has a deletionTimestamp."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
            name = name_of(bed, 1)
            bed.api.patch("pods", NAMESPACE, name, status={"conditions": [condition]})
            await bed.until(lambda: bed.events("Leaving"), "it is asked to leave", 5.0)

            assert "EvictionByEvictionAPI" in bed.events("Leaving")[0]
            await bed.until(lambda: len(bed.pods(1)) == 2, "its replacement is made", 30.0)

    run(main)


@pytest.mark.parametrize("what", ["taint", "not ready"])
def test_a_node_in_trouble_is_left_by_all_its_groups_at_once_f32(tmp_path: Path, what: str) -> None:
    """F32, F05: a NoExecute taint or NotReady while the agents answer: all groups there leave, by one plan."""

    async def main() -> None:
        async with a_bed(tmp_path, nodes=4) as bed:
            await training(bed, groups=8, redundancy=4)
            node = bed.pods(0)[0]["spec"]["nodeName"]
            there = sum(pod["spec"]["nodeName"] == node for pod in bed.pods())
            bed.dead_nodes.add(node)  # nothing new is put there
            if what == "taint":
                bed.api.patch("nodes", "", node, spec={"taints": [{"key": "maintenance", "effect": "NoExecute"}]})
            else:
                state = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}
                bed.api.patch("nodes", "", node, status=state)
            soon = 5.0 if what == "taint" else 5.0 + SETTLE + LOOK  # a node that is not ready may be so by mistake
            await bed.until(lambda: len(bed.events("Leaving")) == there, "all there are asked", soon)
            await bed.until(lambda: bed.status()["epoch"] >= 2, "a plan lets them go", 10.0)

            assert there == 2
            assert all(node in text for text in bed.events("Leaving"))
            assert bed.status()["masked"] == 0

    run(main)


def test_a_taint_that_the_pods_tolerate_sends_nobody_away(tmp_path: Path) -> None:
    """Nodes set apart for such jobs. What is tolerated for some minutes only, as every pod does dead nodes, is not."""
    container = {"name": "trainer", "image": "i", "command": ["python", "t.py"]}
    given = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300}
    pod = {"containers": [container], "tolerations": [{"key": "pool", "value": "gpu"}, given]}

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            apart = {"key": "pool", "value": "gpu", "effect": "NoExecute"}
            for node in bed.api.all("nodes"):
                bed.api.patch("nodes", "", node["metadata"]["name"], spec={"taints": [apart]})
            await training(bed, template={"spec": pod})
            await asyncio.sleep(10.0)
            assert (bed.events("Leaving"), bed.status()["epoch"]) == ([], 1)

            node = bed.pods(1)[0]["spec"]["nodeName"]
            dead = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
            bed.api.patch("nodes", "", node, spec={"taints": [apart, dead]})
            await bed.until(lambda: bed.events("Leaving"), "it is asked to leave", 10.0 + SETTLE)
            assert "has the taint node.kubernetes.io/unreachable:NoExecute" in bed.events("Leaving")[0]

    run(main)


def test_a_group_that_is_leaving_is_let_leave_by_the_next_operator(tmp_path: Path) -> None:
    """A plan let it go, and the operator died: the next one deletes nothing under it, and knows it as drained."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            old = name_of(bed, 1)
            node = bed.api.get("pods", NAMESPACE, old)["spec"]["nodeName"]
            bed.api.patch("nodes", "", node, spec={"taints": [{"key": "maintenance", "effect": "NoExecute"}]})
            await bed.until(lambda: bed.status()["epoch"] == 2, "a plan lets it go", 10.0)
            lines = len(bed.agents[old].channels)
            await bed.kill(bed.operators[0][0])
            second = bed.operator()
            await bed.until(lambda: second.lease.held, "another leads", 30.0)
            await asyncio.sleep(8.0)
            assert "deletionTimestamp" not in bed.api.get("pods", NAMESPACE, old)["metadata"]
            assert len(bed.agents[old].channels) > lines
            await bed.until(lambda: bed.status()["drained"] == 1, "it is known to have left", 90.0)

            assert bed.status()["masked"] == 0

    run(main)


def test_what_is_going_is_never_admitted_f03(tmp_path: Path) -> None:
    """F03: a pod with a deletionTimestamp does not join; another is started in its place."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            bed.start_delay = 5.0
            bed.api.remove("pods", NAMESPACE, name_of(bed, 3))
            await bed.until(lambda: len(bed.pods(3)) == 1, "its replacement is made", 30.0)
            bed.stop_delay = 60.0
            dying = name_of(bed, 3)
            bed.api.patch("pods", NAMESPACE, dying, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
            await bed.until(lambda: back(bed), "another one trains", 60.0)

            assert len(bed.pods(3)) == 2
            assert bed.status()["masked"] == 1

    run(main)


@pytest.mark.parametrize("away", [False, True])
def test_a_suspended_job_has_no_pods_and_goes_on_later(tmp_path: Path, away: bool) -> None:
    """runPolicy.suspend: all stop after the same step and go; taken back, the job goes on under later epochs.

    The same if no operator lived when it was set: who runs is not killed in the middle of a step.
    """

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            policy = bed.job()["spec"].get("runPolicy", {})
            if away:
                await bed.kill(bed.operators[0][0])
            bed.api.patch("sparejobs", NAMESPACE, "job", spec={"runPolicy": {**policy, "suspend": True}})
            if away:
                bed.operator()
            await bed.until(lambda: all(a.plan is not None and a.plan.halt for a in bed.agents.values()), "a halt")
            step = max(agent.committed for agent in bed.agents.values())  # these agents do not wait for each other here
            for agent in bed.agents.values():
                agent._say_again(agent.message(wire.Halted, step=step, saved=False))
                agent._say_again(agent.message(wire.Exited, code=0))
                agent.exit_code = 0
                agent.die("halted")
            await bed.until(lambda: bed.condition("Suspended")[0] == "True", "it is suspended", 60.0)
            await bed.until(lambda: not bed.pods(), "its pods go")
            epoch = bed.status()["epoch"]

            assert bed.condition("Running")[0] == "False"
            assert "completionTime" not in bed.status()
            await asyncio.sleep(30.0)
            assert not bed.pods()
            bed.api.patch("sparejobs", NAMESPACE, "job", spec={"runPolicy": {**policy, "suspend": False}})
            await bed.until(lambda: bed.condition("Running")[0] == "True", "it trains again")
            assert bed.condition("Suspended")[0] == "False"
            assert bed.status()["epoch"] > epoch
            assert bed.status()["restarts"] == 0

    run(main)


@pytest.mark.parametrize("gone", [False, True])
def test_who_stops_while_no_operator_lives_is_not_lost_f23(tmp_path: Path, gone: bool) -> None:
    """F23: the operator goes with the nodes; all groups stop, and their pods are over, or gone, when another comes."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            policy = bed.job()["spec"].get("runPolicy", {})
            bed.api.patch("sparejobs", NAMESPACE, "job", spec={"runPolicy": {**policy, "suspend": True}})
            await bed.until(lambda: all(a.plan is not None and a.plan.halt for a in bed.agents.values()), "a halt")
            await bed.kill(bed.operators[0][0])
            for agent in bed.agents.values():
                agent.exit_code = 0
                agent.die("halted")
            await asyncio.sleep(1.0)
            for pod in bed.pods() if gone else []:
                bed.api.remove("pods", NAMESPACE, pod["metadata"]["name"])
            bed.operator()
            await bed.until(lambda: bed.condition("Suspended")[0] == "True", "it is suspended", 60.0)
            assert (bed.status()["masked"], bed.status()["restarts"]) == (0, 0)
            assert bed.condition("Failed")[0] != "True"

            bed.api.patch("sparejobs", NAMESPACE, "job", spec={"runPolicy": {**policy, "suspend": False}})
            await bed.until(lambda: bed.condition("Running")[0] == "True", "it trains again")

    run(main)
