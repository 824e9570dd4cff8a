"""Groups that are asked to go: let go at a boundary, kept where the job needs them, and whatever happens meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from spare.api import wire
from spare.api.checkpoint import Name, tag_of
from spare.api.reasons import EventReason
from spare.control.action import Announce, CreateGroup, DeleteGroup, EndJob, LetGo, PushPlan, SendDrain
from spare.control.plan import Plan
from spare.control.record import Kept, document
from spare.control.resume import resume
from spare.control.signal import AgentGone, DrainGroup, Tick
from spare.control.state import GroupState, JobState
from spare.planner import check
from tests.control.drive import CONFIG, JOB, Drive, started

SETTLE = CONFIG.settle


def running(groups: int = 4, redundancy: int = 3, **changes: Any) -> Drive:
    """A job whose members run under plan 1."""
    drive = started(groups=groups, redundancy=redundancy, **changes)
    drive.do(*(drive.say(wire.Running, g, step=0) for g in range(groups)))
    drive.do(*(drive.committed(g, 1) for g in range(groups)))
    return drive


def ask(drive: Drive, *groups: int, grace: float = 30.0, serves: str | None = None) -> None:
    """These agents got SIGTERM at one moment."""
    drive.do(*(drive.say(wire.Leave, g, grace=grace, reason="SIGTERM", serves=serves) for g in groups))
    drive.do(Tick(), after=SETTLE)


def runs(drive: Drive, *groups: int) -> None:
    """These (all members) say that they run under the newest plan."""
    drive.do(*(drive.say(wire.Running, g, step=2) for g in groups or drive.plan.groups))


def said(drive: Drive, reason: EventReason) -> list[tuple[int, ...]]:
    return [a.groups for a in drive.all(Announce) if a.reason == reason]


@pytest.mark.parametrize("released", [False, True])
def test_a_grace_that_turns_out_shorter_is_passed_on(released: bool) -> None:
    """An eviction is told first, and its grace a moment later: maybe a tenth of the pod's own. A longer one changes
    nothing."""
    drive = running()
    drive.do(DrainGroup(1, "evicted", uid="u1"))
    if released:
        drive.do(Tick(), after=SETTLE)
        assert drive.plan.groups == (0, 2, 3)
    drive.do(DrainGroup(1, "evicted", 3.0, uid="u1"))
    drive.do(DrainGroup(1, "evicted", 60.0, uid="u1"))

    assert [(a.group, a.uid, a.grace) for a in drive.all(SendDrain)] == [(1, "u1", None), (1, "u1", 3.0)]
    (leaver,) = drive.state.leavers
    assert leaver.until == drive.now + 3.0


def test_f09_a_group_that_is_asked_to_go_is_let_go_at_a_boundary() -> None:
    """F09: a boundary plan without it, nobody is lost, the leaver is told as one that asked; epoch 1 stays the base."""
    drive = running()

    ask(drive, 1)

    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (2, 1, (0, 2, 3))
    assert check(drive.plan.schedule) == ()
    [push] = [p for p in drive.all(PushPlan) if p.plan.epoch == 2]
    assert (1, "u1") in push.to
    part = drive.plan.part_for(1, "u1")
    assert (part.drained, part.admission) == (True, None)
    assert not drive.plan.part_for(0, "u0").drained
    assert (drive.state.masked, drive.state.job) == (0, JobState.DEGRADED)
    assert drive.all(LetGo) == [LetGo(1, "u1")]
    assert Plan.from_json(drive.plan.to_json()) == drive.plan


def test_a_drained_group_counts_as_neither_masked_nor_failed() -> None:
    """It says so when it has left; its end is then nobody's business."""
    drive = running()
    ask(drive, 1)

    drive.do(drive.say(wire.Left, 1, step=2))
    drive.do(AgentGone(1, "u1", "exited with code 0"))

    assert (drive.state.drained, drive.state.masked) == (1, 0)
    assert said(drive, EventReason.DRAINED) == [(1,)]
    assert said(drive, EventReason.GROUP_LOST) == []
    assert drive.state.leavers == ()
    assert drive.all(DeleteGroup) == [DeleteGroup(1, "u1")]


def test_what_a_leaver_has_saved_is_known() -> None:
    """It was the writer, and let go while its last checkpoint was written."""
    drive = running(checkpoint="/saved")
    name = str(Name(1, 1, tag_of(JOB)))
    ask(drive, 3)
    assert drive.plan.groups == (0, 1, 2)

    drive.do(drive.say(wire.Saved, 3, name=name, staged=0.1, seconds=1.0, size=10))

    assert drive.state.checkpoints == (name,)
    assert said(drive, EventReason.CHECKPOINTED) == [(3,)]


