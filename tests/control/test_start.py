"""From nothing to the first plan."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from spare.api.exit_codes import ExitCode
from spare.control.action import Connect, CreateGroup, DeleteGroup, PushPlan
from spare.control.config import Config
from spare.control.signal import AgentGone, AgentNotStarted, DrainGroup, Tick
from spare.control.state import GroupState, JobState
from tests.control.drive import CONFIG, JOB, Drive


def test_every_group_is_created_once() -> None:
    """The first decision asks for all groups, in order."""
    assert list(Drive().decisions[0].actions) == [CreateGroup(g) for g in range(4)]


def test_an_agent_that_is_up_is_dialled_once() -> None:
    """A backend may say so as often as it likes."""
    drive = Drive()

    assert drive.do(drive.up(0)).actions == (Connect(0, "u0", "10.0.0.1:7000"),)
    assert drive.do(drive.up(0)).actions == ()


def test_no_plan_before_all_are_ready() -> None:
    """A hello without a store says that the agent is there, not its worker."""
    drive = Drive()
    drive.ready(0, 1, 2)
    drive.do(drive.up(3), drive.hello(3, store=None))

    assert drive.plans == []
    assert drive.state.job is JobState.PENDING


def test_the_first_plan_admits_all_in_epoch_1() -> None:
    """Epoch, base and every admission are 1; every group gets its part; the job runs."""
    drive = Drive()
    drive.ready()
    [plan] = drive.plans

    assert (plan.epoch, plan.base, plan.leader) == (1, 1, 0)
    assert {member.admission for member in plan.members} == {1}
    assert drive.all(PushPlan)[0].to == tuple((g, f"u{g}") for g in range(4))
    assert drive.state.job is JobState.RUNNING
    assert {here.state for here in drive.state.groups} == {GroupState.ACTIVE}


@pytest.mark.parametrize("seed", range(5))
def test_ranks_are_places_in_the_numeric_list(seed: int) -> None:
    """Twelve groups in any order of arrival: ascending as numbers, so 10 comes after 9 (F02)."""
    drive = Drive(Config(JOB, groups=12, replace=False, redundancy=3, micro_batches=8))
    order = list(range(12))
    random.Random(seed).shuffle(order)
    for group in order:
        drive.do(drive.up(group), drive.hello(group))

    assert drive.plan.groups == tuple(range(12))

    drive.do(*(drive.exited(g) for g in (1, 3, 4, 5, 6, 7, 8, 9)))
    if drive.end is None:
        assert drive.plan.groups == (0, 2, 10, 11)
        assert drive.plan.part_for(10, "u10").members == "0,2,10-11"


def test_a_death_before_the_first_plan_is_no_masked_loss() -> None:
    """It is started again after a pause, under the same number; the job then starts as if nothing had been."""
    drive = Drive()
    drive.ready(0, 1, 2)
    gone = drive.do(drive.up(3), AgentGone(3, "u3", "pod was evicted"))

    assert DeleteGroup(3, "u3") in gone.actions
    assert CreateGroup(3) not in gone.actions
    assert drive.do(Tick(), after=0.6).actions == (CreateGroup(3),)

    drive.uids[3] = "u3b"
    drive.ready(3)

    assert drive.plan.epoch == 1
    assert drive.plan.by_group[3].uid == "u3b"
    assert drive.state.masked == 0


def test_a_crash_loop_before_the_first_plan_ends_the_job() -> None:
    """After a few starts with growing pauses; the text says who and why."""
    drive = Drive()
    drive.ready(0, 1, 2)
    for start in range(1, 5):
        drive.uids[3] = f"u3-{start}"
        drive.do(drive.up(3), drive.exited(3, signal=11))
        drive.do(Tick(), after=10)

    assert drive.end is not None
    assert drive.end.code == ExitCode.STALLED
    assert "group 3 died 4 times before the first plan; the last time: worker killed by signal 11" in drive.end.verdict
    assert drive.all(CreateGroup).count(CreateGroup(3)) == 4


def test_what_was_ended_from_outside_is_no_crash_loop() -> None:
    """A group waits for the rest of its job, for days maybe: nodes are drained, pods evicted or deleted meanwhile."""
    drive = Drive(replace(CONFIG, start_timeout=math.inf))
    drive.ready(0, 1, 2)
    for start in range(12):
        drive.uids[3] = uid = f"u3-{start}"
        drive.do(drive.up(3))
        if start % 4 == 0:
            drive.do(
                AgentNotStarted(3, "its pod was deleted", outside=True), AgentGone(3, uid, "deleted", outside=True)
            )
        elif start % 4 == 1:
            drive.do(AgentGone(3, uid, "its node was deleted", outside=True))
        elif start % 4 == 2:
            drive.do(drive.hello(3, store=None))
            drive.do(*(drive.alive(g) for g in (0, 1, 2)), after=2.0 * drive.config.dead_after)
            drive.do(Tick(), after=1.0)
        else:
            drive.do(DrainGroup(3, "evicted", uid=uid))
        assert drive.state.groups[3].failed == 0
        drive.do(*(drive.alive(g) for g in (0, 1, 2)), Tick(), after=61.0)
    assert drive.end is None

    for start in range(4):
        drive.uids[3] = f"u3-crash-{start}"
        drive.do(drive.up(3), drive.exited(3, signal=11))
        drive.do(*(drive.alive(g) for g in (0, 1, 2)), Tick(), after=61.0)
    assert drive.end is not None
    assert "group 3 died 4 times" in drive.end.verdict


def test_a_group_that_cannot_be_started_is_tried_again() -> None:
    """The backend says why; it is not forgotten."""
    drive = Drive()
    drive.do(AgentNotStarted(0, "quota exceeded"))

    assert drive.do(Tick(), after=1).actions == (CreateGroup(0),)


def test_an_error_of_the_script_before_the_first_plan_ends_the_job() -> None:
    """The next process would end the same way."""
    drive = Drive()
    drive.ready(0, 1)
    drive.do(drive.errored(1, type="ImportError", text="no module named trainn"))

    assert drive.end is not None
    assert drive.end.code == ExitCode.USER_ERROR
    assert "ImportError: no module named trainn (group 1, step 3)" in drive.end.verdict


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"code": 3, "tail": "usage: train.py"}, "exited with code 3; its last words:\nusage: train.py"),
        ({"code": 0}, "ended before the first step: does it open a Session"),
    ],
)
def test_a_script_that_ends_before_the_first_plan_ends_the_job(how: dict[str, object], text: str) -> None:
    """No signal took it, so nobody but the script itself ended it."""
    drive = Drive()
    drive.ready(0)
    drive.do(drive.exited(0, **how))

    assert drive.end is not None
    assert drive.end.code == ExitCode.USER_ERROR
    assert text in drive.end.verdict


def test_the_start_has_a_deadline_that_says_who_is_missing() -> None:
    """Each missing group with the last that was seen of it (F16)."""
    drive = Drive()
    drive.ready(0)
    drive.do(drive.up(1), drive.hello(1, store=None))
    drive.do(drive.up(2))

    assert drive.do(Tick(), after=299).actions == ()
    drive.do(Tick(), after=2)
    assert drive.end is not None
    assert drive.end.code == ExitCode.STALLED
    assert drive.end.verdict.startswith("3 of 4 groups were not ready after 300 s: group 1: its agent runs at 10.0.0.2")
    assert "group 3: the backend has not started its agent" in drive.end.verdict


def test_a_new_incarnation_before_the_plan_replaces_the_old_one() -> None:
    """Never two entries for a group (F13); the old one is refused from then on."""
    drive = Drive()
    drive.ready(0, 1, 2)
    drive.uids[0] = "u0b"
    drive.do(drive.hello(0))
    drive.ready(3)

    assert [(m.group, m.uid) for m in drive.plan.members] == [(0, "u0b"), (1, "u1"), (2, "u2"), (3, "u3")]
