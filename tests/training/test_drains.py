"""Groups that are asked to go, alone or all at once, with real processes: nothing is lost, nothing computed again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from spare.api.exit_codes import ExitCode
from spare_runtime.checkpoint.folder import Folder
from tests.training.processes import commits, pid_of, wait_for
from tests.training.runs import SPARE, Run, check_survived, job_file, result, run, start, undisturbed_digest

STEPS = 20
ENV = {"STEPS": str(STEPS), "MICRO_SECONDS": "0.01"}


def with_grace(job: Path, seconds: int) -> Path:
    """The job file, with so long from SIGTERM to SIGKILL."""
    document = yaml.safe_load(job.read_text())
    document["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = seconds
    job.write_text(yaml.safe_dump(document))
    return job


def asks_to_go(folder: Path, group: int, after: int) -> None:
    """SIGTERM to an agent of that group once so many commits are in all ledgers."""
    wait_for(f"{after} commits", lambda: commits(folder) >= after)
    pid = pid_of(folder, group, agent=True)
    assert pid is not None
    os.kill(pid, signal.SIGTERM)


def told(done: Run, reason: str) -> list[list[int]]:
    """The groups of each event of a kind."""
    return [e["groups"] for e in done.events if e.get("reason") == reason]


def check_drained(done: Run, *left: int, steps: int = STEPS, groups: int = 4) -> None:
    """They left, nobody is masked, no failure was answered, and everything was computed once."""
    check_survived(done, steps=steps, groups=groups, masked=0)
    assert sorted(g for who in told(done, "Drained") for g in who) == sorted(left), done.told()
    assert told(done, "GroupLost") == [], done.told()
    assert done.summary["recoveries"] == [], done.told()
    assert computed(done) == steps * groups * 4, done.told()


def computed(done: Run) -> int:
    """Micro-batches that all groups together computed, counted from what they wrote down at their commits."""
    lines = [json.loads(line) for p in done.folder.glob("ledger/*.jsonl") for line in p.read_text().splitlines()]
    return sum(int(line["computed"], 16).bit_count() for line in lines if "commits" in line)


def test_f09_sigterm_to_one_agent(tmp_path: Path) -> None:
    """F09: a boundary plan, no patch, no other process ends, the next step commits with the others."""
    done = run(job_file(tmp_path, env=ENV), "--no-replacements", "--drain", "1@5:compute")

    check_drained(done, 1)
    last = [e for e in done.events if e.get("type") == "progress"][-1]
    first = next(e for e in done.events if e.get("type") == "progress" and all(e["pids"]))
    assert (last["live"], last["epoch"]) == (3, 2), done.told()
    assert [last["pids"][g] for g in (0, 2, 3)] == [first["pids"][g] for g in (0, 2, 3)], done.told()


@pytest.mark.slow
@pytest.mark.parametrize("point", ["compute", "reduce", "barrier", "step"])
def test_a_drain_at_each_point_of_a_step(tmp_path: Path, point: str) -> None:
    """The leader in the first step, the group of the highest number later, a third near the last step."""
    moments = [f"{group}@{step}:{point}" for group, step in ((0, 0), (4, 7), (1, STEPS - 3))]
    drains = [a for moment in moments for a in ("--drain", moment)]

    done = run(job_file(tmp_path, groups=5, redundancy=4, env=ENV), "--no-replacements", *drains)

    check_drained(done, 0, 1, 4, groups=5)


@pytest.mark.slow
def test_a_group_is_drained_while_it_writes_a_checkpoint(tmp_path: Path) -> None:
    """Another writes the next ones, and all of them are whole."""
    job = job_file(
        tmp_path,
        env={"STEPS": "60", "MICRO_SECONDS": "0.02"},
        checkpoint={"path": str(tmp_path / "saved"), "period": "1s"},
    )
    drains = [a for step in range(2, 50) for a in ("--drain", f"3@{step}:save")]

    done = run(job, "--no-replacements", *drains)

    check_drained(done, 3, steps=60)
    writers = [e["groups"] for e in done.events if e.get("reason") == "Checkpointed"]
    assert writers[-1] == [2], done.told()
    folder = Folder(tmp_path / "saved")
    for name in folder.complete():
        folder.verify(name)
    assert folder.complete()[0].step == 60


@pytest.mark.slow
@pytest.mark.parametrize("other", ["kill 2@5:compute", "kill 1@5:barrier", "drain 2@5:compute", "kill 0@6:regroup"])
def test_a_drain_while_something_else_happens(tmp_path: Path, other: str) -> None:
    """Another group dies, the leaver itself does, two leave at once, the leader dies in a regroup."""
    action, moment = other.split()
    more = ["--kill", "3@6:compute"] if moment.endswith("regroup") else []
    job = job_file(tmp_path, groups=5, redundancy=4, env=ENV)

    done = run(job, "--no-replacements", "--drain", "1@5:compute", f"--{action}", moment, *more)

    check_survived(done, steps=STEPS, groups=5)


@pytest.mark.slow
def test_a_drained_group_comes_back(tmp_path: Path) -> None:
    """As a replacement does, from the step after its admission on."""
    job = job_file(tmp_path, env={"STEPS": "400", "MICRO_SECONDS": "0.008"})

    done = run(job, "--drain", "2@5:compute")

    check_survived(done, steps=400, masked=0)
    assert told(done, "GroupRejoined") == [[2]], done.told()


def _sigterm_to_all_agents(folder: Path) -> None:
    for group in range(4):
        pid = pid_of(folder, group, agent=True)
        assert pid is not None
        os.kill(pid, signal.SIGTERM)


@pytest.mark.slow
def test_f23_every_agent_gets_sigterm(tmp_path: Path) -> None:
    """F23: the step in flight commits, one checkpoint of it is written, all end with 0, and the job goes on there."""
    job = job_file(tmp_path, env=ENV | {"STEPS": "5000"}, checkpoint={"path": str(tmp_path / "saved"), "period": "1h"})
    process = start(job)
    wait_for("commits", lambda: commits(tmp_path) > 20)
    _sigterm_to_all_agents(tmp_path)
    done = result(process, job)

    assert done.code == ExitCode.SIGTERM, done.told()
    assert (done.summary["result"], done.summary["masked"], done.summary["restarts"]) == ("suspended", 0, 0), (
        done.told()
    )
    assert (done.summary["lost"], done.summary["repeated"]) == (0, 0), done.told()
    step = done.summary["steps"]
    assert done.summary["checkpoint"].endswith(f"step-{step:010d}"), done.told()
    assert told(done, "WipeOut") == told(done, "GroupLost") == [], done.told()

    (tmp_path / "again").mkdir()
    again = job_file(
        tmp_path / "again", env=ENV | {"STEPS": str(step + 5)}, checkpoint={"path": str(tmp_path / "saved")}
    )
    on = result(start(again), again)
    assert on.summary["digest"] == undisturbed_digest(step + 5, 4, 4), on.told()


@pytest.mark.slow
def test_every_agent_gets_sigterm_and_nothing_is_saved(tmp_path: Path) -> None:
    """A stop would lose all steps: two groups stay until replacements of the others have the state, and go then."""
    job = job_file(tmp_path, env=ENV | {"STEPS": "800"})
    process = start(job)
    wait_for("commits", lambda: commits(tmp_path) > 20)
    _sigterm_to_all_agents(tmp_path)
    done = result(process, job)

    check_survived(done, steps=800, masked=0)
    assert told(done, "Halting") == [], done.told()
    assert sorted(group for (group,) in told(done, "Drained")) == [0, 1, 2, 3], done.told()


@pytest.mark.slow
def test_sigterm_to_spare_run_says_from_where_it_goes_on(tmp_path: Path) -> None:
    """All groups finish the step in flight; without a path nothing is saved, and that is said, too."""
    job = job_file(tmp_path, env=ENV | {"STEPS": "5000"})
    process = start(job)
    wait_for("commits", lambda: commits(tmp_path) > 20)
    process.send_signal(signal.SIGTERM)
    done = result(process, job)

    assert done.code == ExitCode.SIGTERM, done.told()
    assert done.summary["result"] == "suspended", done.told()
    assert "nothing was saved" in done.summary["verdict"], done.told()


@pytest.mark.slow
def test_spare_drain_says_what_happens(tmp_path: Path) -> None:
    """It waits until the group has left; it refuses what there is not, in words."""
    job = job_file(tmp_path, env=ENV | {"STEPS": "400"})
    process = start(job)
    wait_for("commits", lambda: commits(tmp_path) > 20)

    def drain(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(SPARE), "drain", *arguments, "--runs", str(tmp_path / "runs")]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    left = drain("1", "--no-replacement")
    again, unknown = drain("1"), drain("7")
    elsewhere = drain("1", "--run", "nowhere")
    done = result(process, job)

    check_survived(done, steps=400, masked=0)
    assert left.returncode == 0, left
    assert "group 1 has left after step" in left.stdout, left
    assert (again.returncode, unknown.returncode, elsewhere.returncode) == (1, 2, 2)
    assert "group 1 is left" in again.stderr, again
    assert "group 7: the job has the groups 0 to 3" in unknown.stderr, unknown
    assert "nowhere" in elsewhere.stderr
    assert told(done, "GroupRejoined") == [], done.told()
    after = drain("0")
    assert (after.returncode, "no job is running" in after.stderr) == (2, True)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_step_that_is_longer_than_the_grace_is_handed_on(tmp_path: Path) -> None:
    """The leave turns urgent in time: an heir takes over what the leaver has computed, the rest is patched, and nothing
    is computed twice."""
    job = with_grace(job_file(tmp_path, micro_batches=8, env={"STEPS": "2", "MICRO_SECONDS": "1.2"}), 9)
    process = start(job, "--no-replacements")
    asks_to_go(tmp_path, 1, after=4)
    done = result(process, job)

    check_survived(done, steps=2, micro_batches=8, masked=0)
    assert told(done, "Drained") == [[1]], done.told()
    assert "micro-batches of group 1 are taken over" in done.told()
    assert "0 micro-batches of group 1" not in done.told()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_group_whose_grace_ends_while_it_waits_for_a_slow_one_hands_on(tmp_path: Path) -> None:
    """It is in the reduction with all its work done when it must go: an heir takes over all of it, and none of it is
    computed again."""
    env = {"STEPS": "2", "MICRO_SECONDS": "0.05", "SLOW": "0,1,2,1.5"}
    job = with_grace(job_file(tmp_path, groups=3, micro_batches=8, env=env), 9)
    process = start(job, "--no-replacements")
    asks_to_go(tmp_path, 1, after=3)
    done = result(process, job)

    check_survived(done, steps=2, groups=3, micro_batches=8, masked=0)
    assert told(done, "Drained") == [[1]], done.told()
    assert "8 micro-batches of group 1 are taken over" in done.told()
    [leaver] = done.folder.glob("ledger/group-1-*.jsonl")
    lines = [line for line in map(json.loads, leaver.read_text().splitlines()) if line.get("step") == 1]
    assert [int(line["enters"], 16).bit_count() for line in lines] == [8], "in that reduction only"
    assert computed(done) == 2 * 3 * 8 - 8, "the survivors computed what is theirs, and nothing of the leaver's"
