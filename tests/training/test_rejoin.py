"""Lost groups come back while the job runs (field cases F07, F17, F18)."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.training.processes import commits, pid_of, wait_for
from tests.training.runs import Run, check_survived, job_file, result, run, start, undisturbed_digest
from tests.training.turmoil import commits_of, committed_steps, kill, ten_kills

pytestmark = pytest.mark.slow

STEPS = 500
ENV = {"STEPS": str(STEPS), "MICRO_SECONDS": "0.008"}


def told(done: Run, reason: str) -> list[dict[str, object]]:
    """The events of a kind."""
    return [e for e in done.events if e.get("reason") == reason]


def test_f07_a_lost_group_comes_back(tmp_path: Path) -> None:
    """F07: survivors keep their processes, everybody is active again at depth 1, by a plan at a boundary."""
    done = run(job_file(tmp_path, env=ENV), "--kill", "1@10:reduce")

    check_survived(done, steps=STEPS, masked=1)
    assert [e["groups"] for e in told(done, "GroupRejoined")] == [[1]], done.told()
    last = [e for e in done.events if e.get("type") == "progress"][-1]
    assert (last["live"], last["depth"], last["epoch"]) == (4, 1.0, 3), done.told()
    first = next(e for e in done.events if e.get("type") == "progress" and all(e["pids"]))
    assert [last["pids"][g] for g in (0, 2, 3)] == [first["pids"][g] for g in (0, 2, 3)], done.told()


def test_f18_a_joiner_computes_from_the_step_after_its_admission(tmp_path: Path) -> None:
    """F18: admitted at the commit of step t, its first micro-batch is of step t + 1, also when it comes back twice."""
    job = job_file(tmp_path, env=ENV | {"STEPS": "900"})
    process = start(job)
    for incarnation in (1, 2):
        wait_for("commits", lambda n=incarnation: commits_of(tmp_path, 2, n) >= 3, 60.0)  # type: ignore[misc]
        kill(tmp_path, 2)
    done = result(process, job)

    check_survived(done, steps=900, masked=2)
    books = sorted(tmp_path.glob("runs/*/ledger/group-2-*"), key=lambda p: p.stat().st_mtime)
    assert len(books) == 3, done.told()
    for book in books[1:]:
        lines = [json.loads(line) for line in book.read_text().splitlines()]
        entered = [(e["step"], int(e["enters"], 16)) for e in lines if "enters" in e]
        first = entered[0][0]
        assert all(mask == 0 for step, mask in entered if step == first), lines[:4]
        assert all(mask for step, mask in entered if step == first + 1), lines[:4]


def test_the_donor_dies_while_it_gives(tmp_path: Path) -> None:
    """The joiner begins again with another donor; nobody commits half a state."""
    job = job_file(tmp_path, env=ENV)

    done = run(job, "--kill", "2@10:compute", *(a for step in range(11, STEPS) for a in ("--kill", f"0@{step}:give")))

    check_survived(done, steps=STEPS, masked=2)
    assert {e["groups"][0] for e in told(done, "GroupRejoined")} >= {2}, done.told()  # type: ignore[index]


@pytest.mark.parametrize("seed", range(3))
def test_a_joiner_dies_at_a_random_moment(tmp_path: Path, seed: int) -> None:
    """From its start to some time after its admission; the next one comes back all the same."""
    chance = random.Random(seed)
    job = job_file(tmp_path, env=ENV | {"STEPS": "1000"})
    process = start(job, "--kill", "3@10:barrier")
    wait_for("the loss", lambda: commits(tmp_path) >= 60)
    wait_for("the end of the first", lambda: _incarnations(tmp_path, 3) == 1)
    pid = wait_for("the replacement", lambda: pid_of(tmp_path, 3), 60.0)
    time.sleep(chance.uniform(0.0, 5.0))
    os.kill(pid, signal.SIGKILL)
    done = result(process, job)

    check_survived(done, steps=1000)
    assert told(done, "GroupRejoined"), done.told()


def _incarnations(folder: Path, group: int) -> int:
    return len(list(folder.glob(f"runs/*/ledger/group-{group}-*")))


@pytest.mark.timeout(400)
def test_f17_ten_random_kills_with_rejoin(tmp_path: Path) -> None:
    """F17: 200 steps of 8 groups and 8 micro-batches: whatever dies and comes back, the ledger holds each once."""
    job = job_file(tmp_path, groups=8, micro_batches=8, env={"STEPS": "200", "MICRO_SECONDS": "0.05"})

    done = ten_kills(tmp_path, job, groups=8, within=0.4)

    check_survived(done, steps=200, groups=8, micro_batches=8, masked=10)
    assert committed_steps(done) == set(range(200)), done.told()


def test_who_comes_back_at_the_last_commit_saves_the_result(tmp_path: Path) -> None:
    """It computed nothing, and what its script writes after the loop is what the others write, scheduler and all."""
    final = tmp_path / "final"
    final.mkdir()
    env = {"STEPS": "2", "MICRO_SECONDS": "2", "STARTS": "5", "FINAL": str(final)}
    job = job_file(tmp_path, script="saving.py", env=env)

    done = run(job, "--kill", "1@0:barrier")

    check_survived(done, steps=2, masked=1)
    saved = {path.name: json.loads(path.read_text()) for path in final.iterdir()}
    expected = {"digest": undisturbed_digest(2, 4, 4), "count": 2, "committed": 2}
    assert {name.partition("-")[0] for name in saved} == {"0", "1", "2", "3"}, done.told()
    assert all(found == expected for found in saved.values()), saved
