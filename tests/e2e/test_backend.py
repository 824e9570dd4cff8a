"""The operator's parts against the real API server: what the fast tests' own server only claims to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kubernetes_asyncio import client, config

from spare.api.job import load_object
from spare.api.status import Status
from spare.control.plan import Member, Plan
from spare.control.signal import AgentGone, AgentNotStarted, Signal
from spare.planner import healthy, place
from spare_operator.backend import KubernetesBackend
from spare_operator.cluster import CONFIG_MAPS, JOBS, PODS, Cluster, Conflict, Exists, Invalid, NotFound
from spare_operator.credentials import credentials
from spare_operator.lease import Lease
from spare_operator.nodes import Nodes
from spare_operator.pod import JobKey, Pods
from spare_operator.record import Outrun, Record
from tests.e2e.jobs import integers
from tests.e2e.kubectl import Namespace

pytestmark = pytest.mark.usefixtures("definition")

DEADLINE = 60.0


def with_cluster(work: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    """Run a test's coroutine with the operator's own client."""

    async def main() -> None:
        configuration = client.Configuration()
        await config.load_kube_config(client_configuration=configuration)
        async with client.ApiClient(configuration) as api, asyncio.timeout(DEADLINE):
            await work(Cluster(api))
        await asyncio.sleep(0.25)  # connections with TLS need a moment to end

    asyncio.run(main())


async def a_job(cluster: Cluster, namespace: Namespace, **more: Any) -> tuple[JobKey, dict[str, Any]]:
    """A job that no operator works on; its pods need no image, for nobody waits for them to run."""
    body = integers("job", "no/such:image", namespace, **more)
    made = await cluster.create(JOBS, namespace.name, body)
    return JobKey(namespace.name, "job", made["metadata"]["uid"]), made


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # the whole test has a deadline
        await asyncio.sleep(0.05)


def test_errors_say_what_to_do_about_them(namespace: Namespace) -> None:
    """Exists, Conflict, NotFound, Invalid; deleting what is gone, or is another by that name, is success (F30)."""

    async def work(cluster: Cluster) -> None:
        body = {"metadata": {"name": "x"}, "data": {"a": "1"}}
        made = await cluster.create(CONFIG_MAPS, namespace.name, body)
        with pytest.raises(Exists):
            await cluster.create(CONFIG_MAPS, namespace.name, body)
        await cluster.replace(CONFIG_MAPS, {**made, "data": {"a": "2"}})
        with pytest.raises(Conflict):
            await cluster.replace(CONFIG_MAPS, {**made, "data": {"a": "3"}})
        await cluster.delete(CONFIG_MAPS, namespace.name, "x", uid="another")
        assert (await cluster.get(CONFIG_MAPS, namespace.name, "x"))["data"] == {"a": "2"}
        await cluster.delete(CONFIG_MAPS, namespace.name, "x")
        await cluster.delete(CONFIG_MAPS, namespace.name, "x")
        with pytest.raises(NotFound):
            await cluster.get(CONFIG_MAPS, namespace.name, "x")
        with pytest.raises(Invalid):
            await cluster.create(CONFIG_MAPS, namespace.name, {"metadata": {"name": "Not A Name"}})

    with_cluster(work)


def test_a_plan_is_written_once_for_each_epoch(namespace: Namespace) -> None:
    """Map and status by compare-and-swap; a second writer of the epoch is outrun; others' conditions stay (F35)."""

    async def work(cluster: Cluster) -> None:
        key, body = await a_job(cluster, namespace)
        foreign = {"type": "example.com/Checked", "status": "True", "reason": "Fine", "message": ""}
        foreign["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        await cluster.replace(JOBS, {**body, "status": {"conditions": [foreign]}}, "status")
        first, second = await Record.read(cluster, key), await Record.read(cluster, key)
        plan, other = (plan_of(str(key), uid) for uid in ("a", "b"))
        await first.write_plan(plan, lambda status: status.model_copy(update={"masked": 3}))
        with pytest.raises(Outrun, match="plan 1 is recorded already"):
            await second.write_plan(other, lambda status: status)
        await first.write_plan(plan, lambda status: status)  # the answer to the first time was lost

        status = Status.model_validate((await cluster.get(JOBS, namespace.name, "job"))["status"])
        assert (status.epoch, status.digest, status.masked) == (1, Plan.from_json(plan).digest, 3)
        assert [c.type for c in status.conditions] == ["example.com/Checked"]
        assert await first.write_status(lambda status: status) is False

    with_cluster(work)


def plan_of(job: str, uid: str) -> str:
    """A first plan of four groups."""
    schedule = healthy(place(4, 3, "Golomb"), 4)
    members = tuple(Member(group, f"{uid}{group}", 1) for group in range(4))
    return Plan(job, 1, 1, members, 0, ("127.0.0.1:1",), schedule, "start").to_json()


def test_of_two_operators_one_has_the_lease(namespace: Namespace) -> None:
    """F62: the second gets it when the first lets go; the number of the leadership grows."""

    async def work(cluster: Cluster) -> None:
        first = Lease(cluster, namespace.name, "lead", "first")
        second = Lease(cluster, namespace.name, "lead", "second")
        await first.acquire()
        assert first.held
        assert not await second._attempt()
        await first.release()
        assert not first.held
        await second.acquire()
        assert second.term == first.term + 1
        assert second.held

    with_cluster(work)


def test_pods_are_made_found_again_and_deleted(namespace: Namespace) -> None:
    """A backend makes them; another one after it adopts the same (F27), hears of a deletion, and deletes the rest."""

    async def work(cluster: Cluster) -> None:
        key, body = await a_job(cluster, namespace, groups=3)
        await credentials(cluster, key)
        told: list[Signal] = []

        def backend() -> KubernetesBackend:
            return KubernetesBackend(
                cluster,
                Pods(key, load_object(body).spec, body["spec"]["template"]),
                Nodes(),
                members=None,
                record=lambda text: asyncio.sleep(0),
                created=lambda group, name: None,
            )

        first = backend()
        await first.open(told.append)
        for group in range(3):
            await first.create(group)
        await until(lambda: len(first._seen) == 3)
        await first.close()
        pods = {p["metadata"]["name"] for p in await cluster.list(PODS, namespace.name)}
        assert len(pods) == 3

        second = backend()
        await second.open(told.append)
        for group in range(3):
            await second.create(group)
        await asyncio.sleep(1.0)
        assert {p["metadata"]["name"] for p in await cluster.list(PODS, namespace.name)} == pods
        gone = next(seen for seen in second._seen.values() if seen.group == 1)
        await cluster.delete(PODS, namespace.name, gone.name)
        await until(lambda: any(isinstance(s, AgentGone | AgentNotStarted) and s.group == 1 for s in told))
        for group, mark in tuple(second._chosen.items()):
            await second.delete(group, mark)
        await until(lambda: not [s for s in second._seen.values() if not s.deleting])
        await second.close()

    with_cluster(work)


def test_a_quota_s_refusal_is_known_as_one(namespace: Namespace) -> None:
    """F45: what the real quota says is waited out, not failed by."""

    async def work(cluster: Cluster) -> None:
        namespace.apply(
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
        )
        key, body = await a_job(cluster, namespace, groups=3)
        await credentials(cluster, key)
        told: list[Signal] = []
        backend = KubernetesBackend(
            cluster,
            Pods(key, load_object(body).spec, body["spec"]["template"]),
            Nodes(),
            members=None,
            record=lambda text: asyncio.sleep(0),
            created=lambda group, name: None,
        )
        await asyncio.sleep(2.0)  # the quota's own count begins
        await backend.open(told.append)
        for group in range(3):
            await backend.create(group)
        await until(lambda: len(backend.held) >= 2)
        await backend.close()

        assert {str(reason) for reason, _ in backend.held.values()} == {"QuotaExceeded"}
        assert not [s for s in told if isinstance(s, AgentNotStarted)]

    with_cluster(work)
