"""Operators that die, come back, wait or are deposed; and an API server that is not always at one's service."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from spare.api import wire
from spare.control.record import document, read_document
from spare_operator.cluster import PODS, Cluster
from tests.operator.bed import NAMESPACE, Bed, a_bed, job_body
from tests.operator.loop import run
from tests.operator.test_losses import back, name_of, training


def incarnations(bed: Bed) -> set[str]:
    return {pod["metadata"]["uid"] for pod in bed.pods()}


def test_an_operator_that_comes_back_goes_on_with_the_recorded_plan_f29(tmp_path: Path) -> None:
    """F29: steps go on without it; back, same epoch and digest, nobody regroups, the step is right at once."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            before, pods = bed.status(), incarnations(bed)
            plans = {name: len(agent.plans) for name, agent in bed.agents.items()}
            await bed.kill(bed.operators[0][0])
            at = bed.agent(0).committed
            await asyncio.sleep(60.0)
            assert bed.agent(0).committed > at + 5
            bed.operator()
            await bed.until(lambda: bed.status()["step"] >= bed.agent(0).committed - 3, "the step is right", 40.0)

            after = bed.status()
            assert (after["epoch"], after["digest"]) == (before["epoch"], before["digest"])
            assert (incarnations(bed), after["masked"], after["restarts"]) == (pods, 0, 0)
            assert {name: len(agent.plans) for name, agent in bed.agents.items()} == plans

    run(main)


def test_a_watch_that_is_faster_than_the_list_costs_no_pod(tmp_path: Path) -> None:
    """The first list takes two seconds, and a watch tells of all pods meanwhile: they are the job's, and stay."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            pods = incarnations(bed)
            await bed.kill(bed.operators[0][0])
            bed.api.slow["job-uid"] = 2.0
            bed.operator()
            step, number = bed.agent(0).committed, 0
            while bed.status()["step"] < step + 5:
                number += 1
                assert number < 200, bed.status()
                for pod in bed.pods():
                    bed.api.patch("pods", NAMESPACE, pod["metadata"]["name"], status={"seen": number})
                await asyncio.sleep(0.5)
            await asyncio.sleep(10.0)

            assert (incarnations(bed), bed.status()["masked"], bed.events("Leaving")) == (pods, 0, [])

    run(main)


def test_a_group_that_left_while_no_operator_lived_has_left_in_good_order(tmp_path: Path) -> None:
    """Let go by a plan, and gone before anybody heard so: drained, not lost, and replaced once."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            old = name_of(bed, 2)
            bed.api.remove("pods", NAMESPACE, old, grace=True)
            await bed.until(lambda: bed.status()["epoch"] == 2, "a plan lets it go", 10.0)
            await bed.kill(bed.operators[0][0])
            await bed.until(lambda: ("pods", NAMESPACE, old) not in bed.api.objects, "its pod goes", 60.0)
            await asyncio.sleep(5.0)
            bed.operator()
            await bed.until(lambda: bed.status()["drained"] == 1, "it is known to have left", 60.0)
            await bed.until(lambda: back(bed, masked=0), "it is replaced", 60.0)

            assert (bed.status()["masked"], bed.status()["drained"]) == (0, 1)

    run(main)


@pytest.mark.slow
def test_a_loss_while_no_operator_lives_is_handled_once_f37(tmp_path: Path) -> None:
    """F37, docs/protocol.md, rule 5: it waits; a dying pod of it is adopted by nothing and replaced once."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            await bed.kill(bed.operators[0][0])
            bed.stop_delay = 300.0
            old = name_of(bed, 2)
            bed.agents[old].exit_code = 137
            bed.agents[old].die("killed")
            await asyncio.sleep(1.0)
            bed.api.patch("pods", NAMESPACE, old, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
            bed.operator()
            await bed.until(lambda: back(bed), "it is back", 90.0)
            await bed.kill(bed.operators[0][0])
            bed.operator()
            await asyncio.sleep(60.0)

            assert (bed.status()["masked"], bed.status()["epoch"]) == (1, 3)
            assert len(bed.pods(2)) == 2

    run(main)


def test_a_creation_that_was_cut_off_is_completed_f27(tmp_path: Path) -> None:
    """F27: killed after 3 of 8 pods: 5 more on return, one set of secrets, no restart."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            first = bed.operator()
            bed.start_delay = 30.0
            bed.api.quota[NAMESPACE] = 3
            bed.api.put("sparejobs", job_body(groups=8, redundancy=4))
            await bed.until(lambda: len(bed.pods()) == 3, "three pods are made")
            await bed.kill(first)
            there = incarnations(bed)
            del bed.api.quota[NAMESPACE]
            bed.operator()
            await bed.until(lambda: len(bed.pods()) == 8, "five more are made", 60.0)
            await bed.trains()

            assert there <= incarnations(bed)
            assert len(bed.pods()) == 8
            assert len(bed.api.all("secrets")) == 2
            assert bed.status()["restarts"] == 0

    run(main)


