"""Chart, manifests and images name the same things, and every sample is a valid job."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from spare.api.job import KIND, load_job
from spare_operator import cluster

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "spare"
MANIFESTS = ROOT / "manifests"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
SAMPLES = sorted(path for path in (MANIFESTS / "samples").glob("*.yaml") if path.name != "kustomization.yaml")


def documents(path: Path) -> list[dict[str, Any]]:
    """The objects in a file."""
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def rules(overlay: str, kind: str) -> dict[tuple[str, str], set[str]]:
    """Verbs by (group, resource) of the role that the operator works under."""
    (role,) = (each for each in documents(MANIFESTS / "overlays" / overlay / "roles.yaml") if each["kind"] == kind)
    return {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_the_charts_definition_is_the_manifests() -> None:
    """Byte for byte: `make manifests` writes both."""
    assert (CHART / "files" / "sparejobs.yaml").read_text() == (MANIFESTS / "crd" / "sparejobs.yaml").read_text()


def test_all_versions_are_the_projects() -> None:
    """Chart, image tags in manifests and samples: one release is one number."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    assert f"newTag: {VERSION}" in (MANIFESTS / "base" / "kustomization.yaml").read_text()
    for path in SAMPLES:
        assert re.findall(r"image: (\S+)", path.read_text()) == [f"spare/trainer:{VERSION}"], path


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_is_a_valid_job(path: Path) -> None:
    """Named as its file, and listed in the kustomization; read as strictly as `spare run` reads."""
    (job,) = (each for each in documents(path) if each["kind"] == KIND)

    assert load_job(json.dumps(job)).metadata.name == path.stem
    assert path.name in yaml.safe_load((MANIFESTS / "samples" / "kustomization.yaml").read_text())["resources"]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_run_under_the_restricted_standard(path: Path) -> None:
    """A namespace that enforces Pod Security's strictest profile lets them in."""
    (job,) = (each for each in documents(path) if each["kind"] == KIND)
    spec = job["spec"]["template"]["spec"]

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_roles_name_what_the_operator_touches_and_nothing_else() -> None:
    """No star, no kind that the operator does not use, and none that it uses is missing. Policies for jobs are made
    only where somebody asks for them, and the right to do so comes with that."""
    wide = rules("cluster", "ClusterRole")
    narrow = rules("single-namespace", "Role")
    kinds = [each for each in vars(cluster).values() if isinstance(each, cluster.Kind) and each is not cluster.LEASES]
    used = {(each.api.rpartition("/")[0], each.plural) for each in kinds} | {("spare.training", "sparejobs/status")}

    assert set(wide) == used - {("networking.k8s.io", "networkpolicies")}
    assert {key: verbs for key, verbs in wide.items() if key != ("", "nodes")} == narrow
    assert all("*" not in {*key, *verbs} for key, verbs in wide.items())
    assert wide["", "nodes"] == {"get", "list", "watch"}


def test_every_value_of_the_chart_is_in_its_schema() -> None:
    """And nothing else: a misspelt value is an error at install, not silence."""
    schema = json.loads((CHART / "values.schema.json").read_text())

    def check(place: dict[str, Any], values: dict[str, Any], path: str) -> None:
        assert place.get("additionalProperties") is False, path
        assert set(values) == set(place["properties"]) - {"global"}, path
        for name, value in values.items():
            if isinstance(value, dict) and "properties" in place["properties"][name]:
                check(place["properties"][name], value, f"{path}.{name}")

    check(schema, yaml.safe_load((CHART / "values.yaml").read_text()), "")


