"""Warm spares in real runs: the process that waited takes the place of the group that died, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.training.processes import pid_of, wait_for
from tests.training.runs import Run, check_survived, job_file, result, start
from tests.training.test_ranks import DETECTION, of_parts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

GROUPS = 4
STEPS = 500
ENV = {"STEPS": str(STEPS), "MICRO_SECONDS": "0.02"}
READY = "ready, and waits for a place"


def ready(folder: Path, spare: int = 0, *, starts: int = 1, ranks: int = 1) -> int:
    """Wait until so many starts of a spare have become ready; the process of the first worker of the newest."""

    def logs() -> bool:
        texts = [log.read_text() for log in folder.glob(f"runs/*/spare-{spare}-*.log")]
        return sum(text.count(READY) >= ranks for text in texts) >= starts

    wait_for(f"{starts} starts of spare {spare} to be ready", logs)
    return wait_for("its process", lambda: pid_of(folder, GROUPS + spare))


def kill(folder: Path, group: int) -> None:
    """SIGKILL to the worker of a group in its first incarnation."""
    pid = pid_of(folder, group)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def told(done: Run, reason: str) -> list[str]:
    """What the events of a kind say."""
    return [e["text"] for e in done.events if e.get("reason") == reason]


def last_pids(done: Run) -> list[int]:
    """The groups' processes at the end."""
    last: list[int] = [e for e in done.events if e.get("type") == "progress"][-1]["pids"]
    return last


def steps_away(folder: Path, group: int) -> int:
    """Steps that a group had no part in, from its first incarnation's last commit to its second's first."""
    books = sorted(folder.glob(f"runs/*/ledger/group-{group}-*"), key=lambda p: p.stat().st_mtime)
    entries = [[json.loads(line) for line in book.read_text().splitlines()] for book in books[:2]]
    before, after = ([e["step"] for e in book if "commits" in e] for book in entries)
    return int(min(after) - max(before) - 1)


def under_way(folder: Path) -> tuple[Path, subprocess.Popen[str]]:
    """A job with one spare that has just begun."""
    job = job_file(folder, spares=1, env=ENV)
    return job, start(job)


def test_the_process_that_waited_takes_the_place(tmp_path: Path) -> None:
    """With the process number that it had, a few steps later; another spare is ready before the end."""
    job, process = under_way(tmp_path)
    spare = ready(tmp_path)
    kill(tmp_path, 1)
    ready(tmp_path, starts=2)
    done = result(process, job)

    check_survived(done, steps=STEPS, masked=1)
    assert last_pids(done)[1] == spare, done.told()
    assert done.summary["spares_used"] == 1
    assert len(told(done, "SpareReady")) == 2, done.told()
    assert told(done, "SpareLost") == [], done.told()
    assert told(done, "SpareUsed") == ["group 1 taken by spare 0, which joins at the next boundary"]
    assert steps_away(tmp_path, 1) <= 6, done.told()  # a start of a process takes some forty of these steps


def test_a_spare_that_dies_while_it_waits_costs_nothing(tmp_path: Path) -> None:
    """It is no loss, and no plan is made for it; the next one does what it was for."""
    job, process = under_way(tmp_path)
    os.kill(ready(tmp_path), signal.SIGKILL)
    spare = ready(tmp_path, starts=2)
    kill(tmp_path, 3)
    done = result(process, job)

    check_survived(done, steps=STEPS, masked=1)
    assert last_pids(done)[3] == spare, done.told()
    assert len(told(done, "SpareLost")) == 1, done.told()
    assert done.summary["epoch"] == 3, done.told()


def test_a_spare_that_dies_while_it_joins_is_followed_by_a_start(tmp_path: Path) -> None:
    """It has learnt its number, and its donor has begun to give: an urgent plan goes on without it."""
    pauses = [a for step in range(1, STEPS) for a in ("--pause", f"0@{step}:give=1.0")]
    job = job_file(tmp_path, spares=1, env=ENV)
    process = start(job, *pauses)
    spare = ready(tmp_path)
    kill(tmp_path, 2)
    wait_for("its place", lambda: any("is group 2 now" in p.read_text() for p in tmp_path.glob("runs/*/spare-0-*")))
    os.kill(spare, signal.SIGKILL)
    done = result(process, job)

    check_survived(done, steps=STEPS)
    assert done.summary["masked"] in (1, 2), done.told()  # 2: it had joined by then, for all that it had to load
    assert any("group 2 is back" in text for text in told(done, "GroupRejoined")), done.told()
    assert last_pids(done)[2] != spare


def test_two_losses_and_one_spare(tmp_path: Path) -> None:
    """One comes back at once, the other as ever."""
    job, process = under_way(tmp_path)
    spare = ready(tmp_path)
    kill(tmp_path, 1)
    kill(tmp_path, 2)
    done = result(process, job)

    check_survived(done, steps=STEPS, masked=2)
    pids = last_pids(done)
    assert spare in (pids[1], pids[2]), done.told()
    assert done.summary["spares_used"] >= 1
    assert len(told(done, "GroupRejoined")) == 2, done.told()


def test_a_spare_of_several_ranks_is_a_whole_group(tmp_path: Path) -> None:
    """FSDP2 inside it: its ranks have met before anybody is lost."""
    steps = 40
    env = {"STEPS": str(steps), "MICRO_SECONDS": "0.2"}
    job = job_file(
        tmp_path,
        groups=3,
        redundancy=3,
        script="sharded.py",
        env=env,
        procPerPod=2,
        podsPerGroup=1,
        spares=1,
        detection=DETECTION,
    )
    process = start(job)
    wait_for(
        "the spare's ranks",
        lambda: any(p.read_text().count(READY) == 2 for p in tmp_path.glob("runs/*/spare-0-*.log")),
        180.0,
    )
    kill(tmp_path, 1)
    done = result(process, job, deadline=270.0)

    check_survived(done, steps=steps, groups=3, masked=1, digest=of_parts(steps))
    assert told(done, "SpareUsed"), done.told()
    assert len(told(done, "GroupRejoined")) == 1, done.told()


def test_a_job_that_is_asked_to_stop_ends_its_spares(tmp_path: Path) -> None:
    """SIGTERM: all groups stop after the same step; the spare has nothing to save, and ends, too."""
    job, process = under_way(tmp_path)
    spare = ready(tmp_path)
    process.send_signal(signal.SIGTERM)
    done = result(process, job)

    assert done.code == 143, done.told()
    assert done.summary["result"] == "suspended", done.told()
    assert not Path(f"/proc/{spare}").exists()
