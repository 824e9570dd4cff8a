"""The ledgers of a job that ran on several nodes, collected and audited together."""

from __future__ import annotations

import json

from spare.api.ledger import Audit, audit
from tests.e2e.jobs import LEDGERS, pods_of, suspend, wait_condition
from tests.e2e.kubectl import Namespace, call, wait_for

_READ = (
    "import json, pathlib; print(json.dumps({p.name: p.read_text() for p in"
    " pathlib.Path('/ledger').glob('**/*.jsonl')}))"
)


def collect(namespace: Namespace, image: str) -> dict[str, list[str]]:
    """Lines of each ledger in the namespace's folder on every node, read by one pod on each."""
    workers = call("kubectl", "get", "nodes", "-l", "!node-role.kubernetes.io/control-plane", "-o", "name")
    nodes = [name.removeprefix("node/") for name in workers.split()]
    ledgers: dict[str, list[str]] = {}
    for node in nodes:
        pod = f"reader-{node}"
        namespace.apply(_reader(pod, node, image, namespace))
        wait_for(
            f"the ledgers on {node}",
            lambda pod=pod: namespace.get("pod", pod)["status"].get("phase") == "Succeeded",  # type: ignore[misc]
            90.0,
            lambda pod=pod: namespace.get("pod", pod)["status"],  # type: ignore[misc]
        )
        found: dict[str, str] = json.loads(namespace.kubectl("logs", pod))
        ledgers |= {name: text.splitlines() for name, text in found.items()}
        namespace.delete("pod", pod)
    return ledgers


def check_exact(namespace: Namespace, image: str, *, steps: int, groups: int = 4, micro_batches: int = 4) -> Audit:
    """Every micro-batch of every step exactly once, and nothing that a survivor held computed again."""
    ledgers = collect(namespace, image)
    found = audit(ledgers, groups, micro_batches)

    assert found.problems == ()
    assert (found.steps, found.entries) == (steps, steps * groups * micro_batches), sorted(ledgers)
    assert (found.lost, found.doubled, found.repeated) == (0, 0, 0)
    return found


def stop_and_audit(namespace: Namespace, image: str, job: str, groups: int = 4) -> Audit:
    """Suspend a job, so that all stop after the same step, and audit what they did until then."""
    suspend(namespace, job, True)
    done = wait_condition(namespace, job, "Suspended", 120.0)
    wait_for("its pods to go", lambda: not pods_of(namespace, job), 60.0)
    return check_exact(namespace, image, steps=done["step"], groups=groups)


def _reader(name: str, node: str, image: str, namespace: Namespace) -> dict[str, object]:
    folder = {"path": f"{LEDGERS}/{namespace.name}", "type": "DirectoryOrCreate"}
    container = {
        "name": "reader",
        "image": image,
        "command": ["python", "-c", _READ],
        "volumeMounts": [{"name": "ledger", "mountPath": "/ledger"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": [{"name": "ledger", "hostPath": folder}],
        },
    }
