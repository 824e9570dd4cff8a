"""The life of a job on a cluster: created, trained, ended, cleaned up; and what of it others may see or hold."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from spare.api import wire
from spare_operator import names
from tests.operator.api_server import Body
from tests.operator.bed import NAMESPACE, Bed, a_bed, job_body
from tests.operator.loop import run


async def completed(bed: Bed) -> None:
    await bed.until(lambda: bed.condition("Complete")[0] == "True", "it completes")


def test_a_job_runs_and_completes(tmp_path: Path) -> None:
    """From the object to Complete: its pods, its plan, its status; the pods end by themselves and keep their logs."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await bed.started(job_body())
            assert bed.condition("Running") == ("True", "Started")
            await completed(bed)

            status = bed.status()
            assert (status["step"], status["epoch"], status["masked"], status["restarts"]) == (20, 1, 0, 0)
            assert status["groups"] == {
                "desired": 4,
                "active": 4,
                "joining": 0,
                "spare": 0,
                "sparesDesired": 0,
                "lost": 0,
            }
            plan = bed.api.get("configmaps", NAMESPACE, "job-plan")["data"]
            assert (plan["epoch"], plan["digest"]) == ("1", status["digest"])
            assert json.loads(plan["plan.json"])["epoch"] == 1
            await bed.until(lambda: all(p["status"]["phase"] == "Succeeded" for p in bed.pods()), "pods end well")
            assert bed.condition("Running") == ("False", "Completed")

    run(main)


def test_nothing_of_ours_holds_a_job_or_its_children_f40(tmp_path: Path) -> None:
    """F40: no finalizer anywhere, owner references only, so a job goes with all it has though no operator lives."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            operator = bed.operator()
            bed.api.put("sparejobs", job_body())
            await bed.trains()
            ours = [b for kind in ("pods", "configmaps", "secrets") for b in bed.api.all(kind)]
            uid = bed.job()["metadata"]["uid"]

            assert len(ours) == 4 + 1 + 2
            assert not any(b["metadata"].get("finalizers") for b in (*ours, bed.job()))
            assert all([o["uid"] for o in b["metadata"]["ownerReferences"]] == [uid] for b in ours)
            assert not any("blockOwnerDeletion" in o for b in ours for o in b["metadata"]["ownerReferences"])
            await bed.kill(operator)
            bed.api.remove("sparejobs", NAMESPACE, "job")
            await bed.until(lambda: not any(bed.api.all(k) for k in ("pods", "configmaps", "secrets")), "all is gone")

    run(main)


def test_only_a_job_s_own_pods_and_operators_may_connect_f58(tmp_path: Path) -> None:
    """F58, where policies are asked for: made before the first pod; gone with the job, and waited for if not yet."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            former = {"name": "job-pods", "namespace": NAMESPACE, "labels": {names.JOB_UID: "former"}}
            bed.api.put("networkpolicies", {"metadata": former})
            bed.operator(operators=(("app", "spare"),), lease_namespace="system")
            uid = bed.api.put("sparejobs", job_body())["metadata"]["uid"]
            await asyncio.sleep(10.0)
            assert not bed.pods()
            bed.api.remove("networkpolicies", NAMESPACE, "job-pods")
            await bed.trains()

            (policy,) = bed.api.all("networkpolicies")
            own = {"matchLabels": {names.JOB_UID: uid}}
            there = {"matchLabels": {"kubernetes.io/metadata.name": "system"}}
            assert policy["spec"] == {
                "podSelector": own,
                "policyTypes": ["Ingress"],
                "ingress": [
                    {"from": [{"podSelector": own}]},
                    {
                        "from": [{"namespaceSelector": there, "podSelector": {"matchLabels": {"app": "spare"}}}],
                        "ports": [{"port": names.AGENT_PORT, "protocol": "TCP"}],
                    },
                ],
            }
            assert {names.JOB_UID: uid}.items() <= bed.pods()[0]["metadata"]["labels"].items()
            bed.api.remove("sparejobs", NAMESPACE, "job")
            await bed.until(lambda: not bed.api.all("networkpolicies"), "it goes with the job", 10.0)

    run(main)


