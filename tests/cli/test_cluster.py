"""`spare status`, `events`, `drain`, `suspend` and `resume` against the API server of the operator's tests."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from rich.console import Console

from spare.cli.report import GroupReport, report
from spare.cli.status import show
from spare_operator import names
from tests.cli.served import CHECKPOINT, Served, condition, event, recorded
from tests.operator.api_server import Body
from tests.operator.bed import NAMESPACE, job_body


def test_status_says_all_that_is_known_of_a_job(served: Served) -> None:
    """As JSON and YAML the same; for people every number, every group with what it hosts, and what holds one up."""
    result = served.spare("status", "job", "-o", "json")
    found = json.loads(result.output)

    assert result.exit_code == 0
    assert result.output.startswith('{\n    "name": ')  # as kubectl indents it
    assert (found["state"], found["reason"], found["step"], found["epoch"]) == ("Degraded", "GroupLost", 41, 2)
    assert (found["depth"], found["hostsLeft"], found["masked"], found["restarts"]) == (1.375, 2, 1, 0)
    assert (found["checkpoint"], found["checkpointTime"]) == (CHECKPOINT, "2026-01-01T00:00:00Z")
    assert [each["state"] for each in found["groups"]] == ["active", "active", "joining", "starting"]
    assert [sum(each["load"] for each in found["groups"]), len(found["groups"][0]["stack"])] == [32, 3]
    assert found["groups"][3]["remark"] == "ImagePullBackOff: no such image"
    assert [each["reason"] for each in found["events"]] == ["Checkpointed", "GroupLost"]
    assert found["effective"]["detection"]["deadAfter"] == "5s"
    assert (found["groups"][2]["pods"], found["spares"]) == (["job-s1-p0-s1"], ["job-s0-p0-s0"])
    assert "template" not in found["effective"]
    assert yaml.safe_load(served.spare("status", "job", "-o", "yaml").output) == found
    text = served.spare("status", "job").output
    for part in ("Degraded", "step 41", "depth 1.38", "masked 1", CHECKPOINT, "job-s1-p0-s1", "no such image"):
        assert part in text
    assert "…" not in text


def test_in_a_narrow_window_names_are_whole_and_bars_go(served: Served) -> None:
    """Eighty columns: what somebody will copy is not cut; piped, a group is one line."""
    remark, pods = "exited with code 0", ("integers-small-g0-p0-k28nw",)
    group = GroupReport(0, "done", (1, 3, 0), 4, pods, ("spare-worker2",), remark)
    found = replace(report(served.api.get("sparejobs", NAMESPACE, "job"), None, (), ()), groups=(group,))
    narrow, wide = (Console(width=width, record=True, file=io.StringIO()) for width in (80, 1000))
    for console in (narrow, wide):
        show(found, console, datetime.now(UTC))

    assert "integers-small-g0-p0-k28nw  spare-worker2" in narrow.export_text()
    (line,) = (line for line in wide.export_text().splitlines() if "k28nw" in line)
    assert "█" in line
    assert line.split()[-4:] == ["exited", "with", "code", "0"]


@pytest.mark.parametrize(
    ("kept", "states"),
    [
        ({"past": ((1, ("u1",)),)}, ["active", "lost", "joining"]),
        ({"restarting": (41, "wipe-out"), "past": ((1, ("u1",)),)}, ["starting", "lost", "starting"]),
    ],
)
def test_who_waits_for_a_plan_does_not_train(served: Served, kept: dict[str, Any], states: list[str]) -> None:
    """A member that was lost while minGroups lets nobody go on; all, while they are to begin again."""
    uid = served.api.get("sparejobs", NAMESPACE, "job")["metadata"]["uid"]
    served.api.patch("configmaps", NAMESPACE, "job-plan", data={"plan.json": recorded(uid, **kept)})

    found = json.loads(served.spare("status", "job", "-o", "json").output)

    assert [each["state"] for each in found["groups"]][:3] == states


def test_status_of_a_job_that_nobody_has_taken_up(served: Served) -> None:
    """There is a spec and nothing else."""
    served.api.put("sparejobs", job_body("fresh"))
    found = json.loads(served.spare("status", "fresh", "-o", "json").output)

    assert (found["state"], found["message"]) == ("Pending", "no operator has taken it up yet")
    assert {each["state"] for each in found["groups"]} == {"lost"}


def test_the_plan_of_a_former_job_is_not_shown(served: Served) -> None:
    """Deleted and made anew: what is left of the former says nothing of this one."""
    served.api.patch("configmaps", NAMESPACE, "job-plan", metadata={"labels": {names.JOB_UID: "former"}})
    found = json.loads(served.spare("status", "job", "-o", "json").output)

    assert {(each["load"], tuple(each["stack"])) for each in found["groups"]} == {(0, ())}
    assert found["checkpoint"] is None


@pytest.mark.parametrize("what", ["spec", "plan"])
def test_what_cannot_be_read_is_said_and_no_traceback(served: Served, what: str) -> None:
    """A job that another version let in, and a plan that somebody has edited."""
    if what == "spec":
        served.api.patch("sparejobs", NAMESPACE, "job", spec={"redundancy": 9})
    else:
        served.api.patch("configmaps", NAMESPACE, "job-plan", data={"plan.json": "{"})
    result = served.spare("status", "job")

    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    assert "job: what stands in the cluster cannot be read here:" in result.output
    assert what == "plan" or "spec.redundancy must be auto or at most spec.groups (4)" in result.output


def test_events_are_those_of_this_job(served: Served) -> None:
    """Oldest first; none of an earlier job of that name."""
    text = served.spare("events", "job").output
    served.api.put("sparejobs", job_body("fresh"))

    assert text.splitlines() == [
        f"2026-01-01T00:00:00Z Checkpointed: {CHECKPOINT} is complete",
        "2026-01-01T00:01:00Z GroupLost: group 3 lost",
    ]
    result = served.spare("events", "job", "-o", "json")
    assert [each["warning"] for each in json.loads(result.output)] == [False, True]
    assert result.output.startswith('[\n    {\n        "time": ')
    assert json.loads(served.spare("events", "fresh", "-o", "json").output) == []


def test_events_as_they_come_are_one_object_a_line(served: Served) -> None:
    """No list could be read before its end."""
    served.api.patch("sparejobs", NAMESPACE, "job", status={"conditions": [condition("Complete", "Completed", "")]})
    lines = served.spare("events", "job", "-w", "-o", "json").output.splitlines()

    assert [json.loads(line)["warning"] for line in lines] == [False, True]


@pytest.mark.parametrize(("reason", "code"), [("Drained", 0), ("GroupLost", 1), ("Halting", 1)])
def test_drain_evicts_the_group_s_pods_and_says_what_came_of_it(served: Served, reason: str, code: int) -> None:
    """Those of this group alone, and until an event tells of its end; an event of another group is not that."""
    uid = served.api.get("sparejobs", NAMESPACE, "job")["metadata"]["uid"]

    def evicted(kind: str, key: tuple[str, str, str], body: Body) -> None:
        if key[0] == "pods" and body["metadata"].get("deletionTimestamp"):
            served.api.put("events", event("n1", uid, "GroupLost", "another", groups="0", at="03:00"))
            groups = "" if reason == "Halting" else "1"
            served.api.put("events", event("n2", uid, reason, "that is what came of it", groups=groups, at="04:00"))

    served.api.watchers.append(evicted)
    result = served.spare("drain", "job", "1")

    assert result.exit_code == code, result.output
    assert "pod job-g1-p0-u1 is evicted" in result.output
    assert result.output.splitlines()[-1] == "that is what came of it"
    assert [call.path for call in served.api.writes()] == [f"/api/v1/namespaces/{NAMESPACE}/pods/job-g1-p0-u1/eviction"]


@pytest.mark.parametrize(
    ("kind", "status", "reason"), [("Running", "False", "PodCreated"), ("Suspended", "True", "Suspended"), ("", "", "")]
)
def test_nobody_is_evicted_of_a_job_that_does_not_train(served: Served, kind: str, status: str, reason: str) -> None:
    """Its pods would start anew for nothing, and nothing would ever be heard of the group."""
    conditions = [condition(kind, reason, "0 of 4 groups", status)] if kind else []
    served.api.patch("sparejobs", NAMESPACE, "job", status={"conditions": conditions})
    result = served.spare("drain", "job", "1")

    assert result.exit_code == 1
    said = f"{reason}: 0 of 4 groups" if kind else "nobody has taken it up yet"
    assert f"job does not train ({said}): only a group that trains can leave" in result.output
    assert not served.api.writes()


def test_drain_ends_with_the_job(served: Served) -> None:
    """The job completes before the group has left: nothing more will be heard of it."""

    def evicted(kind: str, key: tuple[str, str, str], body: Body) -> None:
        if key[0] == "pods" and body["metadata"].get("deletionTimestamp"):
            served.api.patch("sparejobs", NAMESPACE, "job", status={"conditions": [condition("Complete", "C", "")]})

    served.api.watchers.append(evicted)
    result = served.spare("drain", "job", "1")

    assert result.exit_code == 0
    assert "the job has ended meanwhile: Complete" in result.output


def test_a_disruption_budget_is_told(served: Served) -> None:
    """It is tried for some seconds, and then the server's own words are shown."""
    served.api.budget = True
    result = served.spare("drain", "job", "1")

    assert result.exit_code == 1
    assert "disruption budget" in result.output


