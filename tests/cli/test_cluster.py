"""`spare status`, `events`, `drain`, `suspend` and `resume` against the API server of the operator's tests."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from rich.console import Console

from spare.api.exit_codes import ExitCode
from spare.cli import cluster
from spare.cli.main import main
from spare.cli.report import GroupReport, report
from spare.cli.status import show
from spare.control.plan import Member, Plan
from spare.control.record import Kept, document
from spare.planner import healthy, place, reorder
from spare_operator import names
from tests.operator.api_server import ApiServer, Body
from tests.operator.bed import NAMESPACE, job_body, trainer

WRONG_FORM = (["1"], ["job", "one"], ["job", "1", "--no-replacement"], ["job", "--wait", "nan"])
CHECKPOINT = "epoch-00000001-abcdefgh/step-0000000040"


class Served:
    """The server in a thread of its own, with a kubeconfig that leads to it."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.api = self.call(self._open)
        server = {"name": "there", "cluster": {"server": self.api.address}}
        context = {"name": "here", "context": {"cluster": "there", "user": "me", "namespace": NAMESPACE}}
        config = {"clusters": [server], "contexts": [context], "users": [{"name": "me", "user": {"token": "t"}}]}
        self.kubeconfig = folder / "kubeconfig"
        whole = {"apiVersion": "v1", "kind": "Config", "current-context": "here", **config}
        self.kubeconfig.write_text(yaml.safe_dump(whole))

    async def _open(self) -> ApiServer:
        api = ApiServer()
        await api.open()
        return api

    def call(self, work: Callable[[], Any]) -> Any:
        """Run a coroutine function there."""
        return asyncio.run_coroutine_threadsafe(work(), self.loop).result(10.0)

    def close(self) -> None:
        self.call(self.api.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10.0)
        self.loop.close()

    def spare(self, *arguments: str) -> Result:
        command = [arguments[0], "--kubeconfig", str(self.kubeconfig), *arguments[1:]]
        return CliRunner().invoke(main, command, terminal_width=200)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """With a job of four groups of which the last is lost, its pods and its plan; and a second job of another uid."""
    made = Served(tmp_path)
    job = made.api.put("sparejobs", job_body(runPolicy={"backoffLimit": 2}))
    uid = job["metadata"]["uid"]
    conditions = [condition("Degraded", "GroupLost", "group 3 lost"), condition("Running", "GroupLost", "group 3 lost")]
    status = {"conditions": conditions, "epoch": 2, "step": 41, "depth": 1.375, "hostsLeft": 2, "masked": 1}
    made.api.patch("sparejobs", NAMESPACE, "job", status=status)
    meta = {"name": "job-plan", "namespace": NAMESPACE, "labels": {names.JOB_UID: uid}}
    made.api.put("configmaps", {"metadata": meta, "data": {"plan.json": recorded(uid)}})
    for group in range(4):
        made.api.put("pods", pod(uid, group))
    for number, incarnation in enumerate(("s0", "s1")):
        made.api.put("pods", spare_pod(uid, number, incarnation))
    made.api.put("events", event("e1", uid, "Checkpointed", f"{CHECKPOINT} is complete", at="00:00"))
    made.api.put("events", event("e2", uid, "GroupLost", "group 3 lost", groups="3", at="01:00"))
    made.api.put("events", event("e3", "another", "GroupLost", "of another job", groups="1", at="02:00"))
    yield made
    made.close()


def recorded(uid: str, **more: Any) -> str:
    """The plan of that job without group 3, and what is kept beside it."""
    schedule = reorder(healthy(place(4, 3, "Golomb"), 8), (0, 1, 2)).schedule
    members = (Member(0, "u0", 1), Member(1, "u1", 1), Member(2, "s1", 2))  # whose place a spare has taken
    plan = Plan(f"team/job/{uid}", 2, 2, members, 0, ("127.0.0.1:1",), schedule, "group 3 lost")
    return document(plan, Kept(masked=1, joining=(2,), checkpoints=(CHECKPOINT,), **more))


def condition(kind: str, reason: str, message: str, status: str = "True") -> Body:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def pod(uid: str, group: int) -> Body:
    labels = {names.JOB_UID: uid, names.GROUP_NUMBER: str(group), names.POD_NUMBER: "0", names.INCARNATION: f"u{group}"}
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    container = {"name": "trainer", "state": waiting if group == 3 else {"running": {}}}
    return {
        "metadata": {"name": f"job-g{group}-p0-u{group}", "namespace": NAMESPACE, "labels": labels},
        "spec": {"nodeName": f"node-{group}", "containers": [trainer(uid, str(group), f"u{group}")]},
        "status": {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [container]},
    }


