"""A coordinator that comes back: what was written down and what agents say make the same job again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spare.api import wire
from spare.api.exit_codes import ExitCode
from spare.control.action import Connect, CreateGroup, DeleteGroup, EndJob, PushPlan, SendFinish
from spare.control.record import Kept, document, read_document
from spare.control.resume import going_on, resume
from spare.control.signal import AgentGone, AgentUp, Tick
from spare.control.state import Group, GroupState, JobState
from tests.control.drive import CONFIG, JOB, Drive, started


def back(drive: Drive, after: float = 1.0) -> Drive:
    """Another coordinator, that knows the record only."""
    state = drive.state
    text = document(state.plan, Kept.of(state)) if state.plan else None
    again = Drive(drive.config, drive.now + after)
    again.uids = dict(drive.uids)
    again.decisions = [resume(drive.config, text, again.now)]
    return again


def attach(drive: Drive, *groups: int, **fields: Any) -> None:
    """The backend tells of these agents, and each says hello."""
    epoch = drive.plan.epoch
    drive.do(*(drive.up(g) for g in groups))
    drive.do(*(drive.hello(g, **{"epoch": epoch, "phase": "compute", **fields}) for g in groups))
    drive.do(*(drive.say(wire.Running, g, step=fields.get("step", 0)) for g in groups))


def test_a_loss_before_anybody_said_hello_waits_for_a_place_to_meet() -> None:
    """The record holds the leader's stores only; where the others can be met they say themselves."""
    drive = started()
    again = back(drive)
    again.do(AgentGone(0, "u0", "node lost"))
    assert again.plan.epoch == 1

    attach(again, 1, 2, 3)
    assert (again.plan.epoch, again.plan.groups, again.plan.leader) == (2, (1, 2, 3), 1)
    assert again.plan.stores == ("10.0.0.2:29500",)


def test_nothing_recorded_begins_the_job() -> None:
    """Also when some groups were created before (F27): creating one that is there changes nothing."""
    decision = resume(CONFIG, None, 5.0)

    assert [a.group for a in decision.actions if isinstance(a, CreateGroup)] == [0, 1, 2, 3]


def test_the_newest_of_a_group_s_former_incarnations_are_kept() -> None:
    """By age and not by name: one that ended long ago is not heard of again, the last one may be."""
    here = Group(1, past=("u9", "u8", "u7", "u6"))
    aged = replace(here, past=here.outlived("u5"))
    state = started().state
    groups = tuple(aged if each.group == 1 else each for each in state.groups)

    assert dict(Kept.of(replace(state, groups=groups)).past) == {1: ("u8", "u7", "u6", "u5")}
    assert aged.outlived("u7") == ("u9", "u8", "u6", "u5", "u7")
    assert aged.outlived("") == aged.past


def test_a_suspended_job_knows_those_whom_it_let_go_though_they_are_named_before_older_ones() -> None:
    """Their group begins again by new ones, and nothing that they say counts."""
    drive = started()
    kept = replace(Kept.of(drive.state), past=((1, ("x1", "x2", "x3", "x4")),), exit_code=0)
    state = resume(drive.config, going_on(document(drive.plan, kept)), 5.0).state

    assert dict(Kept.of(state).past)[1] == ("x2", "x3", "x4", "u1")


def test_a_coordinator_that_comes_back_changes_nothing() -> None:
    """F29: same epoch and digest, nothing pushed, created or deleted; the step is right as soon as all have said it."""
    drive = started()
    drive.do(*(drive.committed(g, 7) for g in range(4)))

    again = back(drive)
    attach(again, 0, 1, 2, 3, step=9)
    for _ in range(20):
        again.now += 0.5
        again.hear(step=9)

    assert (again.plan.epoch, again.plan.digest) == (drive.plan.epoch, drive.plan.digest)
    assert not again.all(PushPlan) + again.all(CreateGroup) + again.all(DeleteGroup)
    assert len(again.all(Connect)) == 4
    assert (again.state.job, again.state.step) == (JobState.RUNNING, 9)
    assert {here.step for here in again.state.groups} == {9}


def test_who_missed_the_last_plan_is_told_it() -> None:
    """The coordinator died between writing and telling."""
    drive = started()
    drive.do(drive.exited(2), Tick())
    again = back(drive)

    attach(again, 0, 1, 3, epoch=1)

    assert again.plan.epoch == 2
    assert [push.to for push in again.all(PushPlan)] == [((g, f"u{g}"),) for g in (0, 1, 3)]


def test_members_that_are_not_heard_are_lost() -> None:
    """Whoever died meanwhile is a failure like any other: one plan, one loss, after dead_after."""
    again = back(started(), after=1.0)
    attach(again, 0, 1, 3)
    while again.now < 101.0 + again.config.dead_after + 1.0:
        again.now += 0.5
        again.hear(0, 1, 3)

    assert (again.plan.epoch, again.plan.groups) == (2, (0, 1, 3))
    assert again.state.masked == 1
    assert "silent" in again.state.groups[2].reason


def test_a_failure_that_nobody_answered_is_answered() -> None:
    """Agents say their suspicion again to whoever attaches."""
    again = back(started())
    attach(again, 0, 1, 3)
    again.do(again.suspect(0, 2), again.suspect(1, 2), AgentGone(2, "u2", "pod deleted"))

    assert (again.plan.epoch, again.plan.groups, again.state.masked) == (2, (0, 1, 3), 1)


