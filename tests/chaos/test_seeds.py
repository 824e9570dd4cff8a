"""Seeds of the simulation: no rule is ever broken, every job completes or ends for a reason that was injected."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.broken import BROKEN
from tests.chaos.core import Core, Node, Violation
from tests.chaos.named import NAMED
from tests.chaos.scenes import LONG_STEPS, cannot_wait, cannot_wait_for_another
from tests.chaos.seeds import play

FAST, SLOW = 120, 1000
CHUNK = 40


def failures(seeds: range) -> list[str]:
    """Of each seed that breaks a rule: what it broke, and how to see it again."""
    found = []
    for seed in seeds:
        verdict, _ = play(seed)
        if verdict.violation is not None:
            found.append(f"seed {seed}: {verdict.violation} (python -m tests.chaos --seed {seed} --trace)")
    return found


@pytest.mark.parametrize("first", range(0, FAST, CHUNK))
def test_no_seed_breaks_a_rule(first: int) -> None:
    """Exactly once, all or none, nothing computed again, fencing, written before told, and an end."""
    assert failures(range(first, first + CHUNK)) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_seed_of_many_breaks_a_rule() -> None:
    """The same for as many as CI has time for."""
    assert failures(range(FAST, FAST + SLOW)) == []


@pytest.mark.parametrize("name", NAMED)
def test_a_run_that_found_something_is_in_order_now(name: str) -> None:
    """And shows it still when the rule that it taught is left out."""
    case = NAMED[name]

    def violation() -> str | None:
        return play(case.seed, shape=case.shape, faults=case.faults)[0].violation

    assert violation() is None
    if case.broken is not None:
        with BROKEN[case.broken]():
            assert violation() is not None


def test_what_a_leaver_holds_is_handed_on() -> None:
    """Its grace ends before the step does: another takes over its sum, and no rule is broken."""
    runs = [play(seed, shape=LONG_STEPS, faults=cannot_wait(random.Random(seed)))[0] for seed in range(8)]

    assert [run.violation for run in runs if run.violation is not None] == []
    assert sum(run.handed_on for run in runs) >= 4


def test_what_a_leaver_holds_is_handed_on_while_it_waits_for_others() -> None:
    """Its grace ends in the reduction or the barrier: it offers from there, and may commit after all."""
    scenes = [cannot_wait_for_another(random.Random(seed)) for seed in range(40)]
    runs = [play(seed, shape=LONG_STEPS, faults=faults)[0] for seed, faults in enumerate(scenes)]

    assert [run.violation for run in runs if run.violation is not None] == []
    assert sum(run.handed_waiting for run in runs) >= 8


@pytest.mark.parametrize(("seed", "hashing"), [(3, "1"), (8, "2")])
def test_a_seed_is_the_same_run_each_time(seed: int, hashing: str) -> None:
    """Byte for byte, in another process with another order of its sets, too."""
    _, here = play(seed, trace=True)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--seed", str(seed), "--trace"],
        env={**os.environ, "PYTHONHASHSEED": hashing},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.rpartition("\n1 seeds")[0] == "\n".join(here)


def test_a_violation_in_a_callback_ends_the_run() -> None:
    """The simulation itself must not swallow what it finds."""
    core = Core(1, trace=False)
    node = Node(core, "n", "h")

    def breaks() -> None:
        raise core.violated("by hand")

    node.after(1.0, breaks)
    core.run(lambda: False, 10.0)

    assert isinstance(core.broken, Violation)
    assert str(core.broken) == "by hand"
