"""Gradients are sent while the last micro-batch's backward runs: kills around that moment change nothing."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import pytest

from tests.training.runs import Run, job_file, run

STEPS = 12


def wide_run(folder: Path, *arguments: str) -> Run:
    """A model of 2.9 MB, in three buckets; its gradients are integers, so sums do not depend on their order."""
    done = run(job_file(folder, env={"STEPS": str(STEPS), "WIDE": "50000"}), *arguments)
    assert (done.code, done.summary["lost"], done.summary["repeated"]) == (0, 0, 0), done.told()
    return done


@functools.cache
def undisturbed() -> str:
    """Digest of the weights without failures."""
    with tempfile.TemporaryDirectory() as folder:
        return str(wide_run(Path(folder)).summary["digest"])


@pytest.mark.slow
@pytest.mark.parametrize("points", [("compute", "reduce"), ("reduce", "barrier"), ("barrier", "step")])
def test_two_kills_change_nothing(tmp_path: Path, points: tuple[str, str]) -> None:
    """Two groups die, in different steps and points."""
    first, second = points

    done = wide_run(tmp_path, "--kill", f"1@4:{first}", "--kill", f"3@7:{second}", "--no-replacements")

    assert done.summary["masked"] == 2, done.told()
    assert done.summary["digest"] == undisturbed(), done.told()


@pytest.mark.slow
def test_a_reduction_is_entered_before_it_is_sent(tmp_path: Path) -> None:
    """Each commit has one entry of each member before it, although parts left earlier than the rest."""
    done = wide_run(tmp_path)

    for book in done.folder.glob("ledger/*"):
        lines = [json.loads(line) for line in book.read_text().splitlines()]
        kinds = ["enters" if "enters" in line else "commits" for line in lines if {"enters", "commits"} & set(line)]
        assert kinds == ["enters", "commits"] * STEPS, lines