def test_suspend_and_resume_change_that_field_alone(served: Served) -> None:
    """The rest of the run policy stays; twice is once; a write of the operator in between is no error."""
    assert served.spare("resume", "job").output.splitlines() == ["job is Degraded already"]
    served.api.fail("PUT", "/sparejobs/job$", 409, "the object has been modified")
    first = served.spare("suspend", "job")
    assert (first.exit_code, first.output.splitlines()[0]) == (0, "job is to stop after its step")
    assert "no spec.checkpoint.path: nothing is saved, and it begins with step 0 when resumed" in first.output
    assert served.spare("suspend", "job").exit_code == 0
    policy = served.api.get("sparejobs", NAMESPACE, "job")["spec"]["runPolicy"]
    assert policy == {"backoffLimit": 2, "suspend": True}
    assert len(served.api.writes()) == 2  # the one that was refused, and the one that was not

    served.api.patch(
        *("sparejobs", NAMESPACE, "job"),
        status={
            "conditions": [condition("Suspended", "Suspended", ""), condition("Running", "Suspended", "", "False")]
        },
    )
    early = served.spare("suspend", "job", "--wait", "0.1")
    assert (early.exit_code, early.output.splitlines()[0]) == (1, "job is Suspended already")
    assert "Suspended=True Suspended: ; Running=False Suspended: ; pods left: 6" in early.output
    for each in served.api.all("pods"):
        served.api.remove("pods", NAMESPACE, each["metadata"]["name"])
    waited = served.spare("suspend", "job", "--wait", "5")
    assert (waited.exit_code, waited.output.splitlines()[-1]) == (0, "job is Suspended, step 41")
    assert served.spare("resume", "job").exit_code == 0
    assert served.api.get("sparejobs", NAMESPACE, "job")["spec"]["runPolicy"] == {"backoffLimit": 2, "suspend": False}
    late = served.spare("resume", "job", "--wait", "0.1")
    assert late.exit_code == 1
    assert "job is not there after 0.1 s: Suspended=True" in late.output


def test_what_has_ended_is_not_resumed(served: Served) -> None:
    """Complete and Failed are final (F34)."""
    served.api.patch("sparejobs", NAMESPACE, "job", status={"conditions": [condition("Complete", "Completed", "")]})
    result = served.spare("resume", "job")

    assert result.exit_code == 1
    assert result.output == "Error: job has ended (Complete): nothing starts or stops it any more\n"


def test_drain_evicts_the_spare_that_took_the_group_s_place(served: Served) -> None:
    """Its pods have no number of a group, and the group's former pod may still be there."""
    served.api.budget = True
    served.spare("drain", "job", "2")

    assert {call.path.rpartition("/pods/")[2] for call in served.api.writes()} == {"job-s1-p0-s1/eviction"}
