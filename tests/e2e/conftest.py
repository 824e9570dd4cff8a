"""What the cluster tests share: the images' names, the packaged chart, an installed operator, a namespace each."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.artifacts import keep
from tests.e2e.install import ROOT, Images, Release
from tests.e2e.kubectl import CallFailed, Namespace, call, proxy, wait_for

TEST_SECONDS = 420
"""A test that takes longer hangs; each of its waits has a deadline of its own, far below."""

_failed = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs a cluster, and more time than the fast tests have; what breaks nodes comes last."""
    items.sort(key=lambda item: "nodes" in getattr(item, "fixturenames", ()))
    for item in items:
        if Path(str(item.path)).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.kind)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember failures, so that the namespace's fixture keeps what explains them."""
    report = yield
    item.stash[_failed] = item.stash.get(_failed, False) or report.failed
    return report


@pytest.fixture(scope="session", autouse=True)
def cluster() -> Iterator[None]:
    """There is a cluster and what is needed to speak with it; else that is an error, never a skipped test."""
    for program in ("kubectl", "helm"):
        if shutil.which(program) is None:
            pytest.exit(f"the cluster tests need {program} on the path; `make e2e` brings it where it can", 2)
    if not os.environ.get("KUBECONFIG"):
        pytest.exit("the cluster tests need KUBECONFIG; `make e2e` makes a cluster where it can", 2)
    call("kubectl", "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s", seconds=90)
    with proxy():
        yield


@pytest.fixture(scope="session")
def images() -> Images:
    """Names of the images, from the environment or else as images/build has them."""
    full = {each.rpartition("/")[2].partition(":")[0]: each for each in call(f"{ROOT}/images/build", "--names").split()}
    return Images(
        operator=os.environ.get("SPARE_OPERATOR_IMAGE") or full["operator"],
        trainer=os.environ.get("SPARE_TRAINER_IMAGE") or full["trainer"],
    )


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as it is published: one packed file (field case F51)."""
    folder = tmp_path_factory.mktemp("chart")
    call("helm", "package", str(ROOT / "charts" / "spare"), "--destination", str(folder))
    (packed,) = folder.glob("*.tgz")
    return packed


def explained() -> bool:
    """Whether `kubectl explain` knows a job's fields."""
    try:
        return bool(call("kubectl", "explain", "spj.spec"))
    except CallFailed:
        return False


@pytest.fixture(scope="module")
def definition() -> None:
    """The custom resource definition alone, in its present form: nobody works on the jobs."""
    call("kubectl", "apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "manifests/crd/sparejobs.yaml"))
    call("kubectl", "wait", "--for=condition=Established", "crd/sparejobs.spare.training", "--timeout=30s")
    wait_for("kubectl to know it", explained, 60.0)  # discovery is a little later


@pytest.fixture(scope="module")
def operator(chart: Path, images: Images) -> Iterator[Release]:
    """The chart, installed for the whole cluster with its defaults; removed after the tests of one file."""
    release = Release(chart, images)
    release.install()
    yield release
    release.uninstall()


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace of the test's own. Of a failed test everything is kept under artifacts/ before it goes."""
    made = make_namespace(request.node.name)
    yield made
    if request.node.stash.get(_failed, False):
        print(f"kept under {keep(request.node.nodeid, made)}")  # noqa: T201
    call("kubectl", "delete", "namespace", made.name, "--wait=false", "--ignore-not-found")


def make_namespace(test: str, **labels: str) -> Namespace:
    """A namespace with a name that tells whose it is and that no other run has."""
    stem = re.sub(r"[^a-z0-9]+", "-", test.lower().removeprefix("test_"))[:40].strip("-")
    made = Namespace(f"e2e-{stem}-{secrets.token_hex(2)}")
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": made.name, "labels": labels}}
    made.apply(body)
    return made
