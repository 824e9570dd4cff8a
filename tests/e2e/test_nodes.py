"""Nodes that die, are cut off or are emptied, and operators that freeze with them. Runs last: it breaks the cluster.

Everything is mended again, by the tests' own blocks. Where nodes are no containers of Docker, these tests are skipped;
in CI they fail: there, what cannot be tested is no success.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.e2e.install import SYSTEM, Images
from tests.e2e.jobs import START, integers, kill_group, pods_of, status, told, wait_condition, wait_step
from tests.e2e.kubectl import Body, Namespace, wait_for
from tests.e2e.ledgers import stop_and_audit
from tests.e2e.nodes import Node, breakable
from tests.e2e.test_operators import wait_leader

pytestmark = pytest.mark.usefixtures("operator", "nodes")

ENDLESS = 100_000
"""Steps of a job that is stopped when the test has seen enough."""
BACK = 180.0
"""Seconds in which all groups train again: Kubernetes may first send replacements to the node that is dead."""


@pytest.fixture(scope="module")
def nodes() -> None:
    """The nodes can be broken from here. What asks for this runs after everything else."""
    why_not = breakable()
    if why_not and os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(why_not)
    if why_not:
        pytest.skip(why_not)


def groups_on(namespace: Namespace, job: str) -> dict[str, list[Body]]:
    """The job's pods by their node."""
    found: dict[str, list[Body]] = {}
    for pod in pods_of(namespace, job):
        found.setdefault(pod["spec"]["nodeName"], []).append(pod)
    return found


def settled(namespace: Namespace, images: Images, job: str, **more: Any) -> dict[str, list[Body]]:
    """Start a job of four groups, and have it train; its pods by their node."""
    namespace.apply(integers(job, images.trainer, namespace, steps=ENDLESS, **more))
    wait_condition(namespace, job, "Running", START)
    wait_step(namespace, job, 5, 60)
    return groups_on(namespace, job)


def led_elsewhere(node: str) -> None:
    """See to it that the operator that works is not on this node: what is tested is the jobs' loss, not its own."""
    pod = SYSTEM.get("pod", name := wait_leader())
    if pod["spec"]["nodeName"] == node:
        SYSTEM.kubectl("delete", "pod", name, "--wait=false")  # in good order: it lets go of the Lease
        wait_leader(name)


def wait_all_back(namespace: Namespace, job: str) -> None:
    """Until as many groups train as the job asks for."""
    wait_for(
        "all groups to be back",
        lambda: (known := status(namespace, job)["groups"])["active"] == known["desired"],
        BACK,
        lambda: told(namespace, job),
    )


def test_a_node_without_power_is_one_loss_long_before_kubernetes_knows(namespace: Namespace, images: Images) -> None:
    """All groups of the node are lost by their agents' silence, in one plan, while the node still counts as ready."""
    pods = settled(namespace, images, "power")
    node = max(pods, key=lambda name: len(pods[name]))
    assert len(pods[node]) == 2, {name: len(there) for name, there in pods.items()}
    led_elsewhere(node)
    wait_step(namespace, "power", status(namespace, "power")["step"] + 3, 60)

    with Node(node).dead():
        wait_for(
            "both groups to be lost",
            lambda: status(namespace, "power")["masked"] == 2,
            40,
            lambda: told(namespace, "power"),
        )
        assert Node(node).ready, "Kubernetes knew as soon as we did"
        (lost,) = namespace.events("GroupLost")
        numbers = sorted(pod["metadata"]["labels"]["spare.training/group"] for pod in pods[node])
        assert lost["metadata"]["annotations"]["spare.training/groups"] == ",".join(numbers)
        assert f"node {node}" in lost["message"]
        wait_step(namespace, "power", status(namespace, "power")["step"] + 3, 60)

    wait_all_back(namespace, "power")
    found = stop_and_audit(namespace, images.trainer, "power")
    assert found.repeated == 0
    assert (status(namespace, "power")["masked"], status(namespace, "power")["restarts"]) == (2, 0)


