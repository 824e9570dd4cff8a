"""reduction="exact" with real processes: bit for bit the run without failures, for ordinary float32 training."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import pytest

from tests.training.runs import Run, job_file, run
from tests.training.turmoil import committed_steps, ten_kills

pytestmark = pytest.mark.slow

STEPS = 12
SPIKE = 7
"""In this step one gradient is far too large for the scales, and all begin it again; with scales for such gradients the
next step is begun again, too."""
AGAIN = sorted([SPIKE, SPIKE + 1] * 4)
MOMENTS = [
    *((0, SPIKE, "compute"), (3, SPIKE, "reduce"), (0, SPIKE, "barrier"), (3, SPIKE, "step"), (0, SPIKE, "regroup")),
    *((3, 0, "compute"), (0, 0, "reduce"), (3, STEPS - 1, "barrier"), (0, STEPS - 1, "step"), (3, 0, "regroup")),
]


def exact_run(folder: Path, *arguments: str, **env: str) -> Run:
    """A run of float32, dropout and Adam; nothing may be lost or repeated whatever happens."""
    setting = {"STEPS": str(STEPS), "REDUCTION": "exact", "SPIKE": str(SPIKE)} | env
    done = run(job_file(folder, script="floats.py", env=setting), *arguments)
    assert (done.code, done.summary["lost"], done.summary["repeated"]) == (0, 0, 0), done.told()
    return done


@functools.cache
def undisturbed(steps: int = STEPS) -> tuple[str, float]:
    """Digest of the weights, and the last loss, without failures."""
    with tempfile.TemporaryDirectory() as folder:
        done = exact_run(Path(folder), STEPS=str(steps))
        assert done.summary["masked"] == 0, done.told()
        assert begun_again(done) == AGAIN, done.told()
        return done.summary["digest"], done.summary["loss"]


def begun_again(done: Run) -> list[int]:
    """The steps that groups began again, each as often as groups did."""
    lines = [json.loads(line) for book in done.folder.glob("ledger/*") for line in book.read_text().splitlines()]
    return sorted(line["step"] for line in lines if "begins_again" in line)


def test_weights_and_loss_are_bit_equal_after_two_kills(tmp_path: Path) -> None:
    """One group dies before the step that is begun again, one right when it is."""
    done = exact_run(tmp_path, "--kill", "2@3:reduce", "--kill", f"1@{SPIKE}:step", "--no-replacements")

    assert done.summary["masked"] == 2, done.told()
    assert (done.summary["digest"], done.summary["loss"]) == undisturbed(), done.told()


@pytest.mark.parametrize(("group", "step", "point"), MOMENTS)
def test_one_kill_anywhere_is_bit_equal(tmp_path: Path, group: int, step: int, point: str) -> None:
    """Every point of the step that is begun again; every point in the first step or the last."""
    arguments = ["--kill", f"{group}@{step}:{point}"]
    if point == "regroup":  # something must make them regroup first
        arguments += ["--kill", f"{(group + 1) % 4}@{step}:compute"]

    done = exact_run(tmp_path, *arguments)

    assert done.summary["masked"] == len(arguments) // 2, done.told()
    assert (done.summary["digest"], done.summary["loss"]) == undisturbed(), done.told()


def test_groups_that_come_back_take_over_the_scales(tmp_path: Path) -> None:
    """Killed and rejoined, with a step begun again long after: bit-equal."""
    steps, env = 400, {"MICRO_SECONDS": "0.01", "SPIKE": "390"}
    (tmp_path / "calm").mkdir()
    calm = exact_run(tmp_path / "calm", STEPS=str(steps), **env)
    done = exact_run(tmp_path, "--kill", "1@10:reduce", "--kill", "3@12:barrier", STEPS=str(steps), **env)

    rejoined = [e["groups"] for e in done.events if e.get("reason") == "GroupRejoined"]
    assert sorted(g for groups in rejoined for g in groups) == [1, 3], done.told()
    assert begun_again(done) == [390] * 4 + [391] * 4, done.told()
    assert done.summary["digest"] == calm.summary["digest"], done.told()
    assert done.summary["loss"] == calm.summary["loss"], done.told()


def test_groups_of_different_kinds_are_refused(tmp_path: Path) -> None:
    """One group sums in floats: the job ends and names it, before any step."""
    job = job_file(tmp_path, groups=2, redundancy=2, script="mixed.py")

    done = run(job)

    assert done.summary["result"] == "failed", done.told()
    assert "groups 0 have reduction='exact'; groups 1 have reduction='float'" in done.output, done.told()


@pytest.mark.timeout(500)
def test_f17_a_gpt_in_turmoil_is_bit_equal(tmp_path: Path) -> None:
    """F17: 200 steps of the example's GPT with ten random kills and as many rejoins. The ledger is exact, and weights
    and loss are, bit for bit, those of a run in which nothing happened."""
    (tmp_path / "calm").mkdir()
    calm = run(job_file(tmp_path / "calm", script="small_gpt.py", env={"STEPS": "200", "MICRO_SECONDS": "0"}))
    job = job_file(tmp_path, script="small_gpt.py", env={"STEPS": "200", "MICRO_SECONDS": "0.08"})

    done = ten_kills(tmp_path, job, groups=4, within=0.4)

    assert (calm.code, calm.summary["masked"]) == (0, 0), calm.told()
    assert (done.code, done.summary["masked"]) == (0, 10), done.told()
    assert (done.summary["lost"], done.summary["repeated"]) == (0, 0), done.told()
    assert committed_steps(done) == set(range(200)), done.told()
    assert (done.summary["digest"], done.summary["loss"]) == (calm.summary["digest"], calm.summary["loss"])
