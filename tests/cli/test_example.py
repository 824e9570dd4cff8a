"""The GPT example: five lines are all that SPARe asks of a training script, and the job file is a right one."""

from __future__ import annotations

import difflib
from pathlib import Path

from spare.api.job import load_job

GPT = Path(__file__).parents[2] / "examples" / "gpt"


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