def test_watch_timeouts_are_values_and_in_order() -> None:
    """Server before client, as the operator asks for (field case F53); both ways of installing set the same."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())["watch"]
    arguments = (MANIFESTS / "base" / "deployment.yaml").read_text()

    assert values == {"server": 120, "client": 150, "connect": 5}
    for name, flag in (("server", "server"), ("client", "client"), ("connect", "connect")):
        assert f"--watch-{flag}-timeout={values[name]}" in arguments


def test_alerts_are_about_metrics_that_exist() -> None:
    """A renamed metric must not leave an alert that never fires."""
    text = (CHART / "templates" / "monitoring.yaml").read_text()
    asked = {name for line in re.findall(r"expr: (.*)", text) for name in re.findall(r"spare_[a-z_]+", line)}
    told = (ROOT / "operator" / "spare_operator" / "metrics.py").read_text()

    assert len(asked) >= 5
    assert {name for name in asked if f'"{name.removesuffix("_total")}"' not in told} == set()


def test_nothing_needs_a_webhook() -> None:
    """No webhook, no certificate of it, no finalizer: what is installed holds nobody up (field cases F40, F52)."""
    for folder in (CHART, MANIFESTS):
        for path in folder.rglob("*.*"):
            text = path.read_text()
            assert "WebhookConfiguration" not in text, path
            assert "finalizers" not in text, path


@pytest.mark.parametrize("script", ["images/build", "images/trim", "hack/kind/cluster", "hack/kind/e2e"])
def test_scripts_parse_and_stop_at_the_first_failure(script: str) -> None:
    """Bash's own check; executable where it is called by name."""
    path = ROOT / script
    text = path.read_text()

    subprocess.run(["bash", "-n", str(path)], check=True)
    assert "set -euo pipefail" in text or (text.startswith("#!/bin/sh") and "set -eu" in text)
    assert path.stat().st_mode & 0o100 or script == "images/trim"


def test_images_are_named_in_one_place() -> None:
    """The chart's defaults are what images/build builds by default."""
    command = [str(ROOT / "images" / "build"), "--names"]
    clean = {name: value for name, value in os.environ.items() if name not in ("REGISTRY", "TAG")}
    names = subprocess.run(command, check=True, capture_output=True, text=True, env=clean).stdout.split()
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert names == [f"spare/operator:{VERSION}", f"spare/trainer:{VERSION}"]
    assert (values["image"]["repository"], values["image"]["tag"]) == ("spare/operator", "")


@pytest.mark.parametrize("name", ["operator", "trainer"])
def test_images_run_without_rights_and_say_what_they_are(name: str) -> None:
    """Several stages, a numeric user that is not root, the labels of the Open Container Initiative, any base."""
    text = (ROOT / "images" / f"{name}.Dockerfile").read_text()

    assert text.count("\nFROM ") >= 2
    assert "ARG BASE\nFROM ${BASE}" in text
    assert "\nUSER 65532:65532\n" in text
    for label in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{label}=" in text


def test_a_pytorch_with_cuda_is_refused_before_an_image_is_built(tmp_path: Path) -> None:
    """What was downloaded is not kept either: the next call, told of another folder, would build the same."""
    for name in ("pyproject.toml", "constraints.txt", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "images", tmp_path / "images")
    python, docker = tmp_path / ".venv" / "bin" / "python", tmp_path / "docker"
    python.parent.mkdir(parents=True)
    python.write_text(
        "#!/bin/bash\n"
        'case "$*" in\n'
        '  *"pip download"*) while [[ $1 != --dest ]]; do shift; done; touch "$2/$WHEEL" ;;\n'
        "  *hatchling*) ;;\n"
        f'  *) exec {sys.executable} "$@" ;;\n'
        "esac\n"
    )
    docker.write_text(f'#!/bin/bash\necho "$1" >>{tmp_path}/called\n[[ $1 != image ]] || echo 800000000\n')
    for program in (python, docker):
        program.chmod(0o755)

    def build(wheel: str, folder: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "DOCKER": str(docker), "WHEEL": wheel, "PIP_FIND_LINKS": folder}
        command = [str(tmp_path / "images" / "build"), "trainer"]
        return subprocess.run(command, check=False, capture_output=True, text=True, env=env)

    refused = build("nvidia_cublas-1-py3-none-any.whl", "")
    assert refused.returncode == 1
    assert "PIP_FIND_LINKS" in refused.stderr
    assert not (tmp_path / "called").exists()
    assert build("torch-2+cpu-py3-none-any.whl", "/wheels").returncode == 0
    assert "downloading" not in build("unused.whl", "/wheels").stderr
    assert "downloading" in build("torch-2+cpu-py3-none-any.whl", "/others").stderr


