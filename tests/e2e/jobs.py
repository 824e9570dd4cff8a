"""Jobs for tests: built small, read back, waited for."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.kubectl import Body, CallFailed, Namespace, wait_for

START = 240.0
"""Seconds in which a job must train: its pods import PyTorch, all at once, on what may be two cores."""

LEDGERS = "/var/tmp/spare-e2e"
"""Folder on each node, by namespace, in which workers keep their ledgers: it outlives the pods."""


def integers(
    name: str,
    image: str,
    namespace: Namespace,
    *,
    steps: int = 60,
    groups: int = 4,
    micro_batches: int = 4,
    seconds: float = 0.1,
    pod: dict[str, Any] | None = None,
    **spec: Any,
) -> Body:
    """A job that fails unless its weights are, bit for bit, those of a plain loop; with ledgers.

    Args:
        name: of the job.
        image: of the trainer.
        namespace: to be made in.
        steps: to train.
        groups: N.
        micro_batches: m.
        seconds: what a micro-batch takes beside its arithmetic.
        pod: further fields of the pods' spec.
        spec: further fields of the job's spec.
    """
    folder = {"name": "ledger", "hostPath": {"path": f"{LEDGERS}/{namespace.name}", "type": "DirectoryOrCreate"}}
    container = {
        "name": "trainer",
        "image": image,
        "command": ["python", "integers/train.py"],
        "args": [
            f"--steps={steps}",
            f"--groups={groups}",
            f"--micro-batches={micro_batches}",
            f"--seconds={seconds}",
        ],
        "env": [{"name": "SPARE_DIR", "value": "/ledger"}, {"name": "SPARE_DIGESTS", "value": "1"}],
        "resources": {"requests": {"cpu": "50m", "memory": "200Mi"}},
        "volumeMounts": [{"name": "ledger", "mountPath": "/ledger"}],
    }
    # The node's folder is root's, and so is whoever writes into it.
    template = {"securityContext": {"runAsUser": 0}, "containers": [container], "volumes": [folder], **(pod or {})}
    return {
        "apiVersion": "spare.training/v1alpha1",
        "kind": "SPAReJob",
        "metadata": {"name": name},
        "spec": {
            "groups": groups,
            "redundancy": min(3, groups),
            "microBatches": micro_batches,
            "detection": {"heartbeat": "500ms", "deadAfter": "5s", "hangAfter": "2m"},
            **spec,
            "template": {"spec": template},
        },
    }


def status(namespace: Namespace, job: str) -> dict[str, Any]:
    """What the operator has written."""
    return dict(namespace.get("spj", job).get("status") or {})


def conditions(namespace: Namespace, job: str) -> dict[str, str]:
    """Status of each condition by its type."""
    return {each["type"]: each["status"] for each in status(namespace, job).get("conditions", [])}


def told(namespace: Namespace, job: str) -> str:
    """The status in a line or two, for messages."""
    known = status(namespace, job)
    said = [f"{c['type']}={c['status']} {c['reason']}: {c['message']}" for c in known.pop("conditions", [])]
    pods = {pod["metadata"]["name"]: pod["status"].get("phase") for pod in pods_of(namespace, job)}
    return f"{said}, {known}, pods {pods}"


def wait_condition(namespace: Namespace, job: str, kind: str, seconds: float) -> dict[str, Any]:
    """The status once a condition is true. Ends at once when the job has ended in another way."""
    ended = {"Complete", "Failed"} - {kind}

    def probe() -> dict[str, Any] | None:
        known = conditions(namespace, job)
        assert not any(known.get(each) == "True" for each in ended), told(namespace, job)
        return status(namespace, job) if known.get(kind) == "True" else None

    return wait_for(f"{job} to be {kind}", probe, seconds, lambda: told(namespace, job))


def wait_step(namespace: Namespace, job: str, step: int, seconds: float) -> None:
    """Until so many steps are committed. Ends at once when the job has failed."""

    def probe() -> bool:
        known = status(namespace, job)
        assert conditions(namespace, job).get("Failed") != "True", told(namespace, job)
        return bool(known.get("step", 0) >= step)

    wait_for(f"{job} to commit step {step}", probe, seconds, lambda: told(namespace, job))


def pods_of(namespace: Namespace, job: str, group: int | None = None) -> list[Body]:
    """Pods of a job, or of one of its groups, that are not being deleted."""
    labels = {"spare.training/job-name": job}
    if group is not None:
        labels["spare.training/group"] = str(group)
    return [pod for pod in namespace.all("pod", labels) if not pod["metadata"].get("deletionTimestamp")]


def suspend(namespace: Namespace, job: str, value: bool) -> None:
    """Set `runPolicy.suspend`."""
    change = json.dumps({"spec": {"runPolicy": {"suspend": value}}})
    namespace.kubectl("patch", "spj", job, "--type=merge", "-p", change)


WORKERS = (
    "import pathlib\n"
    "def kin(place):\n"
    "    try: return (place / 'stat').read_text().rpartition(')')[2].split()[:2]\n"
    "    except OSError: return ['X', '']\n"
    "found = [(int(p.name), kin(p)) for p in pathlib.Path('/proc').glob('[0-9]*')]\n"
    "workers = [process for process, (state, parent) in found if parent == '1' and state not in 'ZX']\n"
    "print(*workers, flush=True)\n"
)
KILL_WORKERS = WORKERS + (
    "import os, signal, time\n"
    "if os.fork() == 0:\n"
    "    for descriptor in (0, 1, 2): os.close(descriptor)\n"
    "    time.sleep(0.5)\n"
    "    for worker in workers: os.kill(worker, signal.SIGKILL)\n"
)
"""The agent is a pod's first process, the workers are its children. It ends with them, and so would this program: the
deed is done once it has reported."""


def kill_workers(namespace: Namespace, job: str, group: int) -> None:
    """SIGKILL, from inside the pods; the agents live to tell of it."""
    for pod in pods_of(namespace, job, group):
        assert namespace.kubectl("exec", pod["metadata"]["name"], "--", "python", "-c", KILL_WORKERS).split()


def delete_group(namespace: Namespace, job: str, group: int) -> str:
    """Delete the pods of a group without grace; the name of one of them.

    A kubelet sends SIGTERM all the same, and a group whose steps are short may then leave in good order.
    """
    names = [pod["metadata"]["name"] for pod in pods_of(namespace, job, group)]
    _delete(namespace, names)
    return str(names[0])


def kill_group(namespace: Namespace, job: str, group: int) -> str:
    """Have a group end at once, and its pods go; the name of one of these."""
    names = [pod["metadata"]["name"] for pod in pods_of(namespace, job, group)]
    kill_workers(namespace, job, group)
    wait_for(
        f"the workers of group {group} to end",
        lambda: not any(_works(namespace, name) for name in names),
        30.0,
        lambda: told(namespace, job),
    )
    _delete(namespace, names)  # the operator may have been faster
    return str(names[0])


def _works(namespace: Namespace, pod: str) -> bool:
    """Whether workers live in a pod; none do where nothing can be run any more."""
    try:
        return bool(namespace.kubectl("exec", pod, "--", "python", "-c", WORKERS).split())
    except CallFailed:
        return False


def _delete(namespace: Namespace, names: list[str]) -> None:
    namespace.kubectl("delete", "pod", *names, "--grace-period=0", "--force", "--wait=false", "--ignore-not-found=true")
