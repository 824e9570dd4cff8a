"""What is written of a job, and hands that meddle with it: former jobs, former leaders, people who delete."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from spare.control.record import document, read_document
from spare_operator import names
from tests.operator.api_server import Body
from tests.operator.bed import NAMESPACE, Bed, a_bed, job_body
from tests.operator.loop import run
from tests.operator.test_losses import back, name_of, training


def plan_map(bed: Bed) -> Body:
    return bed.api.get("configmaps", NAMESPACE, "job-plan")


async def goes_on(bed: Bed) -> None:
    """Wait until the operator hears of further steps."""
    step = bed.status()["step"]
    await bed.until(lambda: bed.status()["step"] > step + 3, "it hears of steps", 60.0)


def test_a_job_made_anew_waits_for_what_is_left_of_the_former(tmp_path: Path) -> None:
    """Deleted and made again at once: the former's plan, still there, is neither taken for ours nor written into."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            meta = {"name": "job-plan", "namespace": NAMESPACE, "labels": {names.JOB_UID: "former"}}
            former = bed.api.put("configmaps", {"metadata": meta, "data": {"epoch": "7", "digest": "f" * 64}})
            bed.operator()
            bed.api.put("sparejobs", job_body())
            await bed.until(lambda: len(bed.agents) == 4, "its pods run")
            await asyncio.sleep(30.0)
            assert plan_map(bed) == former
            assert not any(agent.plans for agent in bed.agents.values())
            bed.api.remove("configmaps", NAMESPACE, "job-plan")
            await bed.trains()

            assert plan_map(bed)["metadata"]["labels"][names.JOB_UID] == bed.job()["metadata"]["uid"]
            assert (bed.status()["epoch"], len(bed.pods())) == (1, 4)

    run(main)


def test_a_plan_that_a_former_leader_wrote_late_is_gone_on_with(tmp_path: Path) -> None:
    """Its write was under way when it was deposed: the leader goes on from it, and does not leave the job."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            plan, kept = read_document(plan_map(bed)["data"]["plan.json"])
            late = replace(plan, epoch=2, base=2, reason="a former leader's")
            data = {"plan.json": document(late, kept), "epoch": "2", "digest": late.digest}
            bed.api.patch("configmaps", NAMESPACE, "job-plan", data=data)
            bed.agent(3).die("killed")
            await bed.until(lambda: back(bed), "it is back", 120.0)

            assert bed.status()["epoch"] == 4
            written = [""]
            for _, _, key, body in bed.api.log:  # no status speaks of a plan that is not written down
                if key[0] == "configmaps":
                    written.append(body["data"]["digest"])
                assert key[0] != "sparejobs" or body.get("status", {}).get("digest", "") in written
            assert len(bed.events("BackendFailed")) == 1
            assert "plan 2 is recorded already" in bed.events("BackendFailed")[0]

    run(main)


def test_what_is_deleted_in_mid_run_is_written_again(tmp_path: Path) -> None:
    """The plan's map and both Secrets: a later operator and later pods find what they need."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            kept = {name: bed.api.get("secrets", NAMESPACE, name)["data"] for name in ("job-agent", "job-operator")}
            plan = plan_map(bed)["data"]
            bed.api.remove("configmaps", NAMESPACE, "job-plan")
            for name in kept:
                bed.api.remove("secrets", NAMESPACE, name)
            await bed.until(lambda: ("configmaps", NAMESPACE, "job-plan") in bed.api.objects, "the plan is back", 60.0)
            await bed.until(lambda: len(bed.api.all("secrets")) == 2, "the Secrets are back", 60.0)
            assert plan_map(bed)["data"] == plan
            assert {name: bed.api.get("secrets", NAMESPACE, name)["data"] for name in kept} == kept

            await bed.kill(bed.operators[0][0])
            bed.operator()
            await goes_on(bed)
            bed.api.remove("pods", NAMESPACE, name_of(bed, 1))
            await bed.until(lambda: back(bed), "it is back", 60.0)

    run(main)


def test_what_was_deleted_while_no_operator_lived_is_asked_for(tmp_path: Path) -> None:
    """Nothing is made up in its place; an event names it; put back, the job is gone on with."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            await bed.kill(bed.operators[0][0])
            plan, secrets = plan_map(bed), bed.api.all("secrets")
            for secret in secrets:
                bed.api.remove("secrets", NAMESPACE, secret["metadata"]["name"])
            bed.operator()
            await bed.until(lambda: len(bed.events("BackendFailed")) == 1, "it is told")
            assert "Secret team/job-operator was deleted" in bed.events("BackendFailed")[0]
            assert not bed.api.all("secrets")
            bed.api.remove("configmaps", NAMESPACE, "job-plan")
            for secret in secrets:
                bed.api.put("secrets", secret)
            await bed.until(lambda: len(bed.events("BackendFailed")) == 2, "the next is told")
            assert "the recorded plan is missing" in bed.events("BackendFailed")[1]
            await asyncio.sleep(60.0)
            assert (len(bed.events("BackendFailed")), len(bed.pods())) == (2, 4)
            bed.api.put("configmaps", plan)
            await goes_on(bed)

            assert (bed.status()["epoch"], bed.status()["masked"]) == (1, 0)

    run(main)


def test_a_name_that_is_taken_is_told_of(tmp_path: Path) -> None:
    """A Secret of somebody else's in our way: the job's events say so, once, and it starts when that is gone."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.api.put("secrets", {"metadata": {"name": "job-operator", "namespace": NAMESPACE}, "data": {}})
            bed.operator()
            bed.api.put("sparejobs", job_body())
            await asyncio.sleep(45.0)  # it is looked at every ten
            assert len(bed.events("BackendFailed")) == 1
            assert "Secret team/job-operator is not of this job" in bed.events("BackendFailed")[0]
            bed.api.remove("secrets", NAMESPACE, "job-operator")
            await bed.trains()

    run(main)