class Bench:
    """A checkout that has `hack/kind/e2e` and, in place of the programs that it calls, ones that write down how."""

    def __init__(self, folder: Path, *programs: str, clusters: str = "") -> None:
        self.folder, self.log, self.path = folder / "checkout", folder / "calls", folder / "bin"
        (self.folder / "hack" / "kind").mkdir(parents=True)
        shutil.copy(ROOT / "hack" / "kind" / "e2e", self.folder / "hack" / "kind" / "e2e")
        self.path.mkdir()
        for name in ("bash", "dirname", "mktemp", "grep", "cat", "env"):
            (self.path / name).symlink_to(str(shutil.which(name)))
        answers = {
            "kind": f'case "$*" in "get clusters") echo "{clusters}" ;; "get kubeconfig"*) echo the-config ;; esac'
        }
        (self.folder / "images").mkdir()
        for name in programs:
            self.program(self.path / name, name, answers.get(name, ""))
        self.program(self.path / "make", "make", '[[ -z "${KUBECONFIG:-}" ]] || cat "$KUBECONFIG"')
        names = '[[ "${1:-}" != --names ]] || printf "%s\\n" a/operator:1 a/trainer:1'
        self.program(self.folder / "images" / "build", "images/build", names)
        self.program(self.folder / "hack" / "kind" / "cluster", "cluster", "")

    def program(self, place: Path, name: str, answer: str) -> None:
        place.write_text(f'#!/bin/bash\necho "{name} $*" >>{self.log}\n{answer}\n')
        place.chmod(0o755)

    def run(self, **env: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        """What it said, and what it called."""
        command = [str(self.folder / "hack" / "kind" / "e2e")]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env={"PATH": str(self.path), **env}, timeout=30
        )
        return done, [line.rstrip() for line in self.log.read_text().splitlines()] if self.log.exists() else []


PLAIN = ("docker", "kind", "kubectl", "helm")


@pytest.mark.parametrize("clusters", ["", "another", "another\nspare-e2e"])
def test_with_docker_and_kind_the_cluster_tests_make_an_ordinary_kind_cluster(tmp_path: Path, clusters: str) -> None:
    """Once; then the images by their own names onto its nodes, and the tests with its kubeconfig."""
    done, calls = Bench(tmp_path, *PLAIN, clusters=clusters).run()

    made = (
        []
        if "spare-e2e" in clusters
        else ["kind create cluster --name spare-e2e --config hack/kind/cluster.yaml --wait 120s"]
    )
    assert done.returncode == 0, done.stderr
    assert calls == [
        *("docker info", "kind get clusters", *made, "kind get kubeconfig --name spare-e2e"),
        *("images/build", "images/build --names"),
        "kind load docker-image a/operator:1 a/trainer:1 --name spare-e2e",
        "make run-e2e",
    ]
    assert done.stdout == "the-config\n"
    nodes = yaml.safe_load((ROOT / "hack" / "kind" / "cluster.yaml").read_text())["nodes"]
    assert [each["role"] for each in nodes] == ["control-plane", "worker", "worker", "worker"]


def test_a_cluster_that_is_named_is_used_as_it_is(tmp_path: Path) -> None:
    """Nothing is built or made."""
    (tmp_path / "theirs").write_text("theirs\n")
    done, calls = Bench(tmp_path, *PLAIN).run(KUBECONFIG=str(tmp_path / "theirs"))

    assert (calls, done.stdout) == (["make run-e2e"], "theirs\n")


def test_without_kind_the_cluster_is_made_without_a_registry(tmp_path: Path) -> None:
    """The images are built upon what is there, by Debian's client, and the tests run inside."""
    done, calls = Bench(tmp_path, "docker").run()

    assert done.returncode == 0, done.stderr
    assert calls == [
        *("cluster up", "images/build", "images/build --names", "cluster load a/operator:1 a/trainer:1"),
        "cluster exec make run-e2e",
    ]


def test_a_program_that_the_cluster_tests_need_is_named_before_anything_is_made(tmp_path: Path) -> None:
    """Half an hour later would be late."""
    done, calls = Bench(tmp_path, "docker", "kind", "kubectl").run()

    assert done.returncode == 1
    assert "helm must be on the path" in done.stderr
    assert calls == ["docker info"]


def test_go_is_asked_for_by_name_where_programs_have_to_be_built() -> None:
    """Its version stands in the modules, and the newest of them in the document."""
    wanted = {re.findall(r"^go (\d+\.\d+)", path.read_text(), re.M)[0] for path in (ROOT / "hack").rglob("go.mod")}

    assert f"Go {max(wanted)} " in (ROOT / "docs" / "e2e.md").read_text()
    assert f"Go ({max(wanted)}," in (ROOT / "hack" / "kind" / "cluster").read_text()
