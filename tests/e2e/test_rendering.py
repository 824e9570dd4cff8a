"""What is installed, before it is: chart and manifests say the same, and each switch does what it says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.install import ROOT
from tests.e2e.kubectl import CallFailed, call

CHART = ROOT / "charts" / "spare"
CLUSTER_WIDE = {"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
Objects = dict[tuple[str, str], dict[str, Any]]


def objects(text: str) -> Objects:
    """By kind and name, without the marks that Helm puts on what it manages."""
    found: Objects = {}
    for body in yaml.safe_load_all(text):
        if not body:
            continue
        meta = body["metadata"]
        for label in ("helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"):
            meta.get("labels", {}).pop(label, None)
        meta.get("annotations", {}).pop("helm.sh/resource-policy", None)
        if not meta.get("annotations", True):
            del meta["annotations"]
        found[body["kind"], meta["name"]] = body
    return found


def chart(namespace: str, *values: str) -> Objects:
    """What `helm install spare` would make."""
    arguments = [part for value in values for part in ("--set", value)]
    return objects(call("helm", "template", "spare", str(CHART), "-n", namespace, "--kube-version", "1.34", *arguments))


@pytest.mark.parametrize(
    ("overlay", "namespace", "values"),
    [
        ("cluster", "spare-system", ()),
        ("single-namespace", "spare", ("rbac.cluster=false", "crd.install=false")),
    ],
)
def test_chart_and_manifests_make_the_same_objects(overlay: str, namespace: str, values: tuple[str, ...]) -> None:
    """Whoever installs by kustomize gets what whoever installs by Helm gets; only the namespace itself is extra."""
    manifests = objects(call("kubectl", "kustomize", str(ROOT / "manifests" / "overlays" / overlay)))
    manifests.pop(("Namespace", namespace), None)

    assert chart(namespace, *values) == manifests


@pytest.mark.parametrize("overlay", ["cluster", "single-namespace"])
def test_policies_for_jobs_are_asked_for_alike(overlay: str, tmp_path: Path) -> None:
    """`jobNetworkPolicy.enabled` and the component do the same; the order of arguments and rules is their own."""
    up = Path(*[".."] * len(tmp_path.resolve().parts[1:]))
    folders = [f"{up}{ROOT}/manifests/{part}" for part in (f"overlays/{overlay}", "components/job-network-policy")]
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{folders[0]}]\ncomponents: [{folders[1]}]\n")
    text = call("kubectl", "kustomize", str(tmp_path), "--load-restrictor=LoadRestrictionsNone")
    values = ["jobNetworkPolicy.enabled=true"] + ["rbac.cluster=false"] * (overlay != "cluster")
    manifests, charted = objects(text), chart("spare-system", *values)
    kind = "ClusterRole" if overlay == "cluster" else "Role"

    for made in (manifests, charted):
        args = made["Deployment", "spare-operator"]["spec"]["template"]["spec"]["containers"][0]["args"]
        rules = made[kind, "spare-operator"]["rules"]
        labels = "app.kubernetes.io/name=spare-operator,app.kubernetes.io/instance=spare"
        assert f"--network-policies={labels}" in args
        rule = {
            "apiGroups": ["networking.k8s.io"],
            "resources": ["networkpolicies"],
            "verbs": ["get", "create", "update"],
        }
        assert rule in rules
    usual = chart("spare-system", *values[1:])
    assert not [r for r in usual[kind, "spare-operator"]["rules"] if "networkpolicies" in r["resources"]]


def test_the_chart_has_no_lint() -> None:
    """Warnings are errors."""
    call("helm", "lint", "--strict", str(CHART))


NOTES_AS_AN_OBJECT = """kind: ConfigMap
metadata: {name: notes}
data: {text: {{ tpl (.Files.Get "files/NOTES.txt") . | quote }}}
"""


@pytest.mark.parametrize(
    ("values", "said", "unsaid"),
    [
        (
            (),
            ("2 operator pods", "in all namespaces", "\n  kubectl apply -f", "definition stays", "EVERY JOB:"),
            "alone",
        ),
        (
            ("rbac.cluster=false", "replicas=1"),
            ("1 operator pod,", "team-a alone", "kubectl -n team-a apply -f"),
            "pods",
        ),
        (("crd.install=false",), ("has to be there", "definition stays"), "kubectl delete crd"),
        (("crd.keep=false",), ("EVERY JOB GO WITH IT",), "stays"),
    ],
)
def test_the_notes_say_what_was_installed_and_how_it_goes(
    tmp_path: Path, values: tuple[str, ...], said: tuple[str, ...], unsaid: str
) -> None:
    """`helm template` leaves notes out, and `helm install` wants a cluster: they are rendered as an object here."""
    copy = tmp_path / "chart"
    shutil.copytree(CHART, copy)
    (copy / "templates" / "NOTES.txt").rename(copy / "files" / "NOTES.txt")
    (copy / "templates" / "notes.yaml").write_text(NOTES_AS_AN_OBJECT)
    arguments = [part for value in values for part in ("--set", value)]
    made = call("helm", "template", "spare", str(copy), "-n", "team-a", "--kube-version", "1.34", *arguments)
    notes = objects(made)["ConfigMap", "notes"]["data"]["text"]

    for each in (*said, "spare-operator in namespace team-a", "helm uninstall spare -n team-a"):
        assert each in notes
    assert unsaid not in notes
    (sample,) = set(re.findall(r"apply -f (\S+)", notes))
    assert (ROOT / sample).exists()


def test_one_namespace_needs_no_right_beyond_it() -> None:
    """`rbac.cluster=false`: Roles only (field case F60); the definition may be installed by somebody else."""
    made = chart("team-a", "rbac.cluster=false", "crd.install=false")

    assert not {kind for kind, _ in made} & CLUSTER_WIDE
    assert {body["metadata"]["namespace"] for body in made.values()} == {"team-a"}
    container = made["Deployment", "spare-operator"]["spec"]["template"]["spec"]["containers"][0]
    assert "--no-nodes" in container["args"]
    assert "SPARE_OPERATOR_NAMESPACES" in {each["name"] for each in container["env"]}


def test_the_definition_outlives_the_release() -> None:
    """An uninstall must not delete every job with the definition; who wants that says so."""
    text = call("helm", "template", "spare", str(CHART), "--kube-version", "1.34")
    dropped = call("helm", "template", "spare", str(CHART), "--kube-version", "1.34", "--set", "crd.keep=false")

    assert "helm.sh/resource-policy: keep" in text
    assert "resource-policy" not in dropped


def test_every_switch_switches() -> None:
    """What needs the Prometheus operator is off; what can be switched off goes."""
    usual = set(chart("spare-system"))
    more = set(chart("spare-system", "podMonitor.enabled=true", "prometheusRule.enabled=true"))
    less = set(
        chart(
            "spare-system",
            *("podDisruptionBudget.enabled=false", "networkPolicy.enabled=false", "rbac.aggregate=false"),
            "crd.install=false",
        )
    )

    assert more - usual == {("PodMonitor", "spare-operator"), ("PrometheusRule", "spare-operator")}
    assert {kind for kind, _ in usual - less} == {
        *("PodDisruptionBudget", "NetworkPolicy", "ClusterRole", "CustomResourceDefinition")
    }


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("replica=1", "replica"),
        ("watch.server=soon", "want integer"),
        ("watch.server=1.5", "watch"),
        (r"podLabels.app\.kubernetes\.io/name=mine", "podLabels cannot set app.kubernetes.io/name"),
        ("watch.client=60", "watch.client must be longer than watch.server"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
    ],
)
def test_wrong_values_are_refused(value: str, said: str) -> None:
    """Before anything is installed, naming the value."""
    with pytest.raises(CallFailed) as caught:
        chart("spare-system", value)

    assert said in caught.value.text


def test_the_operator_runs_under_the_restricted_standard(tmp_path: Path) -> None:
    """Non-root, no rights, a read-only root; the key of a job passes through memory only."""
    pod = chart("spare-system")["Deployment", "spare-operator"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [volume["emptyDir"]["medium"] for volume in pod["volumes"]] == ["Memory"]