def test_a_template_that_was_edited_while_suspended_is_that_of_the_pods(tmp_path: Path) -> None:
    """As a queue does, which sets node selectors before it lets a job go."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.operator()
            bed.api.put("sparejobs", job_body(runPolicy={"suspend": True}))
            await bed.until(lambda: bed.condition("Suspended")[0] == "True", "it is suspended")
            pod = {"nodeSelector": {"pool": "a"}, **bed.job()["spec"]["template"]["spec"]}
            bed.api.patch("sparejobs", NAMESPACE, "job", spec={"template": {"spec": pod}})
            await asyncio.sleep(5.0)
            bed.api.patch("sparejobs", NAMESPACE, "job", spec={"runPolicy": {"suspend": False}})
            await bed.trains()

            assert [each["spec"].get("nodeSelector") for each in bed.pods()] == [{"pool": "a"}] * 4

    run(main)


def test_a_list_that_is_older_than_what_a_watch_told_takes_nothing_back(tmp_path: Path) -> None:
    """Its answer was under way while the job was suspended: it lets no pod come back."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            operator = bed.operator()
            bed.api.put("sparejobs", job_body())
            older = copy.deepcopy(bed.job())
            bed.api.patch("sparejobs", NAMESPACE, "job", spec={"runPolicy": {"suspend": True}})
            await bed.until(lambda: bed.condition("Suspended")[0] == "True", "it is suspended")
            await asyncio.sleep(5.0)  # every watch has told all that it will
            before = made(bed)
            assert operator.jobs is not None
            operator.jobs.see(older)
            await asyncio.sleep(10.0)

            assert made(bed) == before

    run(main)


def test_a_run_policy_that_is_changed_after_the_end_is_heeded(tmp_path: Path) -> None:
    """A job that would have stayed for ever gets a time to live, and its pods go before."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.operator()
            bed.api.put("sparejobs", job_body())
            await bed.until(lambda: bed.condition("Complete")[0] == "True", "it completes")
            await asyncio.sleep(15.0)
            assert bed.pods()
            bed.api.patch("sparejobs", NAMESPACE, "job", spec={"runPolicy": {"cleanPodPolicy": "All"}})
            await bed.until(lambda: not bed.pods(), "the pods go", 30.0)
            bed.api.patch("sparejobs", NAMESPACE, "job", spec={"runPolicy": {"ttlSecondsAfterFinished": 90}})
            await asyncio.sleep(20.0)
            assert bed.api.all("sparejobs")
            await bed.until(lambda: not bed.api.all("sparejobs"), "the job goes", 90.0)

    run(main)


def test_a_job_fails_for_one_reason(tmp_path: Path) -> None:
    """F21: it is written with the plan's record, before anything is announced, and final from then on."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            spec: dict[str, Any] = {"onWipeOut": "Restart", "checkpoint": {"path": "/data"}, "redundancy": 1}
            spec["runPolicy"] = {"backoffLimit": 0}
            await training(bed, **spec)
            bed.agent(2).die("killed")
            await bed.until(lambda: bed.condition("Failed")[0] == "True", "it fails")
            await asyncio.sleep(10.0)

            assert bed.told("Failed") == ["BackoffLimitExceeded"]
            assert len(bed.events("BackoffLimitExceeded")) == 1

    run(main)


def test_a_limit_of_restarts_that_is_raised_while_the_job_runs_counts_f21(tmp_path: Path) -> None:
    """Who sees that the last restart is used up need not wait for the end to allow more."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            spec: dict[str, Any] = {"onWipeOut": "Restart", "checkpoint": {"path": "/data"}, "redundancy": 1}
            await training(bed, **spec, runPolicy={"backoffLimit": 0})
            bed.api.patch("sparejobs", NAMESPACE, "job", spec={"runPolicy": {"backoffLimit": 1}})
            await asyncio.sleep(5.0)
            bed.agent(2).die("killed")
            await bed.until(lambda: bool(bed.events("WipeOut")), "it begins again")

            assert bed.job()["status"]["restarts"] == 1
            assert "restart 1 of 1 at most" in bed.events("WipeOut")[-1]

    run(main)


def test_a_plan_that_may_not_be_written_is_told_of(tmp_path: Path) -> None:
    """A right that somebody has taken away: survivors wait, and who looks at the job sees why. Once."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            bed.api.fail("PUT", "configmaps/job-plan", 403, "configmaps may not be updated", times=15)
            bed.agent(2).die("killed")
            await bed.until(lambda: bed.events("BackendFailed"), "it is told", 20.0)
            assert bed.status()["epoch"] == 1
            await bed.until(lambda: back(bed), "the group is back")

            [told] = bed.events("BackendFailed")
            assert "configmaps may not be updated; it is tried again" in told

    run(main)


def made(bed: Bed) -> int:
    """Pods that were ever made."""
    return sum(kind == "ADDED" and key[0] == "pods" for _, kind, key, _ in bed.api.log)


def test_a_deadline_that_is_taken_back_is_none(tmp_path: Path) -> None:
    """A run policy that is again what it was at the start is heeded like any other change."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed, runPolicy={"backoffLimit": 1})
            for policy in ({"backoffLimit": 1, "activeDeadlineSeconds": 25}, {"backoffLimit": 1}):
                bed.api.patch("sparejobs", NAMESPACE, "job", spec={"runPolicy": policy})
                await asyncio.sleep(5.0)
            await asyncio.sleep(30.0)

            assert bed.condition("Running")[0] == "True"

    run(main)