@pytest.mark.slow
def test_a_full_quota_keeps_the_start_waiting_f45(tmp_path: Path) -> None:
    """F45: room for 6 of 8: Running is False for that reason, tries back off, and it starts once there is room."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.operator()
            bed.api.quota[NAMESPACE] = 6
            bed.api.put("sparejobs", job_body(groups=8, redundancy=3))
            await bed.until(lambda: bed.condition("Running") == ("False", "QuotaExceeded"), "the reason is told")
            await asyncio.sleep(200.0)
            refused = [c.at for c in bed.api.calls if c.status == 403]

            assert bed.condition("Failed")[0] != "True"
            assert len(refused) < 2 * 14
            assert len(bed.events("QuotaExceeded")) == 1
            del bed.api.quota[NAMESPACE]
            await bed.until(lambda: bed.condition("Running")[0] == "True", "it starts", 60.0)
            assert bed.condition("Degraded")[0] != "True"

    run(main)


@pytest.mark.slow
def test_fewer_groups_start_where_they_may_f45(tmp_path: Path) -> None:
    """F45 with minGroups 6: after five minutes Running and Degraded with 6 of 8, depth 1.375."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.steps, bed.compute = 1_000_000, 5.0
            bed.operator()
            bed.api.quota[NAMESPACE] = 6
            bed.api.put("sparejobs", job_body(groups=8, redundancy=3, minGroups=6))
            took = await bed.until(lambda: bed.condition("Running")[0] == "True", "it starts", 400.0)

            assert took > 290.0
            assert bed.condition("Degraded")[0] == "True"
            assert bed.status()["depth"] == 1.375

    run(main)


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "CrashLoopBackOff"])
def test_containers_that_cannot_start_are_named_f55(tmp_path: Path, reason: str) -> None:
    """F55: in less than a minute Running is False for PodsNotStarting, with the pod and the kubelet's reason."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.stuck["-g2-"] = reason
            bed.operator()
            bed.api.put("sparejobs", job_body())
            told = ("False", "PodsNotStarting")
            took = await bed.until(lambda: bed.condition("Running") == told, "it is told", 60.0)
            running = next(c for c in bed.status()["conditions"] if c["type"] == "Running")

            assert took < 60.0
            assert name_of(bed, 2) in running["message"]
            assert reason in running["message"]
            bed.stuck.clear()
            await bed.trains()

    run(main)


@pytest.mark.slow
def test_half_a_group_is_not_there_f38(tmp_path: Path) -> None:
    """F38: with one of a group's pods missing nothing runs, and the group joins, it is not active."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.stuck["-g1-p3-"] = "ContainerCreating"
            bed.operator()
            bed.api.put("sparejobs", job_body(groups=3, podsPerGroup=4, procPerPod=2))
            await asyncio.sleep(60.0)

            assert bed.condition("Running")[0] == "False"
            assert bed.status()["groups"]["active"] == 0
            assert bed.status()["groups"]["joining"] == 3

    run(main)


def test_the_server_s_wish_to_be_left_alone_is_heeded_f26(tmp_path: Path) -> None:
    """F26: 429 with Retry-After 5, five times running: the next try comes 5 s later, nothing is lost or made twice."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.api.fail("POST", "/pods$", 429, times=5, Retry_After="5")
            await bed.started(job_body(groups=1, redundancy=1))
            tries = [c.at for c in bed.api.writes("/pods$")]

            assert [c.status for c in bed.api.writes("/pods$")] == [429] * 5 + [201]
            assert all(then - at >= 5.0 for at, then in pairwise(tries))
            assert len(bed.pods()) == 1

    run(main)


def test_a_status_that_others_write_too_is_read_again_f35(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """F35: on a conflict it is read and written again, without an error line; others' conditions stay."""
    foreign = {"type": "example.com/Checked", "status": "True", "reason": "Fine", "message": ""}
    foreign["lastTransitionTime"] = "2026-01-01T00:00:00Z"

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            conditions = [*bed.status()["conditions"], foreign]
            bed.api.patch("sparejobs", NAMESPACE, "job", status={"conditions": conditions})
            bed.agent(1).die("killed")
            await bed.until(lambda: back(bed), "it is back", 60.0)

            kept = [c for c in bed.status()["conditions"] if c["type"] == foreign["type"]]
            assert [{k: c[k] for k in foreign} for c in kept] == [foreign]
            assert [c.status for c in bed.api.writes("/status$") if c.status >= 400]  # it was there, and cost nothing

    run(main)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.slow
