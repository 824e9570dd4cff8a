"""What a run policy and a quota ask for, on a real API server: stop, go on, end in time, wait for room, be removed."""

from __future__ import annotations

import json

import pytest

from tests.e2e.install import Images
from tests.e2e.jobs import (
    LEDGERS,
    START,
    conditions,
    integers,
    kill_group,
    pods_of,
    status,
    suspend,
    told,
    wait_condition,
    wait_step,
)
from tests.e2e.kubectl import Body, Namespace, wait_for
from tests.e2e.ledgers import check_exact
from tests.e2e.nodes import workers

pytestmark = pytest.mark.usefixtures("operator")


def merge(namespace: Namespace, kind: str, name: str, change: Body) -> None:
    """Change some fields of an object."""
    namespace.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(change))


def reason(namespace: Namespace, job: str) -> tuple[str, str]:
    """Of the condition Running: (status, reason)."""
    found = [each for each in status(namespace, job).get("conditions", []) if each["type"] == "Running"]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


def test_a_job_is_suspended_goes_on_and_is_removed_in_time(namespace: Namespace, images: Images) -> None:
    """Suspended after a step that all have committed and saved; gone on with from there; removed after its time."""
    job = integers(
        *("pausing", images.trainer, namespace),
        steps=150,
        seconds=0.05,
        checkpoint={"path": "/checkpoints", "period": "1m"},
        runPolicy={"ttlSecondsAfterFinished": 20},
    )
    pod = job["spec"]["template"]["spec"]
    pod["nodeSelector"] = {"kubernetes.io/hostname": workers()[0].name}  # a folder of one node stands in for storage
    folder = {"path": f"{LEDGERS}/{namespace.name}/checkpoints", "type": "DirectoryOrCreate"}
    pod["volumes"].append({"name": "checkpoints", "hostPath": folder})
    pod["containers"][0]["volumeMounts"].append({"name": "checkpoints", "mountPath": "/checkpoints"})
    namespace.apply(job)
    wait_condition(namespace, "pausing", "Running", START)
    wait_step(namespace, "pausing", 10, 60)

    suspend(namespace, "pausing", True)

    stopped = wait_condition(namespace, "pausing", "Suspended", 60)
    wait_for("no pods", lambda: not namespace.all("pod"), 60, lambda: told(namespace, "pausing"))
    suspend(namespace, "pausing", False)
    wait_condition(namespace, "pausing", "Running", START)
    assert status(namespace, "pausing")["step"] >= stopped["step"]
    done = wait_condition(namespace, "pausing", "Complete", 120)
    assert (done["step"], done["masked"], done["restarts"]) == (150, 0, 0)
    check_exact(namespace, images.trainer, steps=150)
    wait_for("job and pods to be removed", lambda: not (namespace.all("spj") or pods_of(namespace, "pausing")), 60)


def test_a_deadline_counts_from_the_start(namespace: Namespace) -> None:
    """Pods that never start do not keep a job from ending in time; its text says what it waited for."""
    body = integers("late", "no/such:image", namespace, runPolicy={"activeDeadlineSeconds": 15})
    body["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Never"
    namespace.apply(body)

    wait_for("PodsNotStarting", lambda: reason(namespace, "late") == ("False", "PodsNotStarting"), 30)
    failed = wait_condition(namespace, "late", "Failed", 45)

    (verdict,) = (each for each in failed["conditions"] if each["type"] == "Failed")
    assert verdict["reason"] == "DeadlineExceeded"
    assert "activeDeadlineSeconds (15)" in verdict["message"]
    wait_for("its pods to go", lambda: not pods_of(namespace, "late"), 60, lambda: told(namespace, "late"))


def test_a_quota_is_waited_for_at_the_start_and_by_a_replacement(namespace: Namespace, images: Images) -> None:
    """Room for three of four: Running is False for that reason, and it starts once there is room (F45).

    Then a replacement has none: Running and Degraded, never Failed, and back once there is room again (F46).
    """
    quota: Body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    namespace.apply({**quota, "spec": {"hard": {"pods": "3"}}})
    wait_for("the quota's own count", lambda: _counted(namespace), 30)
    namespace.apply(integers("crowded", images.trainer, namespace, steps=100_000))
    wait_for(
        *("the quota to be named", lambda: reason(namespace, "crowded") == ("False", "QuotaExceeded"), 60),
        lambda: told(namespace, "crowded"),
    )

    merge(namespace, "resourcequota", "few", {"spec": {"hard": {"pods": "4"}}})

    wait_condition(namespace, "crowded", "Running", START)
    wait_step(namespace, "crowded", 5, 60)
    merge(namespace, "resourcequota", "few", {"spec": {"hard": {"pods": "3"}}})
    kill_group(namespace, "crowded", 1)
    wait_for("a refused replacement", lambda: _refused(namespace), 60, lambda: told(namespace, "crowded"))
    known = conditions(namespace, "crowded")
    assert (known["Running"], known["Degraded"]) == ("True", "True")
    merge(namespace, "resourcequota", "few", {"spec": {"hard": {"pods": "4"}}})
    wait_for(
        "the group to be back",
        lambda: status(namespace, "crowded")["groups"]["active"] == 4,
        120,
        lambda: told(namespace, "crowded"),
    )
    after = status(namespace, "crowded")
    assert (after["masked"], after["restarts"]) == (1, 0)


def _counted(namespace: Namespace) -> bool:
    text = namespace.kubectl("get", "resourcequota", "few", "-o", "jsonpath={.status.used.pods}")
    return text != ""


def _refused(namespace: Namespace) -> bool:
    found = [each for each in status(namespace, "crowded")["conditions"] if each["type"] == "Degraded"]
    return bool(found and found[0]["status"] == "True" and "QuotaExceeded" in found[0]["message"])