def test_an_operator_of_another_port_is_let_in_beside_the_former(tmp_path: Path) -> None:
    """After an upgrade that changes the agents' port or the release's name: pods that run keep their port."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:

            def ingress() -> list[Any]:
                (policy,) = bed.api.all("networkpolicies")
                return list(policy["spec"]["ingress"])

            first = bed.operator(operators=(("app", "spare"),), lease_namespace="system")
            bed.api.put("sparejobs", job_body())
            await bed.trains()
            await bed.kill(first)
            for _ in range(2):  # the second finds nothing to change
                later = bed.operator(operators=(("app", "other"),), lease_namespace="system", agent_port=30000)
                await bed.until(lambda: len(ingress()) == 3, "it may connect, too")
                await bed.trains()
                await bed.kill(later)

            ports = [rule["ports"][0]["port"] for rule in ingress()[1:]]
            assert ports == [names.AGENT_PORT, 30000]

    run(main)


def test_a_foreign_finalizer_stays_and_no_pod_is_made_behind_it_f41(tmp_path: Path) -> None:
    """F41: our status writes keep it; while it holds the deleted job nothing is made any more."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await bed.started(job_body(meta={"finalizers": ["example.com/hold"]}))
            assert bed.job()["metadata"]["finalizers"] == ["example.com/hold"]
            bed.api.remove("sparejobs", NAMESPACE, "job")
            before = len(bed.api.writes("/pods$"))
            bed.agent(1).die("killed")
            await _pass(60.0)

            assert bed.job()["metadata"]["finalizers"] == ["example.com/hold"]
            assert len(bed.api.writes("/pods$")) == before

    run(main)


async def _pass(seconds: float) -> None:

    await asyncio.sleep(seconds)


def test_pods_have_the_template_s_labels_and_no_foreign_annotations_f42(tmp_path: Path) -> None:
    """F42: nothing of kopf's or kubectl's reaches a pod; all of the template's own does."""
    applied = "kubectl.kubernetes.io/last-applied-configuration"
    given = {applied: "{}", "kopf.zalando.org/last-handled": "{}", "prometheus.io/scrape": "true"}
    template: Body = {
        "metadata": {"labels": {"team": "ml"}, "annotations": given},
        "spec": {"containers": [{"name": "trainer", "image": "i", "command": ["python", "train.py"]}]},
    }

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.operator()
            notes = {applied: "{}", "kopf.zalando.org/x": "y"}
            bed.api.put("sparejobs", job_body(template=template, meta={"annotations": notes}))
            await bed.trains()
            for pod in bed.pods():
                assert pod["metadata"]["annotations"] == {"prometheus.io/scrape": "true"}
                assert pod["metadata"]["labels"]["team"] == "ml"
            assert bed.job()["metadata"]["annotations"] == notes

    run(main)


def test_a_long_command_reaches_the_pod_byte_for_byte_f47(tmp_path: Path) -> None:
    """F47: 100 KB of arguments, and those behind `spare-agent --`; the template's own variables may refer to ours."""
    args = ["x" * 50_000, "é$(SPARE_GROUP) 'q' \n" * 2_500]
    env = [{"name": "SPARE_TOKEN", "value": "mine"}, {"name": "OUT", "value": "/out/$(SPARE_GROUP)"}]
    container = {"name": "trainer", "image": "i", "command": ["python", "t.py"], "args": args, "env": env}

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await bed.started(job_body(template={"spec": {"containers": [container]}}))
            made = bed.pods(0)[0]["spec"]["containers"][0]

            assert made["command"] == ["spare-agent", "--", "python", "t.py"]
            assert made["args"] == args
            set_to = {v["name"]: v for v in made["env"]}
            assert "value" not in set_to["SPARE_TOKEN"]
            assert [v["name"] for v in made["env"]].index("SPARE_GROUP") < [v["name"] for v in made["env"]].index("OUT")

    run(main)


@pytest.mark.parametrize(("policy", "left"), [("All", 0), ("Running", 4), ("None", 4)])
def test_the_clean_pod_policy_says_what_is_left(tmp_path: Path, policy: str, left: int) -> None:
    """Running, the default, keeps pods that have ended, for their logs."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.operator()
            bed.api.put("sparejobs", job_body(runPolicy={"cleanPodPolicy": policy}))
            await completed(bed)
            await _pass(30.0)

            assert len(bed.pods()) == left

    run(main)


@pytest.mark.slow
def test_a_finished_job_is_deleted_after_its_time_f39(tmp_path: Path) -> None:
    """F39: ttlSecondsAfterFinished 10, an operator that restarts in between: job and children go, nothing new comes."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            operator = bed.operator()
            bed.api.put("sparejobs", job_body(runPolicy={"ttlSecondsAfterFinished": 60}))
            await completed(bed)
            await bed.kill(operator)
            bed.operator()
            await bed.until(lambda: not bed.api.all("sparejobs"), "the job goes", 100.0)
            calls = len(bed.api.calls)
            await _pass(60.0)

            assert not any(bed.api.all(kind) for kind in ("pods", "configmaps", "secrets"))
            assert not [c for c in bed.api.calls[calls:] if "leases" not in c.path and c.method != "GET"]

    run(main)


