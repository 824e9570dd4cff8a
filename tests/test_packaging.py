"""What is installed is what we mean to ship, and everything that it promises is there."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {"spare", "spare_runtime", "spare_operator"}


def project() -> dict[str, Any]:
    """pyproject.toml, read."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names in a wheel built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path).namelist()


def test_every_console_script_loads() -> None:
    """No entry point leads to a module that was moved or deleted."""
    scripts = [entry for entry in distribution("spare-training").entry_points if entry.group == "console_scripts"]

    assert {entry.name for entry in scripts} == set(project()["project"]["scripts"])
    assert all(callable(entry.load()) for entry in scripts)


def test_the_wheel_holds_our_packages_and_nothing_beside_them(wheel: list[str]) -> None:
    """No `operator/` at the top, which would shadow the standard library's, and no tests."""
    top = {name.partition("/")[0] for name in wheel}

    assert {name for name in top if not name.endswith(".dist-info")} == PACKAGES
    assert any(name.endswith("licenses/LICENSE") for name in wheel)


def test_every_module_is_in_the_wheel(wheel: list[str]) -> None:
    """What is imported from the checkout is there after an installation, too."""
    for folder in ("spare", "spare_runtime", "operator/spare_operator"):
        base = (ROOT / folder).parent
        for path in (ROOT / folder).rglob("*.py"):
            assert str(path.relative_to(base)) in wheel


def test_our_types_are_seen_by_type_checkers(wheel: list[str]) -> None:
    """Each package has its py.typed."""
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(wheel)


def test_the_editable_installation_maps_only_our_packages() -> None:
    """Otherwise `import tests` or `import benchmarks` works from anywhere, until it is a wheel."""
    assert project()["tool"]["hatch"]["build"]["dev-mode-exact"] is True


def test_every_dependency_is_justified() -> None:
    """docs/decisions/0002-dependencies.md has a line for each, and none for what we do not use."""
    meta = project()["project"]
    required = [*meta["dependencies"], *(each for extra in meta["optional-dependencies"].values() for each in extra)]
    names = {re.split(r"[^A-Za-z0-9_-]", requirement)[0].lower() for requirement in required}
    document = (ROOT / "docs" / "decisions" / "0002-dependencies.md").read_text()

    assert {name.lower() for name in re.findall(r"^\| `([^`]+)` \|", document, re.MULTILINE)} == names


def test_the_python_versions_agree() -> None:
    """requires-python, the classifiers and the CI matrix name the same versions."""
    meta = project()["project"]
    classified = [each.rpartition(" ")[2] for each in meta["classifiers"] if re.search(r":: 3\.\d+$", each)]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()

    assert meta["requires-python"] == f">={classified[0]}"
    (matrix,) = re.findall(r"python: \[(.*)\]", workflow)
    assert re.findall(r"3\.\d+", matrix) == classified


def test_the_tested_torch_is_an_allowed_one() -> None:
    """constraints.txt pins one version, and the extra does not exclude it."""
    (pin,) = re.findall(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    runtime = project()["project"]["optional-dependencies"]["runtime"]
    (lowest,) = (each.partition(">=")[2] for each in runtime if each.startswith("torch"))

    assert [int(part) for part in pin.split(".")] >= [int(part) for part in lowest.split(".")]
