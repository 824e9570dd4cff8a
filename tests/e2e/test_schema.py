"""The API server and `spare run` accept the same jobs: a table of good and bad ones is put to both."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from spare.api.job import JobFileError, load_job
from tests.api.jobs import SMALLEST
from tests.e2e.kubectl import Body, CallFailed, Namespace, ask, call

pytestmark = pytest.mark.usefixtures("definition")

COMMAND = ["python", "train.py"]
Change = dict[str, object]

GOOD: list[Change] = [
    {},
    {"metadata.name": "a"},
    {"metadata.name": "a" * 48},
    {"spec.groups": 1},
    {"spec.groups": 1000, "spec.redundancy": 1000},
    {"spec.redundancy": "auto"},
    {"spec.redundancy": 8},
    {"spec.minGroups": 8},
    {"spec.minGroups": None},
    {"spec.podsPerGroup": 16, "spec.procPerPod": 16, "spec.microBatches": 1024, "spec.spares": 1000},
    {"spec.placement.strategy": "Consecutive", "spec.placement.spreadOver": "rack"},
    {"spec.scheduler": "WholeShards", "spec.onPoison": "Skip", "spec.onStraggler": "Rebalance"},
    {"spec.onWipeOut": "Fetch"},
    {"spec.onWipeOut": "Restart", "spec.checkpoint.path": "/data"},
    {"spec.checkpoint.path": None},
    {"spec.checkpoint.period": "auto"},
    {"spec.checkpoint.period": "1m30s"},
    {"spec.checkpoint.period": "720h"},
    {"spec.detection.heartbeat": "50ms", "spec.detection.deadAfter": "100ms", "spec.detection.hangAfter": "100ms"},
    {"spec.detection.deadAfter": "10s", "spec.detection.hangAfter": "10s"},
    {"spec.detection.heartbeat": "1.5s"},
    {"spec.reduction.collectiveTimeout": "24h"},
    {"spec.seed": 2**32 - 1},
    {"spec.runPolicy.suspend": True, "spec.runPolicy.cleanPodPolicy": "None"},
    {"spec.runPolicy.ttlSecondsAfterFinished": 0, "spec.runPolicy.backoffLimit": 0},
    {"spec.template.metadata": {"labels": {"team": "a"}}},
    {"spec.template.spec.nodeSelector": {"gpu": "yes"}},
    {"spec.template.spec.containers": [{"name": "log"}, {"name": "trainer", "command": COMMAND}]},
    {"spec.template.spec.containers": [{"name": "trainer", "command": COMMAND}, *([{"name": "x"}] * 63)]},
    {"spec.template.spec.containers": [{"name": "x", "command": COMMAND, "args": ["x" * 100_000]}]},
    {"spec.template.spec.containers": [{"name": "x", "command": COMMAND, "env": [{"name": "A", "value": "1"}]}]},
]
BAD: list[Change] = [
    {"metadata.name": "a" * 49},
    {"metadata.name": "a.b"},
    {"metadata.name": "1a"},
    {"metadata.name": "a_b"},
    {"spec.groups": 0},
    {"spec.groups": 1001},
    {"spec.groups": "8"},
    {"spec.groups": True},
    {"spec.groups": 1.5},
    {"spec.groups": None},
    {"spec.template": None},
    {"spec.podsPerGroup": 17},
    {"spec.procPerPod": 0},
    {"spec.redundancy": 0},
    {"spec.redundancy": 9},
    {"spec.redundancy": "two"},
    {"spec.redundancy": "2"},
    {"spec.minGroups": 9},
    {"spec.microBatches": 1025},
    {"spec.spares": -1},
    {"spec.scheduler": "wholeshards"},
    {"spec.placement.strategy": "golomb"},
    {"spec.placement.spreadOver": "a b"},
    {"spec.onPoison": "skip"},
    {"spec.onWipeOut": "Restart"},
    {"spec.checkpoint.path": ""},
    {"spec.checkpoint.period": "1d"},
    {"spec.checkpoint.period": "721h"},
    {"spec.checkpoint.keep": 0},
    {"spec.detection.heartbeat": "5s"},
    {"spec.detection.heartbeat": "10s", "spec.detection.deadAfter": "10s"},
    {"spec.detection.heartbeat": "49ms"},
    {"spec.detection.heartbeat": "-1s"},
    {"spec.detection.heartbeat": 1},
    {"spec.detection.heartbeat": "9" * 41 + "s"},
    {"spec.detection.deadAfter": "10m"},
    {"spec.detection.hangAfter": "4999ms"},
    {"spec.reduction.rendezvousTimeout": "25h"},
    {"spec.seed": 2**32},
    {"spec.runPolicy.suspend": "no"},
    {"spec.runPolicy.activeDeadlineSeconds": 0},
    {"spec.microbatches": 8},
    {"spec.detection.deadafter": "5s"},
    {"spec.template.spec.containers": []},
    {"spec.template.spec.containers": [{"name": "trainer"}]},
    {"spec.template.spec.containers": [{"name": "trainer", "command": []}]},
    {"spec.template.spec.containers": [{"command": COMMAND}]},
    {"spec.template.spec.containers": [{"name": "x" * 64, "command": COMMAND}]},
    {"spec.template.spec.containers": [{"name": "x", "command": "python train.py"}]},
    {"spec.template.spec.containers": [{"name": "x", "command": ["python", 3]}]},
    {"spec.template.spec.containers": [{"name": "x", "command": COMMAND}, {"name": "y", "command": COMMAND}]},
    {"spec.template.spec.containers": [{"name": "trainer", "command": COMMAND}] * 2},
    {"spec.template.spec.containers": [{"name": "trainer", "command": COMMAND}, *([{"name": "x"}] * 64)]},
    {"spec.template.spec.containers": [{"name": "x", "command": COMMAND, "env": [{"value": "1"}]}]},
    {"spec.template.spec.containers": [{"name": "x", "command": COMMAND, "env": [{"name": "A=", "value": "1"}]}]},
]
"""Left out, for the API server is more lenient in two ways: it drops a null wherever a field has a default
(`spec.detection: null`), and to it 8.0 is a whole number."""


def changed(changes: Change) -> Body:
    """The smallest job with some fields set."""
    job: dict[str, Any] = copy.deepcopy(SMALLEST)
    for path, value in changes.items():
        *above, last = path.split(".")
        place = job
        for name in above:
            place = place.setdefault(name, {})
        place[last] = value
    return job


def refused_by_server(job: Body) -> str:
    """Why the API server refuses a job; empty if it does not."""
    try:
        ask("POST", Namespace("default").path("spj"), job, query={"dryRun": "All", "fieldValidation": "Strict"})
    except CallFailed as refusal:
        return refusal.text
    return ""


def refused_by_us(job: Body) -> str:
    """Why `spare run` refuses it; empty if it does not."""
    try:
        load_job(json.dumps(job))
    except JobFileError as refusal:
        return str(refusal)
    return ""


@pytest.mark.parametrize("changes", GOOD, ids=lambda changes: ",".join(changes) or "smallest")
def test_good_jobs_are_accepted_by_both(changes: Change) -> None:
    """Each at the edge of something."""
    job = changed(changes)

    assert (refused_by_us(job), refused_by_server(job)) == ("", "")


@pytest.mark.parametrize("changes", BAD, ids=lambda changes: ",".join(changes))
def test_bad_jobs_are_refused_by_both(changes: Change) -> None:
    """Each just past the edge of something; the field, or the one that holds it, is named (field case F57)."""
    job = changed(changes)
    ours, theirs = refused_by_us(job), refused_by_server(job)

    assert ours
    assert theirs
    assert any(part in theirs for part in list(changes)[-1].split(".")[1:])


@pytest.mark.parametrize("name", ["a.b", "1a", "a" * 49])
def test_a_name_that_no_pod_could_have_is_refused_with_the_rule(name: str) -> None:
    """At apply and not hours later, with the rule in the text (field cases F43, F44)."""
    said = refused_by_server(changed({"metadata.name": name}))

    assert "at most 48 lower-case letters, digits and '-', without dots" in said
    assert "NAME-g999-p15-xxxxx" in said


def test_timeouts_in_the_wrong_order_are_refused_in_our_words() -> None:
    """Both fields are named with their values, defaults included, as `spare run` does (field case F57)."""
    job = changed({"spec.detection.deadAfter": "10m"})

    expected = "spec.detection.hangAfter must be at least spec.detection.deadAfter (10m)"

    assert expected in refused_by_us(job)
    assert expected in refused_by_server(job)


def test_defaults_are_filled_in_by_the_server(namespace: Namespace) -> None:
    """What stands in the cluster is what `spare validate` prints as effective."""
    job = changed({"spec.minGroups": 8, "spec.runPolicy.suspend": True})
    effective = load_job(json.dumps(job)).effective()["spec"]

    namespace.apply(job)

    assert namespace.get("spj", "demo")["spec"] == effective


def test_what_a_step_consists_of_never_changes(namespace: Namespace) -> None:
    """Not even while suspended; and what pods are made from only then."""
    job = changed({"spec.runPolicy.suspend": True})
    namespace.apply(job)
    for path in ("spec.groups", "spec.microBatches", "spec.seed", "spec.redundancy"):
        with pytest.raises(CallFailed, match=f"{path} cannot be changed"):
            namespace.apply(changed({"spec.runPolicy.suspend": True, path: 4}), dry_run=True)

    namespace.apply(changed({"spec.runPolicy.suspend": False, "spec.template.spec.nodeSelector": {"pool": "a"}}))

    edits: Change = {
        "spec.template.spec.nodeSelector": {"pool": "b"},
        "spec.detection.deadAfter": "6s",
        "spec.minGroups": 4,
        "spec.onWipeOut": "Fetch",
    }
    for path, value in edits.items():
        name = path.split(".")[1]
        changes = {"spec.template.spec.nodeSelector": {"pool": "a"}, path: value}
        with pytest.raises(CallFailed, match=f"spec.{name} can be changed only while spec.runPolicy.suspend is true"):
            namespace.apply(changed(changes), dry_run=True)
    namespace.apply(
        changed({"spec.template.spec.nodeSelector": {"pool": "a"}, "spec.runPolicy.ttlSecondsAfterFinished": 5}),
        dry_run=True,
    )


def test_explain_reads_like_documentation() -> None:
    """Each field with its text, unit and default."""
    text = call("kubectl", "explain", "spj.spec", "--recursive=false")

    assert "Number N of data-parallel groups, and of shards of each step's global batch." in " ".join(text.split())
    assert "deadAfter" in call("kubectl", "explain", "spj.spec.detection")
    assert "at 1 the next loss may be a wipe-out" in " ".join(call("kubectl", "explain", "spj.status").split())
