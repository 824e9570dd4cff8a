"""Everybody stops after the same step: asked for, or because every group must go."""

from __future__ import annotations

import pytest

from spare.api import wire
from spare.api.checkpoint import Name, tag_of
from spare.api.exit_codes import ExitCode
from spare.control.action import CreateGroup, PushPlan
from spare.control.record import Kept, document
from spare.control.resume import going_on, resume
from spare.control.signal import AgentGone, Suspend, Tick
from spare.control.state import JobState
from tests.control.drive import CONFIG, Drive, started
from tests.control.test_hand_on import SERVES
from tests.control.test_leave import ask, running, runs
from tests.control.test_resume import back

SAVED = str(Name(1, 1, tag_of(CONFIG.job)))


def stop(drive: Drive, *groups: int, step: int = 2, saved: bool = True) -> None:
    """These (all members) stop and end."""
    names = groups or drive.plan.groups
    drive.do(*(drive.say(wire.Halted, g, step=step, saved=saved) for g in names))
    drive.do(*(drive.exited(g, code=0) for g in names))


def test_f23_all_asked_at_once_is_a_halt_and_no_wipe_out() -> None:
    """F23: the same members, one boundary plan that says so; nothing is masked, and nobody is started again."""
    drive = running(replace=True, checkpoint="saved")
    before = len(drive.all(CreateGroup))

    ask(drive, 0, 1, 2, 3)

    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (2, 1, (0, 1, 2, 3))
    assert all(drive.plan.part_for(g, f"u{g}").halt for g in range(4))
    stop(drive)
    assert drive.end is not None
    assert (drive.end.code, drive.state.job) == (ExitCode.SIGTERM, JobState.SUSPENDED)
    assert "goes on from step 2" in drive.end.verdict
    assert (drive.state.masked, drive.state.restarts) == (0, 0)
    assert drive.all(CreateGroup)[before:] == []


def test_without_a_checkpoint_all_that_are_asked_stay_until_others_have_the_state() -> None:
    """A stop would lose every step: two hand their places to replacements, then the other two do."""
    drive = running(replace=True)
    ask(drive, 0, 1, 2, 3)
    assert (drive.plan.halt, drive.plan.groups) == (False, (2, 3))
    drive.do(Tick(), after=1.0)
    for leaving, staying in (((0, 1), (2, 3)), ((2, 3), (0, 1))):
        runs(drive, *staying)
        drive.do(*(drive.say(wire.Left, g, step=2) for g in leaving))
        drive.uids |= {g: f"again{g}" for g in leaving}
        drive.ready(*leaving)
        assert drive.plan.groups == (0, 1, 2, 3)
        runs(drive)
        drive.do(*(drive.committed(g, 3 + leaving[0]) for g in drive.plan.groups))
        drive.do(Tick(), after=1.0)

    assert drive.end is None
    assert drive.state.halt is None
    assert (drive.plan.groups, drive.state.masked) == ((0, 1, 2, 3), 0)
    assert {m.uid for m in drive.plan.members} == {f"again{g}" for g in range(4)}


def test_without_a_checkpoint_all_stop_when_they_cannot_wait_any_longer() -> None:
    """Nobody has come: better than a wipe-out, from which such a job cannot begin again."""
    drive = running(replace=True)
    ask(drive, 0, 1, 2, 3)
    runs(drive, 2, 3)
    ask(drive, 2, grace=10.0, serves=SERVES)

    assert drive.plan.halt
    assert drive.plan.groups == (2, 3)


def test_f23_the_last_ones_are_asked_a_little_later() -> None:
    """The first was let go by then; the others stop."""
    drive = running()
    ask(drive, 0)
    ask(drive, 1, 2, 3)
    assert not drive.plan.halt

    runs(drive)

    assert (drive.plan.halt, drive.plan.groups) == (True, (1, 2, 3))


