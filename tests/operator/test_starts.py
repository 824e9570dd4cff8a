"""Starts of groups that are cut off in the middle: whatever is half there, the group comes back as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client

from spare.api.job import load_object
from spare.api.reasons import EventReason
from spare.control.signal import AgentGone, AgentNotStarted, AgentUp, DrainGroup, Signal
from spare_operator import backend as module
from spare_operator import names
from spare_operator.backend import KubernetesBackend
from spare_operator.cluster import Cluster
from spare_operator.nodes import Nodes
from spare_operator.pod import JobKey, Pods
from spare_operator.serve import api_client
from spare_operator.stuck import UNPREPARED
from tests.operator.api_server import ApiServer, Body
from tests.operator.bed import NAMESPACE, a_bed, job_body
from tests.operator.loop import run
from tests.operator.test_losses import training


class Scene:
    """A job of two groups of two pods, and whoever starts them. No kubelet: pods run when the test says so."""

    def __init__(self, api: ApiServer, cluster: Cluster, body: Body) -> None:
        self.api, self._cluster = api, cluster
        made = api.put("sparejobs", body)
        key = JobKey(NAMESPACE, "job", made["metadata"]["uid"])
        self._pods = Pods(key, load_object(made).spec, made["spec"]["template"])
        self.told: list[Signal] = []

    async def backend(self, members: dict[int, str] | None = None) -> KubernetesBackend:
        """Another operator's."""

        async def record(text: str) -> None:
            pass

        made = KubernetesBackend(
            self._cluster, self._pods, Nodes(), members=members, record=record, created=lambda group, name: None
        )
        await made.open(self.told.append)
        return made

    def pods(self) -> dict[str, list[Body]]:
        """By incarnation."""
        found: dict[str, list[Body]] = {}
        for pod in self.api.all("pods"):
            found.setdefault(pod["metadata"]["labels"][names.INCARNATION], []).append(pod)
        return found

    def runs(self, pod: Body) -> None:
        """Its container has started."""
        container = {"name": "trainer", "state": {"running": {}}}
        status = {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [container]}
        self.api.patch("pods", NAMESPACE, pod["metadata"]["name"], status=status)

    async def until(self, condition: Callable[[], object], what: str) -> None:
        async with asyncio.timeout(120.0):
            while not condition():  # noqa: ASYNC110  # virtual time
                await asyncio.sleep(0.1)
        assert condition(), what


@asynccontextmanager
async def a_scene(**spec: Any) -> AsyncIterator[Scene]:
    api = ApiServer()
    await api.open()
    cluster = api_client(client.Configuration(host=api.address))
    try:
        yield Scene(api, Cluster(cluster), job_body(**{"groups": 2, "redundancy": 2, "podsPerGroup": 2, **spec}))
    finally:
        await cluster.close()
        await api.close()


def test_a_start_that_was_given_up_in_a_pause_is_followed_by_another() -> None:
    """A quota holds the second pod back, the first is lost: the next start is made though the former still waits."""

    async def main() -> None:
        async with a_scene() as scene:
            scene.api.quota[NAMESPACE] = 1
            backend = await scene.backend()
            await backend.create(0)
            await asyncio.sleep(20.0)
            ((former, _),) = scene.pods().items()
            await backend.delete(0, former)
            await backend.create(0)
            del scene.api.quota[NAMESPACE]
            await scene.until(lambda: [len(p) for m, p in scene.pods().items() if m != former] == [2], "two pods")
            await asyncio.sleep(60.0)

            assert former not in scene.pods()
            await backend.close()

    run(main)


def test_a_start_that_an_operator_left_half_made_is_made_anew() -> None:
    """Once there is a plan nobody asks for the rest of it: the half is told to nobody, and goes."""

    async def main() -> None:
        async with a_scene() as scene:
            scene.api.quota[NAMESPACE] = 1
            first = await scene.backend()
            await first.create(0)
            await scene.until(scene.pods, "one pod is made")
            await first.close()
            ((former, (pod,)),) = scene.pods().items()
            scene.runs(pod)
            del scene.api.quota[NAMESPACE]
            second = await scene.backend({1: "member"})
            await asyncio.sleep(10.0)
            assert not [s for s in scene.told if isinstance(s, AgentUp)]
            await second.create(0)
            await scene.until(lambda: [len(p) for p in scene.pods().values()] == [2], "both are made")

            assert former not in scene.pods()
            await second.close()

    run(main)


