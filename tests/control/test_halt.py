"""Everybody stops after the same step: asked for, or because every group must go."""

from __future__ import annotations

import pytest

from spare.api import wire
from spare.api.exit_codes import ExitCode
from spare.control.action import CreateGroup, PushPlan
from spare.control.signal import AgentGone, Suspend, Tick
from spare.control.state import JobState
from tests.control.drive import Drive, started
from tests.control.test_leave import SERVES, ask, running, runs


def stop(drive: Drive, *groups: int, step: int = 2, saved: bool = True) -> None:
    """These (all members) stop and end."""
    names = groups or drive.plan.groups
    drive.do(*(drive.say(wire.Halted, g, step=step, saved=saved) for g in names))
    drive.do(*(drive.exited(g, code=0) for g in names))


def test_f23_all_asked_at_once_is_a_halt_and_no_wipe_out() -> None:
    """F23: the same members, one boundary plan that says so; nothing is masked, and nobody is started again."""
    drive = running(replace=True)
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
