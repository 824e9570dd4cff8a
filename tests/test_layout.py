"""The house stays in order: each rule here shuts a trap that somebody once fell into."""

from __future__ import annotations

import operator
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("spare", "spare_runtime", "operator/spare_operator")
OURS = (*PACKAGES, "tests", "examples", "benchmarks", "docs", "images", "manifests", "charts", "hack", ".ci", ".github")
TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".sh", ".txt", ""}
LONGEST = 400

LONG_FOR_A_REASON: dict[str, str] = {
    "manifests/crd/sparejobs.yaml": "made from code; one definition is one object",
    "charts/spare/files/sparejobs.yaml": "the same; a chart cannot read files outside of it",
}
"""Files of ours above the limit, each with the reason why it must not be split."""

NAMED_LIKE_STDLIB_FOR_A_REASON = {
    "spare/control/signal.py": "the word for what happened; its folder holds no script that could shadow it",
}


def our_files() -> Iterator[Path]:
    """Every text file that we wrote, in every folder of ours and at the top."""
    for path in ROOT.iterdir():
        if path.is_file() and path.suffix in TEXT and path.name != "LICENSE":
            yield path
    for folder in OURS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in TEXT and "__pycache__" not in path.parts:
                yield path


def modules() -> Iterator[Path]:
    """Every module and package of the three that we ship."""
    for package in PACKAGES:
        yield ROOT / package
        for path in (ROOT / package).rglob("*"):
            if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__"):
                yield path


def test_the_standard_operator_module_is_not_shadowed() -> None:
    """The folder operator/ must never win over the standard library's module, or half of Python stops working."""
    assert Path(str(operator.__file__)).parent == Path(sysconfig.get_path("stdlib"))


def test_python_started_in_the_root_gets_the_standard_operator_module() -> None:
    """Also a fresh process with the checkout first on its path."""
    command = [sys.executable, "-c", "import operator; print(operator.__file__)"]

    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    assert Path(found.strip()).parent == Path(sysconfig.get_path("stdlib"))


def test_the_operator_folder_is_no_package() -> None:
    """Nothing in it but the package inside and its Dockerfile: an __init__.py or a conftest.py would shadow."""
    assert {path.name for path in (ROOT / "operator").iterdir()} <= {"spare_operator", "Dockerfile", "__pycache__"}


def test_no_file_outgrows_the_limit() -> None:
    """400 lines fit a head. A longer file needs a reason, and a reason needs a longer file."""
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in our_files()}
    long = {name for name, count in lines.items() if count > LONGEST}

    assert len(lines) > 40
    assert long == set(LONG_FOR_A_REASON)


def test_no_module_is_named_like_one_of_the_standard_library() -> None:
    """Run as a script, a neighbour of `signal.py` imports that instead of the standard library's."""
    clashes = {str(path.relative_to(ROOT)) for path in modules() if path.stem in sys.stdlib_module_names}

    assert clashes == set(NAMED_LIKE_STDLIB_FOR_A_REASON)


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    """A file is named for its one activity."""
    drawers = {"utils", "util", "helpers", "helper", "common", "misc", "tools"}

    assert not [path for path in modules() if path.stem in drawers]


def test_every_package_says_what_may_live_in_it() -> None:
    """Its docstring; and its folder is a package, so that nothing is found by accident."""
    for path in modules():
        if path.is_dir() and any(path.glob("*.py")):
            assert (path / "__init__.py").read_text().startswith('"""'), path


def test_every_module_says_what_it_is_for() -> None:
    """The first thing in each file is a docstring."""
    silent = [
        str(path.relative_to(ROOT))
        for path in our_files()
        if path.suffix == ".py" and path.name != "__init__.py" and not re.match(r'(#!.*\n)?r?"""', path.read_text())
    ]

    assert silent == []


def test_test_folders_are_packages() -> None:
    """Otherwise `from tests.x import y` fails in importlib mode, and equal names in two folders clash."""
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py") if path.parent.name != "scripts"}  # run as files

    assert all((folder / "__init__.py").exists() for folder in folders)


def test_the_rooms_depend_downwards_only() -> None:
    """The contracts in pyproject.toml hold: layers, purity, and the pod side apart from the operator."""
    command = [str(Path(sysconfig.get_path("scripts")) / "lint-imports"), "--no-cache"]

    result = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_users_are_shown_console_scripts(name: str) -> None:
    """`python -m` in the checkout puts its folders first on the path; the installed commands do not."""
    assert "python -m" not in (ROOT / name).read_text()


def test_links_between_documents_lead_somewhere() -> None:
    """Every relative link in a Markdown file names a file that exists."""
    for path in our_files():
        if path.suffix == ".md":
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
                assert (path.parent / target).exists(), (path, target)


def test_every_field_case_that_is_named_is_told() -> None:
    """Tests and comments name cases by number; docs/field-cases.md says what each of them is."""
    told = re.findall(r"^\| (F\d\d) \|", (ROOT / "docs" / "field-cases.md").read_text(), re.MULTILINE)
    named = {case for path in our_files() for case in re.findall(r"\bF\d\d\b", path.read_text())}

    assert len(told) == len(set(told))
    assert named <= set(told)


def test_every_target_of_make_is_explained() -> None:
    """What documents and CI call exists, and `make help` lists it."""
    makefile = (ROOT / "Makefile").read_text()
    explained = set(re.findall(r"^([a-z0-9-]+):.*## ", makefile, re.MULTILINE))
    documents = [str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")]
    used = {
        target
        for name in ("README.md", "CONTRIBUTING.md", ".ci/run", ".github/workflows/ci.yml", *documents)
        for target in re.findall(
            r"(?:^\s*(?:- run: )?|`)make ([a-z][a-z0-9-]*)", (ROOT / name).read_text(), re.MULTILINE
        )
    }

    assert set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)) - explained == {"run-e2e"}
    assert used <= explained


def test_the_ci_script_can_be_run() -> None:
    """It is executable, parses, and stops at the first failure."""
    script = ROOT / ".ci" / "run"

    assert script.stat().st_mode & 0o100
    assert "set -euo pipefail" in script.read_text()
    subprocess.run(["bash", "-n", str(script)], check=True)