def test_f36_its_replacement_starts_before_it_has_gone() -> None:
    """F36: whatever its grace is, the number is free once the plan is out, and the newcomer is admitted later."""
    drive = running(replace=True)
    before = len(drive.all(CreateGroup))

    ask(drive, 1, grace=600.0)
    drive.do(Tick())

    assert [a.group for a in drive.all(CreateGroup)[before:]] == [1]
    drive.uids[1] = "again1"
    drive.ready(1)
    assert drive.plan.epoch == 2, "the members do not run under the plan without it yet"
    runs(drive)
    assert (drive.plan.epoch, drive.plan.by_group[1].admission) == (3, 3)


def test_a_drained_group_stays_out_where_that_is_asked_for() -> None:
    """`spare drain 1 --no-replacement`."""
    drive = running(replace=True)
    before = len(drive.all(CreateGroup))

    drive.do(DrainGroup(1, "maintenance", 20.0, again=False))
    assert drive.all(SendDrain) == [SendDrain(1, "u1", 20.0)]
    drive.do(Tick(), after=SETTLE)
    drive.do(Tick(), after=5.0)

    assert drive.plan.groups == (0, 2, 3)
    assert drive.all(CreateGroup)[before:] == []
    assert drive.state.groups[1].state is GroupState.LEFT


def test_a_group_is_asked_once() -> None:
    """The agent repeats it to whoever attaches; a shorter grace counts, a longer one does not."""
    drive = running(groups=2, redundancy=2)
    ask(drive, 1)
    drive.do(drive.say(wire.Leave, 1, grace=5.0, reason="SIGTERM"))
    drive.do(drive.say(wire.Leave, 1, grace=90.0, reason="SIGTERM"))

    assert said(drive, EventReason.LEAVING) == [(1,)]
    assert drive.state.leavers[0].until == drive.now + 5.0


def test_who_is_no_member_cannot_ask() -> None:
    """An unknown incarnation, and a group that has not been admitted."""
    drive = running()
    drive.uids[1] = "stranger"
    drive.do(drive.say(wire.Leave, 1, grace=3.0, reason="SIGTERM"))

    assert drive.state.leavers == ()


@pytest.mark.parametrize(("groups", "redundancy"), [(2, 2), (4, 1)])
def test_a_group_stays_while_the_job_needs_it(groups: int, redundancy: int) -> None:
    """Two others must have the state, and every shard a host."""
    drive = running(groups=groups, redundancy=redundancy)

    ask(drive, 1)

    assert drive.plan.epoch == 1
    assert drive.decisions[-1].wake > drive.now, "it is not asked again and again meanwhile"


def test_a_joiner_that_still_loads_is_nobody_to_rely_on() -> None:
    """Three members, one of them joining: none of the other two is let go until it has the state."""
    drive = running(groups=3, redundancy=3, replace=True)
    drive.do(drive.exited(2))
    runs(drive, 0, 1)
    drive.do(*(drive.committed(g, 2) for g in (0, 1)))
    drive.do(Tick(), after=1.0)
    drive.uids[2] = "again2"
    drive.ready(2)
    runs(drive)
    assert drive.plan.groups == (0, 1, 2)

    ask(drive, 0)
    assert drive.plan.epoch == 3
    [leaving] = [a for a in drive.all(Announce) if a.reason == EventReason.LEAVING]
    assert "stays that long if need be: 1 other has the training state, of 2 at least" in leaving.text
    drive.do(drive.committed(2, 3))
    after = drive.plan
    assert (after.epoch, after.groups) == (4, (1, 2))


def test_two_that_are_asked_at_once_make_one_plan() -> None:
    """A node with two groups is emptied."""
    drive = running(groups=5, redundancy=4)

    ask(drive, 1, 3)

    assert (drive.plan.epoch, drive.plan.groups) == (2, (0, 2, 4))


def test_of_too_many_the_first_to_be_killed_go() -> None:
    """Four of five: two must stay, so the three with the shorter graces go, the fourth waits."""
    drive = running(groups=5, redundancy=4)
    drive.do(
        *(
            drive.say(wire.Leave, g, grace=grace, reason="SIGTERM")
            for g, grace in ((0, 40.0), (1, 20.0), (2, 30.0), (3, 10.0))
        )
    )
    drive.do(Tick(), after=SETTLE)

    assert drive.plan.groups == (0, 4)
    runs(drive)
    assert drive.plan.epoch == 2


def test_nobody_is_let_go_while_a_failure_is_open() -> None:
    """Only once every member runs under the plan that answered it."""
    drive = running(groups=5, redundancy=4)
    drive.do(drive.exited(4))

    ask(drive, 1)
    assert drive.plan.epoch == 2
    runs(drive)

    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (3, 2, (0, 2, 3))


def test_a_leaver_that_dies_before_the_boundary_is_a_loss() -> None:
    """What it held is lost: an urgent plan with the same members, and it counts as masked."""
    drive = running()
    ask(drive, 1)

    drive.do(drive.exited(1))

    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (3, 3, (0, 2, 3))
    assert (drive.state.masked, drive.state.drained) == (1, 0)