def test_of_two_operators_one_works_f62(tmp_path: Path) -> None:
    """F62: the holder of the Lease works; killed, the other does in less than half a minute; never both, never none."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.steps = 1_000_000
            first, second = bed.operator(), bed.operator()
            bed.api.put("sparejobs", job_body())
            await bed.trains()
            assert [first.lease.held, second.lease.held].count(True) == 1
            leader, other = (first, second) if first.lease.held else (second, first)
            await bed.kill(leader)
            took = await bed.until(lambda: other.lease.held, "the other takes over", 60.0)

            assert took < 30.0
            assert other.lease.term == 2
            before = bed.status()["step"]
            await bed.until(lambda: bed.status()["step"] > before, "the other works", 20.0)
            assert bed.status()["epoch"] == 1

    run(main)


def test_a_leader_that_was_stopped_does_nothing_when_it_wakes_f63(tmp_path: Path) -> None:
    """F63: once its lease has run out it neither writes nor speaks to agents, though it still believes it leads."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            stopped = bed.operators[0][0]
            assert stopped.jobs is not None
            training_ = stopped.jobs.running[0].training
            assert training_ is not None
            assert training_.coordinator is not None
            body = bed.api.get("leases", NAMESPACE, "spare-operator")
            other = {**body["spec"], "holderIdentity": "another", "leaseTransitions": 2}
            bed.api.patch("leases", NAMESPACE, "spare-operator", spec=other)
            stopped.lease._renewed -= 60.0  # as after SIGSTOP for a minute: its clock ran on
            writes = len([c for c in bed.api.writes() if c.status < 300])
            agent = bed.agent(1)
            agent.tell(agent.message(wire.Suspect, step=1, phase="reduce", error="reset", unreachable=(2,)))
            await asyncio.sleep(30.0)

            assert bed.operators[0][1].done()
            assert bed.operators[0][1].result() == 1
            assert len([c for c in bed.api.writes() if c.status < 300]) == writes
            assert bed.status()["epoch"] == 1

    run(main)


def test_two_plans_of_one_epoch_cannot_be_written_f63(tmp_path: Path) -> None:
    """The plan's map is replaced at the version that was read: who comes second learns that it is deposed."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            plan, kept = read_document(bed.api.get("configmaps", NAMESPACE, "job-plan")["data"]["plan.json"])
            theirs = replace(plan, epoch=2, base=2, reason="another's", writer=0)
            another = {"plan.json": document(theirs, kept), "epoch": "2", "digest": theirs.digest}
            bed.api.patch("configmaps", NAMESPACE, "job-plan", data=another)
            bed.agent(3).die("killed")
            await asyncio.sleep(30.0)

            written = [body["data"] for _, _, key, body in bed.api.log if key[0] == "configmaps"]
            assert {data["digest"] for data in written if data["epoch"] == "2"} == {theirs.digest}
            told = [plan for agent in bed.agents.values() for plan in agent.plans if plan.epoch == 2]
            assert all(plan.digest == theirs.digest for plan in told)

    run(main)


def test_who_has_no_token_gets_no_plan_and_is_counted_f59(tmp_path: Path) -> None:
    """F59: an agent that does not know the job's token is refused; the others train on."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            bed.agent(2).die("killed")
            for world in bed.worlds.values():
                world.token = world.token  # new agents say another one below
            await bed.until(lambda: len(bed.agents) == 5, "its replacement runs", 30.0)
            impostor = list(bed.agents.values())[-1]
            impostor.token = "guessed"
            for down, up in impostor.channels:
                down.shut()
                up.shut()
            at = bed.status()["step"]
            await asyncio.sleep(20.0)

            [operator] = [each[0] for each in bed.operators]
            assert operator.jobs is not None
            training_ = operator.jobs.running[0].training
            assert training_ is not None
            assert training_.coordinator is not None
            assert training_.coordinator.state.refused > 0
            assert bed.status()["step"] > at

    run(main)


def test_a_write_without_the_lease_is_not_sent(tmp_path: Path) -> None:
    """Not even tried again: asked at each try."""
    from kubernetes_asyncio import client

    from spare_operator.cluster import NotLeading

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            api = client.ApiClient(client.Configuration(host=bed.api.address))
            api.rest_client.pool_manager._trust_env = False
            try:
                with pytest.raises(NotLeading, match="does not hold the lease"):
                    await Cluster(api, lambda: False).create(PODS, NAMESPACE, {"metadata": {"name": "x"}})
            finally:
                await api.close()
            assert not bed.api.writes("/pods$")

    run(main)