def test_a_pod_that_goes_before_it_runs_takes_its_siblings_along() -> None:
    """The start is over: what of it runs later is told to nobody, or the control would wait for its other half."""

    async def main() -> None:
        async with a_scene() as scene:
            backend = await scene.backend()
            await backend.create(0)
            await scene.until(lambda: len(scene.api.all("pods")) == 2, "both are made")
            sibling, lost = scene.api.all("pods")
            scene.api.remove("pods", NAMESPACE, lost["metadata"]["name"])
            backend.see(lost | {"metadata": lost["metadata"] | {"deletionTimestamp": "now"}}, deleted=True)
            scene.runs(sibling)
            backend.see(scene.api.get("pods", NAMESPACE, sibling["metadata"]["name"]))
            await asyncio.sleep(10.0)
            assert [type(s) for s in scene.told] == [AgentNotStarted]
            await backend.create(0)
            await scene.until(lambda: [len(p) for p in scene.pods().values()] == [2], "both are made anew")

            assert not {p["metadata"]["name"] for p in scene.api.all("pods")} & {
                each["metadata"]["name"] for each in (sibling, lost)
            }
            assert not [s for s in scene.told if isinstance(s, AgentGone)]
            await backend.close()

    run(main)


@pytest.mark.parametrize("begun", [False, True])
def test_a_misspelt_field_of_the_template_is_told_before_a_job_begins(begun: bool) -> None:
    """The API server would drop it without a word, and pods would go where they must not; who trains goes on."""
    container = {"name": "trainer", "image": "i", "command": ["python", "t.py"]}
    template = {"spec": {"containers": [container], "nodeSelecter": {"gpu": "yes"}}}

    async def main() -> None:
        async with a_scene(podsPerGroup=1, template=template) as scene:
            backend = await scene.backend({1: "former"} if begun else None)
            await backend.create(0)
            await scene.until(lambda: scene.pods() or backend.held, "it is made, or is not")
            assert bool(scene.pods()) == begun
            assert begun or 'unknown field "spec.nodeSelecter"' in backend.held[0, 0][1]
            await backend.close()

    run(main)


def test_a_queue_that_waits_for_an_old_pod_is_told_of() -> None:
    """The pod of a dead node stays Terminating: with Kueue's label a group is held by it, and says so."""
    container = {"name": "trainer", "image": "i", "command": ["python", "t.py"]}
    template = {"metadata": {"labels": {names.QUEUE_NAME: "gpus"}}, "spec": {"containers": [container]}}

    async def main() -> None:
        async with a_scene(podsPerGroup=1, template=template) as scene:
            backend = await scene.backend()
            await backend.create(0)
            await scene.until(scene.pods, "it is made")
            ((former, (pod,)),) = scene.pods().items()
            name = pod["metadata"]["name"]
            scene.api.patch("pods", NAMESPACE, name, metadata={"finalizers": ["example.com/dead-node"]})
            await backend.delete(0, former)
            await backend.create(0)
            await asyncio.sleep(module.PATIENCE / 2)
            assert backend.held == {}
            await asyncio.sleep(module.PATIENCE)
            assert backend.held[0, 0][0] == EventReason.PODS_NOT_STARTING
            assert name in backend.held[0, 0][1]
            scene.api.patch("pods", NAMESPACE, name, metadata={"finalizers": []})
            scene.api.remove("pods", NAMESPACE, name)
            await scene.until(lambda: scene.pods() and former not in scene.pods(), "the next is made")
            await scene.until(lambda: backend.held == {}, "nothing holds it any more")
            await backend.close()

    run(main)


def test_a_pod_whose_making_was_not_heard_of_breaks_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The answer is lost, and then the server cannot say what there is: asked again until it can."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.api.fail("POST", "/pods$", 500, done=True)
            fault = bed.api.fail("GET", "/pods/job-g0-", 500, "away", times=1_000_000)
            await training(bed)
            await asyncio.sleep(40.0)
            assert fault.times < 1_000_000
            fault.times = 0
            await asyncio.sleep(30.0)

            assert len(bed.pods()) == 4
            assert bed.status()["epoch"] == 1

    run(main)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def _pod(scene: Scene) -> Body:
    """The only one."""
    (found,) = scene.api.all("pods")
    return found


def test_a_volume_that_does_not_come_is_told_of() -> None:
    """A ConfigMap that does not exist: the kubelet says so in an event only, and the job would wait without a word."""
    prepared = {"type": "PodReadyToStartContainers", "status": "False"}

    async def main() -> None:
        async with a_scene(podsPerGroup=1) as scene:
            backend = await scene.backend()
            await backend.create(0)
            await scene.until(scene.pods, "it is made")
            name = _pod(scene)["metadata"]["name"]
            scene.api.patch("pods", NAMESPACE, name, status={"phase": "Pending", "conditions": [prepared]})
            await asyncio.sleep(UNPREPARED)
            assert backend.held == {}
            await asyncio.sleep(15.0)
            reason, text = backend.held[0, 0]
            assert reason == EventReason.PODS_NOT_STARTING
            assert f"kubectl describe pod {name}" in text
            scene.runs(_pod(scene))
            await scene.until(lambda: backend.held == {}, "nothing holds it any more")
            await backend.close()

    run(main)