@pytest.mark.parametrize("change", ["restart", "edit", "delete pods"])
def test_complete_is_final_f34(tmp_path: Path, change: str) -> None:
    """F34, F39: operator restart, spec edit and pod deletion create nothing and change nothing."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            operator = bed.operator()
            bed.api.put("sparejobs", job_body())
            await completed(bed)
            before = bed.status()
            if change == "restart":
                await bed.kill(operator)
                bed.operator()
            elif change == "edit":
                bed.api.patch("sparejobs", NAMESPACE, "job", spec={"microBatches": 16})
            else:
                for pod in bed.pods():
                    bed.api.remove("pods", NAMESPACE, pod["metadata"]["name"])
            made = len(bed.api.writes("/pods$"))
            await _pass(60.0)

            assert bed.status() == before
            assert len(bed.api.writes("/pods$")) == made

    run(main)


def test_an_error_of_the_script_fails_the_job(tmp_path: Path) -> None:
    """Its text is the condition's message; what ran is ended."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await bed.started(job_body())

            agent = bed.agent(2)
            agent.tell(agent.message(wire.Errored, step=3, type="ValueError", text="no such layer"))
            await bed.until(lambda: bed.condition("Failed")[0] == "True", "it fails")
            failed = next(c for c in bed.status()["conditions"] if c["type"] == "Failed")

            assert failed["reason"] == "UserError"
            assert "ValueError: no such layer (group 2" in failed["message"]
            await bed.until(lambda: all(p["status"]["phase"] in ("Failed", "Succeeded") for p in bed.pods()), "ends")

    run(main)


def test_a_script_that_ended_while_nobody_heard_its_agent_fails_the_job(tmp_path: Path) -> None:
    """The kubelet's word for the exit code counts as the agent's: 1 is the script's own error, no loss to mask."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await bed.started(job_body())
            agent = bed.agent(2)
            agent.exit_code = 1
            agent.die("exited")
            await bed.until(lambda: bed.condition("Failed") == ("True", "UserError"), "it fails")

    run(main)


@pytest.mark.parametrize("starts", [True, False])
def test_a_job_that_takes_too_long_is_failed(tmp_path: Path, starts: bool) -> None:
    """activeDeadlineSeconds counts from the moment in which it is taken up, pods or not; and over operators."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.steps = 1_000_000
            if not starts:
                bed.stuck["job-"] = "ImagePullBackOff"
            bed.operator()
            bed.api.put("sparejobs", job_body(runPolicy={"activeDeadlineSeconds": 60}))
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(30.0)
            await bed.kill(bed.operators[0][0])
            bed.operator()
            await bed.until(lambda: bed.condition("Failed")[0] == "True", "it fails", 90.0)

            assert bed.condition("Failed") == ("True", "DeadlineExceeded")
            assert 55.0 < asyncio.get_running_loop().time() - began < 70.0

    run(main)


@pytest.mark.slow
def test_what_is_gone_is_left_alone_f30(tmp_path: Path) -> None:
    """F30: no call about a job 10 s after it is gone; 404 on the way is success."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await bed.started(job_body())
            bed.api.remove("sparejobs", NAMESPACE, "job")
            await _pass(10.0)
            since = len(bed.api.calls)
            await _pass(100.0)
            about = [c for c in bed.api.calls[since:] if "job" in c.path.removeprefix("/apis/spare.training")]

            assert not [c for c in about if not c.path.endswith("/sparejobs")]

    run(main)


def test_a_spec_that_only_we_can_judge_fails_by_name(tmp_path: Path) -> None:
    """Rules that the schema cannot state: the message has the field, the value and what is allowed."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.operator()
            bed.api.put("sparejobs", job_body(redundancy=9))
            await bed.until(lambda: bed.condition("Failed")[0] == "True", "it fails")
            failed = next(c for c in bed.status()["conditions"] if c["type"] == "Failed")

            assert failed["reason"] == "InvalidSpec"
            assert "spec.redundancy must be auto or at most spec.groups (4)" in failed["message"]
            assert not bed.pods()

    run(main)


def test_the_pods_of_a_group_start_and_go_together(tmp_path: Path) -> None:
    """podsPerGroup x procPerPod: numbers, one incarnation for a group's pods, a name of its own for each."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.operator()
            bed.api.put("sparejobs", job_body(groups=3, podsPerGroup=2, procPerPod=4))
            await bed.until(lambda: len(bed.pods()) == 6, "all pods are made")
            by_group: dict[str, list[Any]] = {}
            for pod in bed.pods():
                by_group.setdefault(pod["metadata"]["labels"][names.GROUP_NUMBER], []).append(pod)
            for pods in by_group.values():
                labels = [p["metadata"]["labels"] for p in pods]
                env = [{v["name"]: v.get("value") for v in p["spec"]["containers"][0]["env"]} for p in pods]

                assert len({each[names.INCARNATION] for each in labels}) == 1
                assert [each["SPARE_POD"] for each in env] == ["0", "1"]
                assert {(each["SPARE_PODS"], each["SPARE_PROCS"]) for each in env} == {("2", "4")}
                assert {each["SPARE_UID"] for each in env} == {labels[0][names.INCARNATION]}

    run(main)