def test_suspend_stops_all() -> None:
    """And says that nothing was saved where there is no place for it."""
    drive = running()

    drive.do(Suspend("SIGTERM received", 30.0))
    assert drive.plan.halt
    stop(drive, saved=False)

    assert drive.end is not None
    assert "nothing was saved" in drive.end.verdict


def test_a_step_that_could_not_be_saved_is_not_said_to_have_no_place() -> None:
    """A full disk, or a save that took too long: what there is instead is named."""
    drive = running(checkpoint="/saved")
    drive.do(Suspend("SIGTERM received", 30.0))
    stop(drive, saved=False)

    assert drive.end is not None
    assert "that step could not be saved by all" in drive.end.verdict


def test_a_job_that_has_not_begun_is_suspended_at_once() -> None:
    """There is nothing to finish."""
    drive = Drive()

    drive.do(Suspend("SIGTERM received", 30.0))

    assert drive.state.job is JobState.SUSPENDED


def test_it_ends_only_when_all_have_ended() -> None:
    """A worker that still closes its files is not cut off."""
    drive = running()
    drive.do(Suspend("SIGTERM received", 30.0))

    drive.do(*(drive.say(wire.Halted, g, step=2, saved=True) for g in range(4)))
    drive.do(*(drive.exited(g, code=0) for g in (0, 1, 2)))
    assert drive.end is None
    drive.do(AgentGone(3, "u3", "the agent exited with code 0"))

    assert drive.end is not None


def test_a_halt_that_is_not_reached_ends_at_its_deadline() -> None:
    """It says who had not stopped."""
    drive = running()
    drive.do(Suspend("SIGTERM received", 10.0))
    stop(drive, 0)

    for _ in range(22):
        drive.do(*(drive.alive(g) for g in (1, 2, 3)), Tick(), after=0.5)

    assert drive.end is not None
    assert drive.end.code == ExitCode.STALLED
    assert "groups 1-3 had not stopped" in drive.end.verdict


def test_a_death_before_the_halt_took_effect_is_masked_and_the_halt_made_again() -> None:
    """The urgent plan is none that stops: its step must be finished first."""
    drive = running()
    drive.do(Suspend("SIGTERM received", 30.0))

    drive.do(drive.exited(2))
    assert (drive.plan.epoch, drive.plan.base, drive.plan.halt) == (3, 3, False)
    runs(drive)

    assert (drive.plan.epoch, drive.plan.base, drive.plan.halt) == (4, 3, True)
    stop(drive)
    assert drive.state.job is JobState.SUSPENDED
    assert drive.state.masked == 1


def test_one_that_stopped_before_it_knew_an_urgent_plan_is_not_waited_for() -> None:
    """Found by the model: the plan names it, and the others met nobody until the time for stopping was over."""
    drive = running()
    drive.do(Suspend("SIGTERM received", 30.0))
    drive.do(drive.exited(2))
    assert (drive.plan.epoch, drive.plan.groups, drive.plan.halt) == (3, (0, 1, 3), False)

    stop(drive, 0)
    drive.hear(nonce=drive.state.probes)
    drive.do(Tick(), after=drive.config.probe_wait)

    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (4, 4, (1, 3))
    assert drive.plan.halt
    stop(drive, 1, 3)
    assert drive.state.job is JobState.SUSPENDED


def test_one_that_failed_in_the_last_barrier_stops_where_the_others_have() -> None:
    """Group 0 passed it and is gone; group 2 died; 1 and 3 can commit that step, and must not begin another."""
    drive = running()
    drive.do(Suspend("SIGTERM received", 30.0))
    stop(drive, 0)

    drive.do(drive.exited(2), drive.suspect(1, epoch=1), drive.suspect(3, epoch=1))

    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (3, 3, (1, 3))
    assert drive.plan.halt
    stop(drive, 1, 3)
    assert drive.state.job is JobState.SUSPENDED


