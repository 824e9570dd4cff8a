"""What pods are made of."""

from __future__ import annotations

from typing import Any

import pytest

from spare.api.job import load_object
from spare.api.rule import MAX_CHILD_NAME, MAX_JOB_NAME
from spare_operator import names
from spare_operator.pod import JobKey, Pods
from spare_operator.seen import exited, read_pod
from tests.operator.bed import job_body

KEY = JobKey("team", "job", "u-1")
JOB = str(KEY)


def pods(**spec: Any) -> Pods:
    body = job_body(**spec)
    return Pods(KEY, load_object(body).spec, body["spec"]["template"])


def test_the_longest_names_fit_f43() -> None:
    """F43: the longest job name that is allowed, group 999 and pod 15 make a name of 63 characters."""
    name = names.pod_name("j" * MAX_JOB_NAME, 999, 15, names.incarnation())

    assert len(name) == MAX_CHILD_NAME
    assert name.startswith("j" * MAX_JOB_NAME + "-g999-p15-")


def test_only_the_trainer_is_wrapped() -> None:
    """Sidecars stay as they are; the pod does not restart in place; the spread is asked for, unless the user did."""
    sidecar = {"name": "logs", "image": "i", "command": ["tail"]}
    trainer = {"name": "trainer", "image": "i", "command": ["python", "t.py"], "env": [{"name": "A", "value": "b"}]}
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [sidecar, trainer]}}
    spec = pods(template=template).manifest(2, 0, "abcdefghijkl")["spec"]

    assert spec["containers"][0] == sidecar
    assert spec["containers"][1]["command"] == ["spare-agent", "--", "python", "t.py"]
    assert spec["restartPolicy"] == "Never"
    assert spec["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "ScheduleAnyway"
    assert template["spec"]["containers"][1] == trainer
    mine: Any = [{"topologyKey": "rack"}]
    template["spec"] = {**template["spec"], "topologySpreadConstraints": mine}
    assert pods(template=template).manifest(2, 0, "abcdefghijkl")["spec"]["topologySpreadConstraints"] == mine


@pytest.mark.parametrize(
    ("status", "field", "expected"),
    [
        ({"phase": "Pending"}, "address", None),
        ({"podIP": "10.0.0.7"}, "address", "10.0.0.7:29477"),
        ({"podIP": "fd00::7"}, "address", "[fd00::7]:29477"),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, "ended", "Evicted: disk"),
        ({"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}, "ended", "OOMKilled, exit code 137"),
        (
            {"state": {"terminated": {"exitCode": 128, "reason": "StartError", "message": "no"}}},
            *("ended", "StartError, exit code 128: no"),
        ),
        ({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}, "ended", "exited with code 0"),
        ({"state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}, "stuck", "ErrImagePull: no"),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, "stuck", None),
    ],
)
def test_a_pod_s_status_is_read(status: Any, field: str, expected: str | None) -> None:
    """Addresses of both families; why it ended; why it does not start."""
    body = pods().manifest(1, 0, "abcdefghijkl")
    body["metadata"]["uid"] = "p-1"
    state = status.pop("state", {"running": {}})
    body["status"] = {**status, "containerStatuses": [{"name": "trainer", "state": state}]}
    seen = read_pod(body, names.AGENT_PORT, JOB)

    assert seen is not None
    assert getattr(seen, field) == expected


@pytest.mark.parametrize(
    ("code", "reason", "told"), [(137, "OOMKilled", False), (139, "Error", True), (1, "Error", True)]
)
def test_a_killed_agent_s_end_is_told_in_the_kubelet_s_words(code: int, reason: str, told: bool) -> None:
    """That memory was short is to be seen, and not only that the kernel sent a signal."""
    body = pods().manifest(1, 0, "abcdefghijkl")
    body["metadata"]["uid"] = "p-1"
    state = {"terminated": {"exitCode": code, "reason": reason}}
    body["status"] = {"phase": "Failed", "containerStatuses": [{"name": "trainer", "state": state}]}
    seen = read_pod(body, names.AGENT_PORT, JOB)

    assert seen is not None
    assert seen.ended == f"{reason}, exit code {code}"
    assert (exited(seen, "job", 1) is not None) is told
