"""A micro-batch that kills whoever computes it: one death is masked, the second is poison and named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spare.api.exit_codes import ExitCode
from tests.training.runs import Run, check_survived, job_file, run, undisturbed_digest

pytestmark = pytest.mark.slow

STEPS = 8
MICRO = (3, 2, 1)
NAMED = "micro-batch 1 of shard 2 in step 3"


def poisoned(folder: Path, times: int, how: str = "SIGSEGV", **spec: Any) -> Run:
    """A run whose micro-batch MICRO kills so many groups."""
    (folder / "deaths").mkdir()
    env = {"STEPS": str(STEPS), "POISON": ",".join(map(str, MICRO)), "TIMES": str(times), "HOW": how}
    return run(job_file(folder, script="poisoned.py", env={**env, "DEATHS": str(folder / "deaths")}, **spec))


def dead(folder: Path) -> list[int]:
    """The groups that it killed, in order."""
    return [int(path.name.rpartition("-")[2]) for path in sorted((folder / "deaths").iterdir())]


def test_one_crash_alone_is_masked(tmp_path: Path) -> None:
    """A segmentation fault that does not come again is a loss like any other; the event says where it was."""
    done = poisoned(tmp_path, times=1)

    check_survived(done, steps=STEPS, masked=1)
    assert done.summary["skipped"] == []
    assert any(f"killed by signal 11 at {NAMED}" in e.get("text", "") for e in done.events), done.told()


def test_two_crashes_on_the_same_micro_batch_fail_the_job_and_name_it(tmp_path: Path) -> None:
    """By default: it does not wander on through the job."""
    done = poisoned(tmp_path, times=99, how="SIGABRT")

    assert done.code == ExitCode.POISON, done.told()
    first, second = dead(tmp_path)
    assert first != second
    for text in (NAMED, f"group {first} (killed by signal 6)", f"group {second} (killed by signal 6)"):
        assert text in done.summary["verdict"], done.told()


@pytest.mark.parametrize("how", ["SIGSEGV", "exit3"])
def test_poison_is_left_out_by_all_alike(tmp_path: Path, how: str) -> None:
    """Two groups are lost to it, the others go on without it: weights are those of a run that never had it, the sum
    divided by one less in that step. The ledger names it, and nothing else is lost."""
    done = poisoned(tmp_path, times=99, how=how, onPoison="Skip")

    assert done.code == 0, done.told()
    assert done.summary["skipped"] == [list(MICRO)]
    assert (done.summary["lost"], done.summary["repeated"], done.summary["problems"]) == (0, 0, [])
    assert done.summary["masked"] == len(dead(tmp_path)) == 2
    assert done.summary["digest"] == undisturbed_digest(STEPS, 4, 4, skipped=frozenset({MICRO})), done.told()
    assert any(e.get("reason") == "Poison" and NAMED in e["text"] for e in done.events), done.told()


def test_who_is_killed_from_outside_twice_on_the_same_micro_batch_is_masked_twice(tmp_path: Path) -> None:
    """SIGKILL says nothing of the micro-batch: it is the kernel's or an operator's."""
    done = poisoned(tmp_path, times=2, how="SIGKILL")

    check_survived(done, steps=STEPS, masked=2)
