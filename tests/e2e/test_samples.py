"""Every sample of manifests/samples runs to its end as it stands, under the published chart (field case F51)."""

from __future__ import annotations

import pytest
import yaml

from tests.e2e.install import ROOT, Images, Release, operator_log, refusals
from tests.e2e.jobs import (
    LEDGERS,
    START,
    delete_group,
    integers,
    kill_group,
    pods_of,
    status,
    told,
    wait_condition,
    wait_step,
)
from tests.e2e.kubectl import Body, Namespace, call, wait_for
from tests.e2e.ledgers import check_exact

pytestmark = pytest.mark.usefixtures("operator")


def sample(name: str, images: Images) -> list[Body]:
    """The objects of a sample, with the image that the nodes have."""
    text = (ROOT / "manifests" / "samples" / f"{name}.yaml").read_text()
    bodies = [each for each in yaml.safe_load_all(text) if each]
    for body in bodies:
        if body["kind"] == "SPAReJob":
            body["spec"]["template"]["spec"]["containers"][0]["image"] = images.trainer
    return bodies


def restrict(namespace: Namespace) -> None:
    """From here on the namespace lets in only what keeps to the strictest of the pod security standards."""
    call("kubectl", "label", "namespace", namespace.name, "pod-security.kubernetes.io/enforce=restricted")


def test_the_smallest_job_loses_a_group_and_proves_that_nothing_was_lost(namespace: Namespace, images: Images) -> None:
    """In a restricted namespace a pod is killed in mid-run and replaced; the job checks its own weights."""
    restrict(namespace)
    namespace.apply(*sample("integers-small", images))
    wait_condition(namespace, "integers-small", "Running", START)
    wait_step(namespace, "integers-small", 10, 60)
    before = {pod["metadata"]["uid"] for pod in pods_of(namespace, "integers-small")}

    killed = kill_group(namespace, "integers-small", 1)

    wait_condition(namespace, "integers-small", "Degraded", 60)
    done = wait_condition(namespace, "integers-small", "Complete", 240)
    assert (done["step"], done["masked"], done["restarts"]) == (100, 1, 0)
    assert "1" in done["lastReorder"]["reason"]
    assert done["groups"]["desired"] == 4
    survivors = {pod["metadata"]["uid"] for pod in namespace.all("pod")} & before
    assert len(survivors) == 3, f"{killed} was killed; {told(namespace, 'integers-small')}"
    columns = namespace.kubectl("get", "spj", "integers-small").split()
    assert columns[:9] == ["NAME", "STATE", "REASON", "GROUPS", "DEPTH", "STEP", "EPOCH", "RESTARTS", "AGE"]
    assert columns[10:12] == ["Complete", "Completed"]


def test_a_loss_on_a_cluster_is_masked_as_on_one_machine(namespace: Namespace, images: Images) -> None:
    """All ledgers, from all nodes, audited together: each micro-batch once, nothing computed again by a survivor."""
    namespace.apply(integers("loss", images.trainer, namespace, steps=80))
    wait_condition(namespace, "loss", "Running", START)
    wait_step(namespace, "loss", 10, 60)

    kill_group(namespace, "loss", 2)

    wait_condition(namespace, "loss", "Complete", 240)
    check_exact(namespace, images.trainer, steps=80)


def test_the_small_gpt_completes(namespace: Namespace, images: Images) -> None:
    """As it stands, in a restricted namespace."""
    restrict(namespace)
    namespace.apply(*sample("gpt", images))

    done = wait_condition(namespace, "gpt", "Complete", 400)

    assert (done["step"], done["restarts"]) == (30, 0)


def test_a_spare_takes_the_place_of_a_lost_group(namespace: Namespace, images: Images) -> None:
    """The pod that waited is the group's from then on, and says so by its label; weights are as if nothing had been."""
    restrict(namespace)
    namespace.apply(*sample("spares", images))
    wait_condition(namespace, "spares", "Running", START)
    wait_for("a spare to be ready", lambda: status(namespace, "spares")["groups"]["spare"] >= 1, START)
    waiting = {pod["metadata"]["name"] for pod in namespace.all("pod", labelSelector="spare.training/spare")}

    kill_group(namespace, "spares", 1)

    wait_for("its place to be taken", lambda: namespace.events("SpareUsed") or None, 60)
    taken = wait_for(
        "the label", lambda: {p["metadata"]["name"] for p in pods_of(namespace, "spares", 1)} & waiting or None, 60
    )
    assert all(name.startswith("spares-s") for name in taken)
    done = wait_condition(namespace, "spares", "Complete", 600)
    assert (done["step"], done["masked"], done["restarts"]) == (400, 1, 0), told(namespace, "spares")


def test_a_wipe_out_goes_back_to_the_checkpoint(namespace: Namespace, images: Images) -> None:
    """Three of four groups are killed at once, more than any job masks: all begin again, exactly, from the checkpoint.

    The sample's claim needs storage that this cluster may lack: a folder of one node stands in, with all pods on it.
    """
    (job,) = (each for each in sample("restart", images) if each["kind"] == "SPAReJob")
    pod = job["spec"]["template"]["spec"]
    workers = call("kubectl", "get", "nodes", "-l", "!node-role.kubernetes.io/control-plane", "-o", "name").split()
    pod["nodeSelector"] = {"kubernetes.io/hostname": workers[0].removeprefix("node/")}
    pod["securityContext"] = {"runAsUser": 0}  # the node's folder is root's
    folder = {"path": f"{LEDGERS}/{namespace.name}/checkpoints", "type": "DirectoryOrCreate"}
    pod["volumes"] = [{"name": "checkpoints", "hostPath": folder}]
    job["spec"]["checkpoint"]["period"] = "5s"
    namespace.apply(job)
    wait_condition(namespace, "restart", "Running", START)
    wait_step(namespace, "restart", 40, 120)

    for group in (0, 1, 3):
        delete_group(namespace, "restart", group)

    done = wait_condition(namespace, "restart", "Complete", 300)
    assert (done["step"], done["restarts"]) == (100, 1)
    assert [each["reason"] for each in namespace.events("Restarted")] == ["Restarted"]


def test_nothing_was_forbidden(operator: Release) -> None:
    """After all of the above, under the chart's own roles: no refusal in any replica's log (field case F50)."""
    log = operator_log(operator.namespace)

    assert "leading as" in log
    assert refusals(log) == []
    assert "its run broke" not in log
