"""Field case F17's turmoil: groups die two at a time, at moments that chance chooses, and come back."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

from tests.training.processes import pid_of, wait_for
from tests.training.runs import Run, start

KILLS, AT_ONCE = 10, 2


def commits_of(folder: Path, group: int, books: int) -> int:
    """Commits in the newest ledger of a group, once it has had so many incarnations."""
    found = sorted(folder.glob(f"runs/*/ledger/group-{group}-*"), key=lambda p: p.stat().st_mtime)
    return found[-1].read_text().count('"commits"') if len(found) >= max(books, 1) else 0


def kill(folder: Path, group: int) -> None:
    """SIGKILL to the group's worker."""
    pid = pid_of(folder, group)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def ten_kills(folder: Path, job: Path, groups: int, within: float, seed: int = 17) -> Run:
    """A run in which two groups die at once, five times, each time when all have come back.

    Args:
        folder: Of the job file.
        job: The job file.
        groups: N.
        within: Seconds, after everybody is back, within which the two die.
        seed: Chooses who and when.
    """
    chance = random.Random(seed)
    process = start(job)
    deaths = dict.fromkeys(range(groups), 0)

    def whole() -> bool:
        return process.poll() is not None or all(commits_of(folder, g, n + 1) > 0 for g, n in deaths.items())

    for _ in range(KILLS // AT_ONCE):
        wait_for("all groups to be back", whole, 120.0)
        time.sleep(chance.uniform(0.0, within))  # anywhere in a step
        for group in chance.sample(range(groups), AT_ONCE):
            kill(folder, group)
            deaths[group] += 1
    output, _ = process.communicate(timeout=300)
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    [run] = (job.parent / "runs").glob("*")
    return Run(process.returncode, lines[-1], lines, output, run)


def committed_steps(done: Run) -> set[int]:
    """Steps in any ledger of the run."""
    lines = [json.loads(line) for book in done.folder.glob("ledger/*") for line in book.read_text().splitlines()]
    return {line["step"] for line in lines if "commits" in line}
