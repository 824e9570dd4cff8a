"""Operators that die while a job is made and while it trains: the other replica goes on where the one was."""

from __future__ import annotations

import pytest

from tests.e2e.install import SYSTEM, Images
from tests.e2e.jobs import START, integers, kill_group, pods_of, status, told, wait_condition, wait_step
from tests.e2e.kubectl import Namespace, wait_for
from tests.e2e.ledgers import check_exact

pytestmark = pytest.mark.usefixtures("operator")

TAKEN_OVER = 60.0
"""A lease stands for 15 s; the rest is for nodes that share few cores."""


def leader() -> str:
    """Name of the pod that holds the Lease; empty while none does."""
    lease = SYSTEM.find("lease", "spare-operator")
    name = str(lease["spec"].get("holderIdentity") or "").rpartition("_")[0] if lease else ""
    return name if name and SYSTEM.find("pod", name) else ""


def wait_leader(other_than: str = "") -> str:
    """Until a pod leads that is not the one named; its name."""
    return wait_for(
        f"a leader other than {other_than!r}",
        lambda: name if (name := leader()) not in ("", other_than) else None,
        TAKEN_OVER,
        leader,
    )


def kill_leader() -> str:
    """Delete its pod by force; it may still let go of the Lease. One that cannot is frozen in test_nodes. The name."""
    name = wait_leader()
    SYSTEM.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")
    return name


def test_a_leader_that_dies_is_followed_by_another(namespace: Namespace, images: Images) -> None:
    """Killed in mid-creation: no pod is made twice. Killed in mid-run, with a group: steps go on, and the loss waits.

    Field cases F27, F29, F62, and the fifth invariant; at the end the job proves that nothing was lost.
    """
    wait_leader()
    namespace.apply(integers("orphan", images.trainer, namespace, steps=300, seconds=0.05))
    wait_for("the first pod", lambda: bool(pods_of(namespace, "orphan")), 30)
    first = kill_leader()
    wait_leader(first)
    wait_condition(namespace, "orphan", "Running", START)
    made = {pod["metadata"]["name"] for pod in namespace.all("pod")}
    assert len(made) == 4, told(namespace, "orphan")
    assert (status(namespace, "orphan")["epoch"], status(namespace, "orphan")["masked"]) == (1, 0)

    wait_step(namespace, "orphan", 5, 60)
    second = kill_leader()
    kill_group(namespace, "orphan", 1)
    wait_leader(second)

    wait_for(
        "the loss to be handled, and the group to be back",
        lambda: (known := status(namespace, "orphan"))["masked"] == 1 and known["groups"]["active"] == 4,
        120,
        lambda: told(namespace, "orphan"),
    )
    survivors = {pod["metadata"]["name"] for pod in pods_of(namespace, "orphan")} & made
    assert len(survivors) == 3
    done = wait_condition(namespace, "orphan", "Complete", 300)
    assert (done["step"], done["masked"], done["restarts"]) == (300, 1, 0)
    check_exact(namespace, images.trainer, steps=300)