def test_a_container_beside_the_trainer_that_crashes_keeps_nobody_from_training() -> None:
    """A sidecar in CrashLoopBackOff: the trainer's agent is reached, and nothing is said of the pod again and again."""
    crashes = {"name": "logs", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    runs = {"name": "trainer", "state": {"running": {}}}

    async def main() -> None:
        async with a_scene(podsPerGroup=1) as scene:
            backend = await scene.backend()
            await backend.create(0)
            await scene.until(scene.pods, "it is made")
            status = {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [runs]}
            name = _pod(scene)["metadata"]["name"]
            scene.api.patch("pods", NAMESPACE, name, status={**status, "initContainerStatuses": [crashes]})
            await scene.until(lambda: [s for s in scene.told if isinstance(s, AgentUp)], "it is reached")
            assert backend.held == {}
            await backend.close()

    run(main)


def test_what_ends_a_start_from_outside_is_told_as_that() -> None:
    """Deleted, evicted, refused by its node: no crash loop of the job's, however often it happens."""
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    ends: list[tuple[bool, Body]] = [
        (True, {"phase": "Failed", "reason": "OutOfcpu", "message": "no"}),
        (True, {"phase": "Pending", "conditions": [evicted]}),
        (
            False,
            {"phase": "Failed", "containerStatuses": [{"name": "trainer", "state": {"terminated": {"exitCode": 1}}}]},
        ),
    ]

    async def main() -> None:
        for outside, status in ends:
            async with a_scene(podsPerGroup=1) as scene:
                backend = await scene.backend()
                await backend.create(0)
                await scene.until(scene.pods, "it is made")
                scene.api.patch("pods", NAMESPACE, _pod(scene)["metadata"]["name"], status=status)
                await scene.until(lambda: scene.told, "it is told")
                assert [s.outside for s in scene.told if isinstance(s, AgentNotStarted)] == [outside]
                await backend.close()

    run(main)


def test_an_eviction_s_grace_is_told_when_it_is_known() -> None:
    """The API server marks the pod first and deletes it then, with a grace that may be shorter than the pod's own."""
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}

    async def main() -> None:
        async with a_scene(podsPerGroup=1) as scene:
            backend = await scene.backend()
            await backend.create(0)
            await scene.until(scene.pods, "it is made")
            scene.runs(_pod(scene))
            await scene.until(lambda: scene.told, "it is up")
            name = _pod(scene)["metadata"]["name"]
            scene.api.patch("pods", NAMESPACE, name, status={"conditions": [evicted]})
            await scene.until(lambda: len(scene.told) == 2, "it is asked to leave")
            going = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3}
            scene.api.patch("pods", NAMESPACE, name, metadata=going)
            await scene.until(lambda: len(scene.told) == 3, "it is told how long it has")

            assert [s.grace for s in scene.told if isinstance(s, DrainGroup)] == [None, 3]
            await backend.close()

    run(main)


def test_agents_are_reached_at_the_port_that_their_pods_have(tmp_path: Path) -> None:
    """An operator with another port takes over: pods that run keep theirs, and are dialled there."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed, {"agent_port": 29478})
            await bed.kill(bed.operators[0][0])
            bed.operator(agent_port=29479)
            step = bed.status()["step"]
            await bed.until(lambda: bed.status()["step"] > step + 30, "it hears of steps", 120.0)

            assert (bed.status()["epoch"], bed.status()["masked"]) == (1, 0)

    run(main)


def test_a_replacement_that_ends_before_it_runs_is_told_of_once(tmp_path: Path) -> None:
    """The job trains on, Degraded, and its condition has the container runtime's own words until one comes up (F55)."""
    ended = {"exitCode": 128, "reason": "StartError", "message": 'exec: "spare-agent": executable file not found'}

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            bed.start_delay = 1e6

            def fail(kind: str, key: tuple[str, str, str], body: Body) -> None:
                if kind == "ADDED" and key[0] == "pods":
                    container = {"name": "trainer", "state": {"terminated": ended}}
                    status = {"phase": "Failed", "containerStatuses": [container]}
                    asyncio.get_running_loop().call_later(0.5, lambda: bed._status(key, **status))

            bed.api.watchers.append(fail)
            bed.agent(1).die("killed")
            await asyncio.sleep(60.0)
            degraded = next(c for c in bed.status()["conditions"] if c["type"] == "Degraded")
            assert degraded["status"] == "True"
            assert 'StartError, exit code 128: exec: "spare-agent": executable file not found' in degraded["message"]
            assert (len(bed.events("PodsNotStarting")), bed.events("Refused")) == (1, [])

            bed.api.watchers.remove(fail)
            bed.start_delay = 1.0
            await bed.until(lambda: bed.status()["groups"]["active"] == 4, "it is back", 90.0)
            await bed.until(lambda: bed.condition("Degraded")[0] == "False", "nothing is amiss", 10.0)

    run(main)
