"""Which deaths speak against a micro-batch, and what is done about it."""

from __future__ import annotations

from typing import Any

import pytest

from spare.api.exit_codes import ExitCode
from spare.control.action import Announce, PushPlan
from spare.control.resume import resume
from spare.control.signal import AgentGone, Tick
from tests.control.drive import Drive, started

MICRO = (0, 2, 1)
OTHER = (0, 2, 5)
NAMED = "micro-batch 1 of shard 2 in step 0"


def crash(drive: Drive, group: int, micro: tuple[int, int, int] | None = MICRO, **how: Any) -> None:
    """The group's worker dies of itself."""
    drive.do(drive.exited(group, **(how or {"signal": 11}), micro=micro))


def test_the_second_death_on_a_micro_batch_fails_the_job() -> None:
    """Both groups, how they died, and the micro-batch are named."""
    drive = started()
    crash(drive, 1)
    assert drive.end is None
    assert f"worker killed by signal 11 at {NAMED}" in drive.plan.reason
    crash(drive, 3, code=134)

    assert drive.end is not None
    assert drive.end.code == ExitCode.POISON
    expected = f"{NAMED} killed one group after another: group 1 (killed by signal 11), group 3 (exited with code 134)"
    assert drive.end.verdict == expected
    assert [e.reason for e in drive.all(Announce)].count("Poison") == 1


def test_skip_leaves_it_out_of_the_next_plan_and_all_that_follow() -> None:
    """One urgent plan answers the loss and names it; the agents are told; a plan for a new loss keeps it."""
    drive = started(skip_poison=True, groups=5, redundancy=4)
    crash(drive, 1)
    assert not drive.plan.skipped
    crash(drive, 3)

    assert drive.end is None
    assert (drive.plan.epoch, drive.plan.groups, drive.plan.skipped) == (3, (0, 2, 4), (MICRO,))
    assert f"{NAMED} left out of the sum" in drive.plan.reason
    assert drive.plan.part_for(0, "u0").skipped == (MICRO,)
    assert [e.reason for e in drive.all(Announce)].count("Poison") == 1
    drive.do(AgentGone(4, "u4", "node lost"))
    assert drive.plan.skipped == (MICRO,)
    assert resume(drive.config, drive.plan.to_json(), 1.0).state.poison == (MICRO,)


def test_a_death_that_is_told_late_still_counts() -> None:
    """The loss was answered before its agent told how it died: the next who gets it must be spared."""
    drive = started(skip_poison=True, groups=5, redundancy=4)
    crash(drive, 1)
    drive.do(AgentGone(3, "u3", "gone"))
    assert drive.plan.epoch == 3
    assert not drive.plan.skipped
    decision = drive.do(drive.exited(3, signal=11, micro=MICRO), Tick())

    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups, drive.plan.skipped) == (4, 4, (0, 2, 4), (MICRO,))
    assert sum(isinstance(action, PushPlan) for action in decision.actions) == 1
    drive.do(drive.exited(3, signal=11, micro=MICRO), Tick())
    assert drive.plan.epoch == 4


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"signal": 9, "micro": MICRO}, {"signal": 9, "micro": MICRO}),
        ({"code": 137, "micro": MICRO}, {"signal": 11, "micro": MICRO}),
        ({"signal": 11, "micro": MICRO}, {"signal": 11, "micro": OTHER}),
        ({"signal": 11, "micro": MICRO}, {"signal": 11}),
        ({"signal": 11, "micro": MICRO}, {"code": 3, "micro": OTHER}),
    ],
)
def test_other_deaths_are_no_poison(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Killed from outside, at different micro-batches, or with none in hand: two losses."""
    drive = started()
    drive.do(drive.exited(1, **first))
    drive.do(drive.exited(3, **second))

    assert drive.end is None
    assert drive.state.poison == ()
    assert drive.state.masked == 2


def test_a_group_that_meets_it_twice_is_one_group() -> None:
    """The rule is about two groups: one may have a broken machine."""
    drive = started(replace=True)
    crash(drive, 1)
    drive.do(Tick(), after=1.0)
    drive.uids[1] = "u1b"
    drive.ready(1)
    crash(drive, 1)

    assert drive.state.poison == ()


def test_a_script_that_leaves_in_a_micro_batch_is_masked_once() -> None:
    """By itself, without an exception: the same micro-batch again is poison, another is the script's error."""
    drive = started()
    crash(drive, 1, code=3)
    assert drive.state.masked == 1
    crash(drive, 3, OTHER, code=3)
    assert drive.end is not None
    assert drive.end.code == ExitCode.USER_ERROR

    drive = started()
    crash(drive, 1, code=3)
    crash(drive, 3, code=3)
    assert drive.end is not None
    assert drive.end.code == ExitCode.POISON


def test_poison_is_named_even_when_its_last_hosts_died_of_it() -> None:
    """With two hosts a shard a wipe-out is what is left, and it would not say why."""
    drive = started(redundancy=2)
    for group in drive.plan.schedule.placement.hosts(2):
        crash(drive, group)

    assert drive.end is not None
    assert drive.end.code == ExitCode.POISON


def test_a_step_is_never_skipped_as_a_whole() -> None:
    """Nothing would be left to average."""
    drive = started(skip_poison=True, groups=3, redundancy=3, micro_batches=1)
    drive.do(*(drive.exited(g, signal=11, micro=(0, s, 0)) for s in range(3) for g in (0, 1)))

    assert drive.end is not None
    assert drive.end.code == ExitCode.POISON
    assert "nothing would be left to average" in drive.end.verdict