def test_a_loss_is_counted_once() -> None:
    """F37: masked stays, the epoch stays, the dying incarnation is deleted again and adopted by nothing."""
    drive = started(replace=True)
    drive.do(drive.exited(2), Tick())
    again = back(drive)
    attach(again, 0, 1, 3)

    again.do(AgentUp(2, "u2", "10.0.0.3:7000"))
    again.do(again.hello(2))

    assert (again.state.masked, again.plan.epoch) == (1, 2)
    assert again.all(DeleteGroup) == [DeleteGroup(2, "u2")]
    assert again.state.groups[2].state is GroupState.LOST


def test_a_replacement_that_was_started_already_is_no_second_one() -> None:
    """The backend tells of it before its turn would come; it joins as any other."""
    drive = started(replace=True)
    drive.do(drive.exited(2), Tick())
    again = back(drive)
    attach(again, 0, 1, 3)
    again.uids[2] = "fresh"
    again.do(again.up(2))
    again.do(again.hello(2, epoch=0), after=60.0)
    again.hear(0, 1, 3)

    assert not again.all(CreateGroup)
    assert (again.plan.epoch, again.plan.groups) == (3, (0, 1, 2, 3))
    assert again.plan.by_group[2].uid == "fresh"


def test_a_replacement_that_was_not_started_is() -> None:
    """After the pause that its starts so far have earned."""
    drive = started(replace=True)
    drive.do(drive.exited(2), Tick())
    again = back(drive)
    attach(again, 0, 1, 3)

    again.hear(0, 1, 3)
    assert not again.all(CreateGroup)
    again.now += again.config.backoff(1)
    again.hear(0, 1, 3)

    assert again.all(CreateGroup) == [CreateGroup(2)]


def test_a_joiner_is_still_no_host() -> None:
    """Who may not have loaded yet does not save the job from a wipe-out."""
    drive = started(replace=True)
    drive.do(drive.exited(2), Tick())
    drive.do(*(drive.say(wire.Running, g, step=0) for g in (0, 1, 3)), *(drive.committed(g, 1) for g in (0, 1, 3)))
    drive.uids[2] = "fresh"
    drive.do(Tick(), after=1.0)
    drive.do(drive.up(2))
    drive.do(drive.hello(2, epoch=0))
    assert drive.plan.epoch == 3

    again = back(drive)

    assert again.state.whole == (0, 1, 3)
    assert again.state.live == (0, 1, 2, 3)
    assert again.state.job is JobState.DEGRADED


def test_the_last_steps_are_waited_for() -> None:
    """All had committed the last step: nobody is lost any more, whoever is heard or not."""
    drive = started()
    drive.finish()
    again = back(drive)
    attach(again, 0, 1, step=10, phase="done")
    assert {a.groups for a in again.all(SendFinish)} == {(0,), (1,)}
    again.do(again.exited(0, code=0), again.exited(1, code=0))
    again.do(Tick(), after=again.config.dead_after + 0.1)

    assert again.end == EndJob(ExitCode.COMPLETE, "complete: 10 steps on 4 groups, 0 losses masked")
    assert again.state.digest == "d"


@pytest.mark.parametrize("well", [True, False])
def test_the_end_is_final(well: bool) -> None:
    """F34: complete and failed alike; nothing is created, whatever comes."""
    drive = started()
    if well:
        drive.finish()
        drive.do(*(drive.exited(g, code=0) for g in range(4)))
    else:
        drive.do(drive.errored(1))
    assert drive.end is not None

    again = back(drive)
    again.do(*(again.up(g) for g in range(4)), Tick(), after=100.0)

    assert again.state.exit_code == drive.end.code
    assert again.state.verdict == drive.end.verdict
    assert not any(decision.actions for decision in again.decisions)


def test_starts_are_counted_on() -> None:
    """A group that cannot start does not get its first, short pause again by the coordinator's death."""
    drive = started(replace=True)
    drive.do(drive.exited(2), Tick())
    for _ in range(3):
        drive.now += 100.0
        drive.hear()
        drive.uids[2] += "x"
        drive.do(drive.up(2), AgentGone(2, drive.uids[2], "crashed"))

    again = back(drive)

    assert again.state.groups[2].attempts == drive.state.groups[2].attempts == 4


def test_a_record_of_another_job_is_refused() -> None:
    """By name; so are a damaged one, and one for another number of groups."""
    drive = started()
    text = document(drive.plan, Kept.of(drive.state))

    with pytest.raises(ValueError, match="is of job 'job/1'; this is 'job/2'"):
        resume(replace(CONFIG, job="job/2"), text, 0.0)
    with pytest.raises(ValueError, match="is for 4 groups; job 'job/1' has 5"):
        resume(replace(CONFIG, groups=5), text, 0.0)
    with pytest.raises(ValueError, match="digest"):
        resume(CONFIG, text.replace('"epoch":1', '"epoch":7'), 0.0)
    with pytest.raises(ValueError, match="what is kept beside it cannot be read"):
        resume(CONFIG, text.replace('"masked":0', '"masqued":0'), 0.0)
    assert drive.plan.job == JOB


@given(
    st.builds(
        Kept,
        masked=st.integers(0, 9),
        joining=st.lists(st.integers(0, 3), unique=True).map(lambda g: tuple(sorted(g))),
        attempts=st.just(((1, 4),)),
        past=st.just(((0, ("a", "b")),)),
        finishing=st.booleans(),
        digest=st.none() | st.just("d"),
        verdict=st.text(),
    )
)
def test_what_is_kept_is_read_back(kept: Kept) -> None:
    """Plan and facts alike."""
    plan = started().plan

    assert read_document(document(plan, kept)) == (plan, kept)