def test_a_leaver_whose_agent_ends_without_a_word_is_a_loss_after_a_moment() -> None:
    """Its last words may be on their way, so not at once; but a member's report decides it."""
    drive = running()
    ask(drive, 1)
    drive.do(AgentGone(1, "u1", "killed"))
    assert drive.plan.epoch == 2

    drive.do(drive.suspect(0, 1, epoch=1))

    assert (drive.plan.epoch, drive.plan.base) == (3, 3)
    assert drive.state.masked == 1


def test_a_leaver_that_ends_without_a_word_after_the_boundary_has_left() -> None:
    """The others run under the plan without it."""
    drive = running()
    ask(drive, 1)
    runs(drive)

    drive.do(AgentGone(1, "u1", "exited"))

    assert (drive.plan.epoch, drive.state.drained, drive.state.masked) == (2, 1, 0)


def test_a_leaver_that_falls_silent_before_the_boundary_is_a_loss() -> None:
    """A machine that is gone says nothing at all."""
    drive = running()
    ask(drive, 1)

    for _ in range(12):
        drive.do(*(drive.alive(g) for g in (0, 2, 3)), Tick(), after=0.5)

    assert drive.plan.base > 2
    assert drive.state.masked == 1


def test_a_member_that_dies_before_the_boundary_is_answered_as_ever() -> None:
    """The leaver hears of the urgent plan as well, which it is not in; it still left because it was asked to."""
    drive = running(groups=5, redundancy=4)
    ask(drive, 1)

    drive.do(drive.exited(3))

    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (3, 3, (0, 2, 4))
    [push] = [p for p in drive.all(PushPlan) if p.plan.epoch == 3]
    assert (1, "u1") in push.to
    assert drive.plan.part_for(1, "u1").drained
    drive.do(drive.say(wire.Left, 1, step=1))
    assert (drive.state.masked, drive.state.drained) == (1, 1)


def test_a_leaver_s_suspicion_counts_for_nothing() -> None:
    """It is no member of the newest plan; if the others are hit they say so."""
    drive = running()
    ask(drive, 1)

    drive.do(drive.suspect(1, 0, epoch=1))

    assert drive.state.suspicions == ()
    assert drive.state.refused == 0


def test_a_leaver_whose_line_broke_is_told_again() -> None:
    """It may not have heard that it may go."""
    drive = running()
    ask(drive, 1)

    drive.do(drive.hello(1, epoch=1))

    assert drive.all(PushPlan)[-1] == PushPlan(drive.plan, ((1, "u1"),))


def test_a_leaver_that_does_not_go_is_ended_some_time_after_its_grace() -> None:
    """It said that it left, and hangs."""
    drive = running()
    ask(drive, 1, grace=10.0)
    runs(drive)
    drive.do(drive.say(wire.Left, 1, step=2))

    for _ in range(40):
        drive.do(*(drive.alive(g) for g in (0, 2, 3)), Tick(), after=0.5)

    assert DeleteGroup(1, "u1") in drive.all(DeleteGroup)
    assert drive.state.masked == 0


def test_the_coordinator_comes_back_while_a_group_leaves() -> None:
    """What was let go is not killed for it, and its last words count."""
    drive = running()
    ask(drive, 1)
    text = document(drive.plan, Kept.of(drive.state))

    again = resume(drive.config, text, drive.now)
    back = Drive(drive.config)
    back.decisions, back.now = [again], drive.now
    assert DeleteGroup(1, "u1") not in again.actions
    back.do(back.say(wire.Left, 1, step=2))

    assert (back.state.drained, back.state.masked) == (1, 0)
    assert not any(isinstance(a, EndJob) for a in back.decisions[-1].actions)


def test_a_group_that_has_left_is_counted_once_whoever_comes_back() -> None:
    """The plan still names it until the next one: a coordinator that comes back counted it, and told of it, again."""
    drive = running()
    ask(drive, 1)
    runs(drive)
    drive.do(drive.say(wire.Left, 1, step=2))
    assert drive.state.drained == 1
    for later in (0.0, 120.0):  # before it is forgotten, and after
        for _ in range(int(2 * later)):
            drive.do(*(drive.alive(g) for g in (0, 2, 3)), Tick(), after=0.5)
        back = Drive(drive.config)
        text = document(drive.plan, Kept.of(drive.state))
        back.decisions, back.now = [resume(drive.config, text, drive.now)], drive.now
        for _ in range(100):
            back.do(*(back.alive(g) for g in (0, 2, 3)), Tick(), after=0.5)

        assert (back.state.drained, back.state.masked) == (1, 0)
        assert not [a for a in back.all(Announce) if a.reason == EventReason.DRAINED]
        assert DeleteGroup(1, "u1") in back.all(DeleteGroup), "what hangs of it is ended all the same"
