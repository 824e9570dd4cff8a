"""Real SIGKILLs from outside, at moments that nobody chose."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.training.processes import commits, pid_of, wait_for
from tests.training.runs import check_survived, job_file, result, start

STEPS = 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_two_kills_at_a_random_moment(tmp_path: Path, seed: int) -> None:
    """Any two of four groups, three hosts a shard; each time the worker or the agent, two at once or one shortly after
    the other, so that the second may fall into the regroup."""
    chance = random.Random(seed)
    victims = chance.sample(range(4), 2)
    after = chance.randrange(4, 3 * STEPS)
    job = job_file(tmp_path, env={"STEPS": str(STEPS), "MICRO_SECONDS": "0.004"})
    process = start(job)
    pids = [
        wait_for("the process", lambda g=g, a=a: pid_of(tmp_path, g, agent=a), 60.0)  # type: ignore[misc]
        for g, a in [(g, chance.random() < 0.3) for g in victims]
    ]
    wait_for(f"{after} commits", lambda: commits(tmp_path) >= after)
    time.sleep(chance.uniform(0, 0.03))  # into the middle of whatever the groups are doing then

    os.kill(pids[0], signal.SIGKILL)
    time.sleep(chance.choice((0.0, chance.uniform(0, 0.06))))
    os.kill(pids[1], signal.SIGKILL)

    check_survived(result(process, job), steps=STEPS, masked=2)