def test_a_group_that_is_cut_off_commits_nothing_and_leaves(namespace: Namespace, images: Images) -> None:
    """Its node's network drops everything in silence: the others go on; it has nobody to reduce with, and gives up."""
    limits = {"collectiveTimeout": "10s", "rendezvousTimeout": "20s"}
    pods = settled(namespace, images, "apart", reduction=limits)
    node = min(pods, key=lambda name: len(pods[name]))
    (pod, *more) = pods[node]
    assert not more, {name: len(there) for name, there in pods.items()}
    led_elsewhere(node)
    mark = f"SPARE_UID={pod['metadata']['labels']['spare.training/incarnation']}"

    with Node(node).cut_off():
        wait_for("the loss", lambda: status(namespace, "apart")["masked"] == 1, 60, lambda: told(namespace, "apart"))
        wait_step(namespace, "apart", status(namespace, "apart")["step"] + 3, 60)
        assert Node(node).processes(mark)
        wait_for("it to give up", lambda: not Node(node).processes(mark), 90, lambda: Node(node).processes(mark))

    wait_all_back(namespace, "apart")
    stop_and_audit(
        namespace, images.trainer, "apart"
    )  # a commit of its own would be in its ledger, which is on the node
    assert status(namespace, "apart")["restarts"] == 0


def test_a_drained_node_costs_nothing(namespace: Namespace, images: Images) -> None:
    """`kubectl drain`: its groups leave at a step's end, so nobody computes a patch, and none of it is a loss."""
    pods = settled(namespace, images, "emptied")
    node = max(pods, key=lambda name: len(pods[name]))
    leaving = len(pods[node])
    before = status(namespace, "emptied")["depth"]

    with Node(node).drained("spare.training/job-name=emptied"):
        assert not [pod for pod in pods_of(namespace, "emptied") if pod["spec"]["nodeName"] == node]
        wait_all_back(namespace, "emptied")

    after = status(namespace, "emptied")
    assert (after["masked"], after["restarts"], after["depth"]) == (0, 0, before)
    assert len(namespace.events("Drained")) == leaving
    assert not namespace.events("GroupLost")
    found = stop_and_audit(namespace, images.trainer, "emptied")
    assert found.repeated == 0


def test_a_leader_that_was_frozen_does_no_harm_when_it_wakes(namespace: Namespace, images: Images) -> None:
    """SIGSTOP for longer than its Lease: the other replica leads, and handles a loss; SIGCONT: the first ends (F63).

    It wakes up with a loss of its own to answer, the very same: it writes no plan, pushes none, and begins anew.
    """
    settled(namespace, images, "twice")
    first = wait_leader()
    node = Node(SYSTEM.get("pod", first)["spec"]["nodeName"])
    epoch = status(namespace, "twice")["epoch"]

    with node.frozen(f"POD_NAME={first}"):
        kill_group(namespace, "twice", 2)
        wait_leader(first)
        wait_for("the loss to be handled", lambda: status(namespace, "twice")["masked"] == 1, 60)
        wait_all_back(namespace, "twice")
        known = status(namespace, "twice")

    def said() -> str:
        """What it logged since it woke up, if it was not ended by its kubelet before."""
        return SYSTEM.kubectl("logs", first).partition("no longer leading")[2]

    def began_anew() -> bool:
        (container,) = SYSTEM.get("pod", first)["status"]["containerStatuses"]
        return bool(container["ready"] and (container["restartCount"] or "waiting for the lease" in said()))

    wait_for("the former leader to begin anew", began_anew, 90, lambda: SYSTEM.get("pod", first)["status"])
    assert "plan" not in said()
    wait_step(namespace, "twice", status(namespace, "twice")["step"] + 3, 60)
    after = status(namespace, "twice")
    assert (after["epoch"], after["digest"], after["masked"]) == (known["epoch"], known["digest"], 1)
    assert after["epoch"] == epoch + 2  # the loss, and the return
    stop_and_audit(namespace, images.trainer, "twice")
