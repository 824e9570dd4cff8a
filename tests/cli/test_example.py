"""The examples: five lines are all that SPARe asks of a training script, and the job files are right ones."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
import yaml

from spare.api.job import load_job

EXAMPLES = Path(__file__).parents[2] / "examples"
GPT = EXAMPLES / "gpt"


def code_of(name: str) -> list[str]:
    """Lines of a script without its docstring, indentation and blank lines."""
    text = (GPT / name).read_text().split('"""')[2]
    return sorted(line.strip() for line in text.splitlines() if line.strip())  # order of the imports does not count


def test_five_lines_make_a_plain_loop_a_spare_loop() -> None:
    """Counted on both sides; moving a line further in is no change."""
    diff = list(difflib.ndiff(code_of("plain.py"), code_of("train.py")))
    added = [line for line in diff if line.startswith("+ ")]
    removed = [line for line in diff if line.startswith("- ")]

    assert len(added) <= 5, added
    assert len(removed) <= 5, removed


def test_the_job_file_is_right() -> None:
    """Its command runs the script beside it, and any two of its groups may be lost."""
    spec = load_job((GPT / "job.yaml").read_text()).spec

    assert spec.trainer.argv == ("python", "train.py")
    assert (spec.groups, spec.redundancy, spec.groups * spec.micro_batches) == (4, 3, 32)


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in EXAMPLES.glob("*/job.yaml")), ids=lambda path: path.name
)
def test_every_example_is_a_valid_job(folder: Path) -> None:
    """Named as its folder, with a README, and a command that runs the script beside it."""
    job = load_job((folder / "job.yaml").read_text())

    assert job.metadata.name == folder.name
    assert job.spec.trainer.argv[:2] == ("python", "train.py")
    assert (folder / "train.py").exists()
    assert f"spare run examples/{folder.name}/job.yaml" in (folder / "README.md").read_text()


def test_the_gpu_job_asks_for_a_gpu_for_each_rank_and_claims_nothing() -> None:
    """Under the restricted standard, as the samples; and whoever reads of it learns that nobody here ran it."""
    spec = load_job((EXAMPLES / "gpu" / "job.yaml").read_text()).spec
    pod = yaml.safe_load((EXAMPLES / "gpu" / "job.yaml").read_text())["spec"]["template"]["spec"]

    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == spec.proc_per_pod == 1
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "never run on a GPU" in (EXAMPLES / "gpu" / "README.md").read_text()