def test_groups_that_stopped_after_different_steps_are_a_defect() -> None:
    """All or none."""
    drive = running()
    drive.do(Suspend("SIGTERM received", 30.0))
    stop(drive, 0, 1, step=2)
    stop(drive, 2, 3, step=3)

    assert drive.end is not None
    assert drive.end.code == ExitCode.INEXACT


def test_the_last_host_of_a_shard_that_must_go_stops_the_job() -> None:
    """Better than to lose it, and all that was done, to a wipe-out."""
    drive = running(groups=4, redundancy=1)
    ask(drive, 1)
    assert drive.plan.epoch == 1

    ask(drive, 1, grace=10.0, serves=SERVES)

    assert drive.plan.halt
    assert drive.plan.groups == (0, 1, 2, 3)


@pytest.mark.parametrize("redundancy", [2, 3])
def test_nobody_is_admitted_or_let_go_any_more(redundancy: int) -> None:
    """The halt is what is left to do."""
    drive = running(redundancy=redundancy, replace=True)
    drive.do(Suspend("SIGTERM received", 30.0))
    ask(drive, 1)
    runs(drive)

    assert [push.plan.epoch for push in drive.all(PushPlan)] == [1, 2]


def test_a_job_whose_members_are_done_ends_as_complete() -> None:
    """There is no step in flight that could be finished."""
    drive = started()
    drive.do(*(drive.say(wire.Running, g, step=0) for g in range(4)))
    drive.do(drive.done(0))

    drive.do(Suspend("SIGTERM received", 30.0))
    drive.finish()
    drive.do(*(drive.exited(g, code=0) for g in range(4)))

    assert drive.state.job is JobState.COMPLETE


def test_a_group_that_stops_of_its_own_accord_has_not_halted() -> None:
    """No plan says so: its word is refused, and it stays a member."""
    drive = running()

    drive.do(drive.say(wire.Halted, 1, step=2, saved=True))

    assert drive.state.live == (0, 1, 2, 3)
    assert drive.state.refused == 1


def test_a_start_that_is_due_does_not_wake_a_job_that_halts() -> None:
    """Nobody is started again while it stops: to look again at once would go on for ever."""
    drive = running(replace=True)
    drive.do(drive.exited(2))
    drive.do(*(drive.say(wire.Running, g, step=2) for g in (0, 1, 3)))

    drive.do(Suspend("SIGTERM received", 30.0))
    drive.do(Tick(), after=5.0)

    assert drive.state.groups[2].retry is not None
    assert drive.decisions[-1].wake > drive.now


@pytest.mark.parametrize("in_order", [True, None])
def test_f23_who_stopped_while_no_coordinator_lived_is_not_lost(in_order: bool | None) -> None:
    """An operator goes with the pods of its node: theirs have ended with 0, or are gone, when another comes."""
    drive = running(replace=True, checkpoint="/saved")
    drive.do(Suspend("a node pool is drained", 30.0))
    assert drive.plan.halt

    again = back(drive)
    again.do(*(AgentGone(g, f"u{g}", "its pod is over", in_order=in_order) for g in range(4)), after=20.0)

    assert again.state.job is JobState.SUSPENDED
    assert again.end is not None
    assert "goes on from the newest complete checkpoint" in again.end.verdict
    assert (again.state.masked, again.state.restarts) == (0, 0)
    assert not again.all(CreateGroup)


def test_f23_some_are_heard_by_the_coordinator_that_comes_back() -> None:
    """What they say holds for all; nobody is waited for."""
    drive = running(replace=True)
    drive.do(Suspend("a node pool is drained", 30.0))

    again = back(drive)
    again.do(AgentGone(0, "u0", "its pod is over", in_order=True))
    again.do(*(again.up(g) for g in (1, 2, 3)), *(again.hello(g, epoch=2, phase="stopped") for g in (1, 2, 3)))
    stop(again, 1, 2, 3, step=7)

    assert again.state.job is JobState.SUSPENDED
    assert again.end is not None
    assert "suspended after step 7" in again.end.verdict
    assert again.state.masked == 0


