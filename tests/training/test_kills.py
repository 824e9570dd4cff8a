"""SIGKILL at every point of a step, by (group, step, point): the survivors end with the undisturbed weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.runs import check_survived, job_file, run

STEPS = 10
PAIR = ("1@2:compute", "0@6:step")
"""Two losses in a job with three hosts a shard, the leader among them."""
MOMENTS = [  # all (step, point), all (group, step), and three of the four groups at each point
    ((i + 3 * j) % 4, step, point)
    for i, step in enumerate((0, 5, STEPS - 1))
    for j, point in enumerate(("compute", "reduce", "barrier", "step", "regroup"))
]
MORE_PAIRS = [
    ("1@2:compute", "0@6:reduce"),
    ("3@2:barrier", "2@6:step"),
    ("1@2:reduce", "0@6:barrier"),
    ("0@2:step", "2@6:barrier"),
]


@pytest.mark.parametrize(
    ("first", "second"), [PAIR, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in MORE_PAIRS)]
)
def test_two_kills_one_after_the_other_change_nothing(tmp_path: Path, first: str, second: str) -> None:
    """One such job in the fast suite: everybody is real."""
    done = run(job_file(tmp_path, env={"STEPS": str(STEPS)}), "--kill", first, "--kill", second)

    check_survived(done, steps=STEPS, masked=2)
    assert [r["groups"] for r in done.summary["recoveries"]] == [[int(first[0])], [int(second[0])]], done.told()


@pytest.mark.slow
@pytest.mark.parametrize(("group", "step", "point"), MOMENTS)
def test_one_kill_anywhere_changes_nothing(tmp_path: Path, group: int, step: int, point: str) -> None:
    """Every point in the first step, in the middle and in the last; of all (group, step, point), a fourth."""
    arguments = ["--kill", f"{group}@{step}:{point}"]
    if point == "regroup":  # something must make them regroup first
        arguments += ["--kill", f"{(group + 1) % 4}@{step}:compute"]

    done = run(job_file(tmp_path, env={"STEPS": str(STEPS)}), *arguments)

    check_survived(done, steps=STEPS, masked=len(arguments) // 2)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["reduce", "barrier"])
def test_two_groups_killed_at_the_same_moment_make_one_or_two_plans(tmp_path: Path, point: str) -> None:
    """Whether the two deaths are heard of together or not, each is masked once."""
    job = job_file(tmp_path, env={"STEPS": str(STEPS)})

    done = run(job, "--kill", f"1@4:{point}", "--kill-group", f"3@4:{point}")

    check_survived(done, steps=STEPS, masked=2)
    assert sorted(g for r in done.summary["recoveries"] for g in r["groups"]) == [1, 3], done.told()


@pytest.mark.slow
def test_three_groups_killed_at_the_same_moment_are_survived_with_four_hosts_a_shard(tmp_path: Path) -> None:
    """Five groups, four hosts a shard: any three may die at once."""
    job = job_file(tmp_path, groups=5, redundancy=4, env={"STEPS": str(STEPS)})

    done = run(job, *(a for g in (0, 2, 4) for a in ("--kill", f"{g}@4:reduce")))

    check_survived(done, steps=STEPS, groups=5, masked=3)


def test_a_second_death_during_the_regroup_is_survived(tmp_path: Path) -> None:
    """The leader dies in the rendezvous that answers another group's death, after the facts were exchanged."""
    job = job_file(tmp_path, env={"STEPS": str(STEPS)})

    done = run(job, "--kill", "2@4:compute", "--kill", "0@4:regroup")

    check_survived(done, steps=STEPS, masked=2)


@pytest.mark.slow
def test_a_whole_group_dies_with_its_agent(tmp_path: Path) -> None:
    """Nobody is left to report the worker's end: the backend and the peers notice."""
    done = run(job_file(tmp_path, env={"STEPS": str(STEPS)}), "--kill-group", "1@4:step", "--kill-group", "0@7:compute")

    check_survived(done, steps=STEPS, masked=2)
