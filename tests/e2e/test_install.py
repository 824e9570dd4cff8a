"""Installing, upgrading and removing SPARe while jobs run: nothing is left that holds anybody up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import make_namespace
from tests.e2e.install import ROOT, SYSTEM, Images, Release, operator_log, refusals, wait_ready
from tests.e2e.jobs import START, integers, kill_group, pods_of, status, wait_condition, wait_step
from tests.e2e.kubectl import Namespace, call, wait_for

LONG = 10_000
"""Steps of a job that is not meant to end."""


@pytest.fixture
def release(chart: Path, images: Images) -> Iterator[Release]:
    """The chart for the whole cluster, of this test alone."""
    made = Release(chart, images)
    made.install()
    yield made
    made.uninstall()


def generations(namespace: Namespace) -> dict[str, tuple[str, int]]:
    """uid and generation of what an upgrade might touch."""
    found = {}
    for kind in ("deployment", "role", "rolebinding", "serviceaccount", "networkpolicy", "poddisruptionbudget"):
        names = namespace.kubectl(
            "get",
            kind,
            "-o",
            "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.metadata.resourceVersion}{'\\n'}{end}",
        )
        for line in names.splitlines():
            name, uid, version = line.split()
            found[f"{kind}/{name}"] = (uid, 0 if kind == "deployment" else int(version))
    found["pods"] = (",".join(sorted(pod["metadata"]["uid"] for pod in namespace.all("pod"))), 0)
    return found


def test_an_upgrade_conflicts_with_nobody_and_a_second_one_changes_nothing(
    release: Release, namespace: Namespace, images: Images
) -> None:
    """A running job does not notice either of them (field case F52)."""
    namespace.apply(integers("long", images.trainer, namespace, steps=LONG))
    wait_condition(namespace, "long", "Running", START)
    epoch = status(namespace, "long")["epoch"]
    release.install()
    before = generations(SYSTEM)
    definition = call("kubectl", "get", "crd", "sparejobs.spare.training", "-o", "jsonpath={.metadata.generation}")

    release.install()

    assert generations(SYSTEM) == before
    assert definition == call(
        "kubectl", "get", "crd", "sparejobs.spare.training", "-o", "jsonpath={.metadata.generation}"
    )
    wait_step(namespace, "long", status(namespace, "long")["step"] + 5, 60)
    assert status(namespace, "long")["epoch"] == epoch


def test_a_job_trains_on_without_an_operator_and_is_deleted_without_one(
    release: Release, namespace: Namespace, images: Images
) -> None:
    """Uninstalled in mid-run: the definition, the job and its pods stay. Its deletion then waits for nobody (F40)."""
    namespace.apply(integers("orphan", images.trainer, namespace, steps=LONG))
    wait_condition(namespace, "orphan", "Running", START)
    pods = {pod["metadata"]["uid"] for pod in pods_of(namespace, "orphan")}

    release.uninstall()

    assert namespace.find("spj", "orphan") is not None
    assert {pod["metadata"]["uid"] for pod in pods_of(namespace, "orphan")} == pods
    namespace.delete("spj", "orphan", wait=True, seconds=30)
    wait_for("all pods to go", lambda: not namespace.all("pod"), 60, lambda: namespace.all("pod"))


def test_an_operator_that_comes_back_takes_up_what_runs(release: Release, namespace: Namespace, images: Images) -> None:
    """Same plan, same pods, steps counted on (field case F29): to be reinstalled is just a long absence."""
    namespace.apply(integers("patient", images.trainer, namespace, steps=LONG))
    wait_condition(namespace, "patient", "Running", START)
    wait_step(namespace, "patient", 5, 60)
    before = status(namespace, "patient")
    release.uninstall()

    release.install()

    wait_step(namespace, "patient", before["step"] + 5, 90)
    after = status(namespace, "patient")
    assert (after["epoch"], after["digest"], after["masked"]) == (before["epoch"], before["digest"], before["masked"])


def test_a_namespace_with_operator_and_jobs_can_be_deleted(chart: Path, images: Images) -> None:
    """All at once, in any order: no finalizer of ours waits for an operator that is gone (field case F40)."""
    place = make_namespace("doomed")
    doomed = Release(chart, images, place, values=("--set", "rbac.cluster=false,crd.install=false"))
    try:
        doomed.install()
        place.apply(integers("doomed", images.trainer, place, steps=LONG))
        wait_condition(place, "doomed", "Running", START)
    finally:
        call("kubectl", "delete", "namespace", place.name, "--wait=true", "--timeout=60s", seconds=75)


def test_one_namespace_is_enough(chart: Path, images: Images) -> None:
    """`rbac.cluster=false`: a whole job with a loss under Roles only, and no refusal in the log (field case F60)."""
    place, other = make_namespace("narrow"), make_namespace("elsewhere")
    values = "rbac.cluster=false,crd.install=false,jobNetworkPolicy.enabled=true"
    narrow = Release(chart, images, place, values=("--set", values))
    try:
        narrow.install()
        for each in (place, other):
            each.apply(integers("narrow", images.trainer, each, steps=60))
        wait_condition(place, "narrow", "Running", START)
        wait_step(place, "narrow", 5, 60)
        kill_group(place, "narrow", 3)
        done = wait_condition(place, "narrow", "Complete", 240)
        log = operator_log(place)
        policies = place.kubectl("get", "networkpolicy", "narrow-pods", "-o", "jsonpath={.spec.policyTypes}")

        assert policies == '["Ingress"]'
        assert done["masked"] == 1
        assert other.all("pod") == []
        assert refusals(log) == []
    finally:
        narrow.uninstall()
        for each in (place, other):
            call("kubectl", "delete", "namespace", each.name, "--wait=false")


def test_the_manifests_install_the_same(namespace: Namespace, images: Images, tmp_path: Path) -> None:
    """`kubectl apply -k`, with an overlay of one's own for the image: a job completes."""
    repository, _, tag = images.operator.rpartition(":")
    overlay = ROOT / "manifests" / "overlays" / "cluster"
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [{Path(*['..'] * len(tmp_path.parts[1:]))}{overlay}]\n"
        f"images: [{{name: spare/operator, newName: {repository}, newTag: '{tag}'}}]\n"
    )
    text = call("kubectl", "kustomize", str(tmp_path), "--load-restrictor=LoadRestrictionsNone")
    try:
        call("kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-", given=text)
        wait_ready(SYSTEM, "spare-operator")
        namespace.apply(integers("plain", images.trainer, namespace, steps=30))

        assert wait_condition(namespace, "plain", "Complete", 240)["step"] == 30
    finally:
        keep = ["--ignore-not-found", "--wait=true", "--timeout=90s", "-l", "app.kubernetes.io/name=spare-operator"]
        kinds = "deployment,serviceaccount,role,rolebinding,networkpolicy,poddisruptionbudget"
        SYSTEM.kubectl("delete", kinds, *keep, seconds=100)
        call("kubectl", "delete", "clusterrole,clusterrolebinding", *keep, seconds=100)