def test_who_died_while_no_coordinator_lived_is_lost_in_a_halt_as_well() -> None:
    """Killed is not stopped: the others finish without it, and stop."""
    drive = running(replace=True)
    drive.do(Suspend("a node pool is drained", 30.0))

    again = back(drive)
    again.do(AgentGone(0, "u0", "its pod was killed"))
    again.do(*(again.up(g) for g in (1, 2, 3)), *(again.hello(g, epoch=2) for g in (1, 2, 3)))
    assert (again.plan.epoch, again.plan.groups, again.plan.halt) == (3, (1, 2, 3), False)
    runs(again)
    assert (again.plan.epoch, again.plan.halt) == (4, True)
    stop(again)

    assert (again.state.job, again.state.masked) == (JobState.SUSPENDED, 1)


def test_a_job_that_goes_on_after_its_halt_is_not_halted_again() -> None:
    """The plan that stopped all is the newest one still, while all groups start anew."""
    drive = running(replace=True)
    drive.do(Suspend("runPolicy.suspend is set", 30.0))
    stop(drive)
    text = going_on(document(drive.plan, Kept.of(drive.state)))

    decision = resume(drive.config, text, drive.now + 1.0)

    assert (decision.state.halt, decision.state.job) == (None, JobState.WAITING)


def test_a_job_that_waits_for_groups_stops_with_those_that_are_left() -> None:
    """Nobody would come while it stops: they finish the step in flight, and it can go on later."""
    drive = running(replace=True, min_groups=4)
    drive.do(drive.exited(2))
    assert drive.state.job.value == "waiting"

    drive.do(Suspend("runPolicy.suspend is set", 600.0))
    assert (drive.plan.epoch, drive.plan.groups, drive.plan.halt) == (2, (0, 1, 3), False)
    runs(drive)
    assert drive.plan.halt
    stop(drive)

    assert drive.state.job is JobState.SUSPENDED


def test_a_loss_in_a_halt_does_not_wait_for_others_to_come() -> None:
    """Also where fewer than minGroups are left."""
    drive = running(replace=True, min_groups=4)
    drive.do(Suspend("runPolicy.suspend is set", 600.0))

    drive.do(drive.exited(2))
    runs(drive)
    stop(drive)

    assert drive.state.job is JobState.SUSPENDED


def test_a_step_that_could_not_be_saved_is_said() -> None:
    """A full disk is no missing path."""
    drive = running(checkpoint="/saved")
    drive.do(Suspend("SIGTERM received", 30.0))
    stop(drive, saved=False)

    assert drive.end is not None
    assert "that step could not be saved by all: goes on from the newest complete checkpoint" in drive.end.verdict


@pytest.mark.parametrize("killed", [False, True])
def test_f23_a_step_that_is_longer_than_the_grace_is_begun_again_from_the_checkpoint(killed: bool) -> None:
    """A node pool drains, and the time is over, or all are killed: neither a failure nor a wipe-out, whatever onWipeOut
    says. Without a place to go on from there is nothing else to do."""
    drive = running(replace=True, checkpoint="/saved")
    drive.do(drive.say(wire.Saved, 3, name=SAVED, seconds=1.0, staged=0.1, size=10))
    ask(drive, 0, 1, 2, 3, grace=10.0)
    assert drive.plan.halt

    if killed:
        drive.do(*(AgentGone(g, f"u{g}", "its pod was killed") for g in range(4)), after=9.0)
    for _ in range(0 if killed else 22):
        drive.do(*(drive.alive(g) for g in range(4)), Tick(), after=0.5)

    assert drive.state.job is JobState.SUSPENDED
    assert drive.end is not None
    assert drive.end.verdict.endswith(f"goes on from the newest complete checkpoint; {SAVED} is known")
    assert (drive.state.masked, drive.state.restarts) == (0, 0)