def spare_pod(uid: str, number: int, incarnation: str) -> Body:
    body = pod(uid, 0)
    labels = body["metadata"]["labels"]
    del labels[names.GROUP_NUMBER]
    labels |= {names.SPARE_NUMBER: str(number), names.INCARNATION: incarnation}
    body["spec"]["containers"] = [trainer(uid, str(4 + number), incarnation, SPARE_SPARE=str(number))]
    body["metadata"]["name"] = f"job-s{number}-p0-{incarnation}"
    return body


def event(name: str, uid: str, reason: str, message: str, *, at: str, groups: str = "") -> Body:
    meta: Body = {"name": name, "namespace": NAMESPACE, "annotations": {names.GROUPS: groups} if groups else {}}
    kind = "Warning" if reason == "GroupLost" else "Normal"
    told = {"reason": reason, "message": message, "type": kind, "lastTimestamp": f"2026-01-01T00:{at}Z"}
    return {"metadata": meta, "involvedObject": {"uid": uid}, **told}


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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["drain", "job", "4"], "group 4: the job has the groups 0 to 3"),
        (["drain", "nobody", "1"], "no SPAReJob 'nobody' in namespace 'team'"),
        (["drain", "1"], "on a cluster the job is named: spare drain JOB GROUP"),
        (["drain", "job", "one"], "the group 'one' is no number from 0 on"),
        (["drain", "job", "1", "--no-replacement"], "--run and --no-replacement are for local runs"),
        (["suspend", "job", "--wait", "nan"], "'nan' is no number from 0 to"),
        (["status", "nobody"], "no SPAReJob 'nobody' in namespace 'team'"),
        (["status", "job", "-n", "elsewhere"], "in namespace 'elsewhere'"),
        (["status", "job", "--context", "nowhere"], "kubeconfig has no context 'nowhere'"),
    ],
)
def test_what_is_not_there_is_named(served: Served, arguments: list[str], said: str) -> None:
    """In one line where the command line had the right form, else below its usage; and nothing is written."""
    result = served.spare(*arguments)

    assert result.exit_code == ExitCode.USAGE
    assert said in result.output
    assert ("Usage:" in result.output) == (arguments[1:] in WRONG_FORM)
    assert result.output.startswith("Usage:") or len(result.output.splitlines()) == 1
    assert not served.api.writes()


@pytest.mark.parametrize("command", [["status"], ["events"], ["suspend"], ["resume"], ["drain"]])
@pytest.mark.parametrize(
    ("status", "message", "said"),
    [
        (403, 'sparejobs "job" is forbidden: User "me" cannot get', "the cluster says: Forbidden (403): sparejobs"),
        (401, "Unauthorized", "does not accept this token or certificate"),
        (404, "the server could not find the requested resource", "this cluster has no kind SPAReJob (sparejobs.spare"),
        (
            404,
            "404 page not found",
            "this cluster has no kind SPAReJob (sparejobs.spare.training): install the operator",
        ),
    ],
)
def test_a_refusal_is_one_line(served: Served, command: list[str], status: int, message: str, said: str) -> None:
    """No right, no valid token, no definition: nothing is wrong with the command line, and something was not done."""
    served.api.fail("GET", "/sparejobs/job$", status, message, times=9)
    result = served.spare(*command, "job", *(["1"] if command == ["drain"] else []))

    assert result.exit_code == 1
    assert said in result.output
    assert result.output.startswith("Error: ")
    assert len(result.output.splitlines()) == 1


def test_a_server_that_does_not_answer_is_named(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its address, what was asked, and for how long."""
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        served.kubeconfig.write_text(served.kubeconfig.read_text().replace(served.api.address, address))
        result = served.spare("status", "job")

    assert result.exit_code == 1
    assert result.output.startswith(
        f"Error: no answer from the API server at {address}, asked for 0.5 s: GET /apis/spare"
    )
    assert len(result.output.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no cluster is named: there is no "),
        ("", " is no kubeconfig: "),
        ("[]", " is no kubeconfig: "),
        ("a: [", " is no kubeconfig: "),
        ("\0", " is no kubeconfig: "),
        ("kind: Config", " names no cluster that can be asked: "),
        (
            "{contexts: [{name: a, context: {cluster: b}}], current-context: a, clusters: []}",
            " names no cluster that can",
        ),
    ],
)
def test_a_kubeconfig_that_names_no_cluster_is_told(tmp_path: Path, text: str | None, said: str) -> None:
    """By its own name, in one paragraph, without a traceback."""
    file = tmp_path / "config"
    if text is not None:
        file.write_text(text)
    result = CliRunner(env={"KUBECONFIG": str(file)}).invoke(main, ["status", "job"], terminal_width=200)

    assert (result.exit_code, type(result.exception)) == (ExitCode.USAGE, SystemExit)
    assert said in result.output
    assert str(file) in result.output
    assert "Usage:" not in result.output


def test_a_context_is_enough_where_none_is_current(served: Served) -> None:
    """As for kubectl."""
    served.kubeconfig.write_text(served.kubeconfig.read_text().replace("current-context: here", ""))

    assert served.spare("status", "job", "--context", "here").exit_code == 0


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
