"""After a wipe-out all groups begin again from a checkpoint: once, together, and not for ever (F20, F21)."""

from __future__ import annotations

from dataclasses import replace

from spare.api import wire
from spare.api.checkpoint import Name
from spare.api.exit_codes import ExitCode
from spare.api.reasons import EventReason
from spare.api.spec import OnWipeOut
from spare.control.action import Announce, CreateGroup, DeleteGroup, SendRenew, SendSave
from spare.control.record import Kept, document
from spare.control.resume import resume
from spare.control.signal import Tick
from spare.control.state import GroupState, JobState
from spare.planner import check
from tests.control.drive import CONFIG, Drive, started

RESTART = replace(CONFIG, redundancy=2, on_wipe_out=OnWipeOut.RESTART, checkpoint="ck", backoff_limit=2, replace=True)
OLD, NEW = (str(Name(1, step, "0" * 8)) for step in (10, 20))


def saved(drive: Drive, group: int, name: str) -> object:
    """The group's report of a complete checkpoint."""
    return drive.say(wire.Saved, group, name=name, staged=0.01, seconds=2.0, size=1000)


def running(drive: Drive, step: int) -> None:
    """All members run, and commit a step."""
    groups = drive.plan.groups
    drive.do(*(drive.running(g, step=step - 1) for g in groups))
    drive.do(*(drive.committed(g, step) for g in groups))


def wiped_out(drive: Drive) -> tuple[int, ...]:
    """Lose all hosts of shard 0 at one moment; who they were."""
    hosts = drive.plan.schedule.placement.hosts(0)
    drive.do(*(drive.exited(g) for g in hosts))
    return hosts


def come_up(drive: Drive, *groups: int, named: tuple[str, ...] = ()) -> None:
    """New incarnations say hello, with the checkpoints that they have found."""
    for group in groups:
        drive.uids[group] += "+"
        drive.do(drive.up(group))
        drive.do(drive.hello(group, epoch=0, checkpoints=named))


def trained() -> Drive:
    """A job at step 21 with two checkpoints."""
    drive = started(RESTART)
    running(drive, 21)
    drive.do(saved(drive, 3, OLD), saved(drive, 3, NEW))  # type: ignore[arg-type]
    return drive


def test_a_wipe_out_starts_all_groups_again() -> None:
    """The dead get new agents, the survivors new workers; no plan until all are ready."""
    drive = trained()
    hosts = wiped_out(drive)
    left = tuple(g for g in range(4) if g not in hosts)

    assert drive.end is None
    assert (drive.state.job, drive.state.restarts, drive.state.masked) == (JobState.WAITING, 1, 0)
    assert [renew.groups for renew in drive.all(SendRenew)] == [left]
    assert {delete.group for delete in drive.all(DeleteGroup)} == set(hosts)
    assert drive.plan.epoch == 1
    told = [a for a in drive.all(Announce) if a.reason == EventReason.WIPE_OUT]
    assert f"begin again from checkpoint {NEW}: restart 1 of 2" in told[0].text

    drive.do(Tick(), after=2.0)
    assert {a.group for a in drive.all(CreateGroup)[4:]} == set(hosts)


def test_the_restart_plan_names_one_checkpoint_for_all() -> None:
    """Its epoch is the origin of what follows, everybody is admitted by it, and the job's step goes back."""
    drive = trained()
    hosts = wiped_out(drive)
    drive.do(Tick(), after=2.0)
    come_up(drive, *hosts)
    drive.do(*(drive.hello(g, epoch=0, store=f"10.9.9.9:{4000 + g}") for g in range(4) if g not in hosts))

    plan = drive.plan
    assert (plan.epoch, plan.base, plan.origin, plan.checkpoint) == (2, 2, 2, NEW)
    assert plan.groups == (0, 1, 2, 3)
    assert {m.admission for m in plan.members} == {2}
    assert check(plan.schedule) == ()
    assert (drive.state.job, drive.state.step) == (JobState.RUNNING, 20)
    assert [a.reason for a in drive.all(Announce)].count(EventReason.RESTARTED) == 1


def test_f20_starts_spread_over_120_s_give_one_plan() -> None:
    """F20: however far apart they come up: one plan, restarts + 1, no second restart; the newest complete one counts,
    though only the last to come has seen it."""
    drive = trained()
    hosts = wiped_out(drive)
    newest = str(Name(1, 21, "0" * 8))
    for turn in range(120):
        drive.do(Tick(), after=1.0)
        if turn == 5:
            survivors = [g for g in range(4) if g not in hosts]
            drive.do(*(drive.hello(g, epoch=0, store=f"10.9.9.9:{4000 + g}") for g in survivors))
        if turn == 30:
            come_up(drive, hosts[0])
        assert drive.plan.epoch == 1
    come_up(drive, hosts[1], named=(newest, NEW))

    assert (drive.plan.epoch, drive.plan.checkpoint, drive.state.restarts) == (2, newest, 1)
    running(drive, 22)
    for _ in range(20):
        drive.hear(still=0.0)
    assert (drive.plan.epoch, drive.state.restarts, drive.end) == (2, 1, None)


def test_f21_the_third_wipe_out_is_one_too_many() -> None:
    """F21: backoffLimit 2; fifty masked losses before use none of it."""
    drive = trained()
    for n in range(50):
        drive.do(drive.exited(2))
        survivors = drive.plan.groups
        running(drive, 30 + 2 * n)
        drive.do(Tick(), after=61.0)
        drive.do(*(drive.alive(g) for g in survivors))
        come_up(drive, 2)
        running(drive, 31 + 2 * n)
    assert (drive.state.masked, drive.state.restarts) == (50, 0)

    for n in (1, 2):
        hosts = wiped_out(drive)
        drive.do(Tick(), after=61.0)
        come_up(drive, *hosts)
        drive.do(*(drive.hello(g, epoch=0, store=f"10.9.{n}.9:{4000 + g}") for g in range(4) if g not in hosts))
        running(drive, 200 + n)
        assert (drive.state.restarts, drive.end) == (n, None)
    wiped_out(drive)

    assert drive.end is not None
    assert drive.end.code == ExitCode.WIPE_OUT
    assert drive.state.job is JobState.FAILED
    assert drive.all(Announce)[-1].reason == EventReason.BACKOFF_LIMIT_EXCEEDED
    assert "backoffLimit (2)" in drive.end.verdict
    assert drive.state.masked == 50


def test_what_the_old_workers_still_say_changes_nothing() -> None:
    """Of the history that was given up; an agent that has not heard of it is told again."""
    drive = trained()
    hosts = wiped_out(drive)
    left = next(g for g in range(4) if g not in hosts)
    before = drive.state

    drive.do(drive.committed(left, 22), drive.suspect(left, *hosts), drive.alive(left, step=22, epoch=1))
    assert replace(drive.state, groups=before.groups) == before
    drive.do(drive.hello(left, epoch=1))

    assert drive.all(SendRenew)[-1].groups == (left,)
    assert drive.state.groups[left].state is GroupState.STARTING


def test_a_survivor_that_dies_before_the_plan_is_started_anew() -> None:
    """It is no second wipe-out."""
    drive = trained()
    hosts = wiped_out(drive)
    left = next(g for g in range(4) if g not in hosts)

    drive.do(drive.exited(left))

    assert drive.state.groups[left].state is GroupState.LOST
    assert (drive.state.restarts, drive.end) == (1, None)


def test_groups_that_never_come_up_end_the_job() -> None:
    """Each wait has a deadline, and says for whom it waited."""
    drive = trained()
    hosts = wiped_out(drive)
    drive.do(Tick(), after=RESTART.start_timeout + 1.0)

    assert drive.end is not None
    assert drive.end.code == ExitCode.STALLED
    assert f"group {hosts[0]}" in drive.end.verdict


def test_without_any_checkpoint_all_begin_with_step_0() -> None:
    """There is nothing else to go back to, and all processes are new ones."""
    drive = started(RESTART)
    running(drive, 3)
    hosts = wiped_out(drive)
    drive.do(Tick(), after=2.0)
    come_up(drive, *hosts)
    drive.do(*(drive.hello(g, epoch=0, store=f"10.9.9.9:{4000 + g}") for g in range(4) if g not in hosts))

    assert (drive.plan.epoch, drive.plan.checkpoint, drive.state.step) == (2, "", 0)


def test_a_damaged_checkpoint_is_passed_over() -> None:
    """Whoever cannot read it says so, and all begin with the one before; at last there is none, and the job ends."""
    drive = started(RESTART, replace=False)
    drive = Drive(RESTART)
    for group in range(4):
        drive.do(drive.up(group), drive.hello(group, checkpoints=(NEW, OLD)))
    assert (drive.plan.epoch, drive.plan.checkpoint, drive.state.step) == (2, NEW, 20)

    drive.do(drive.say(wire.Unreadable, 1, name=NEW, error="a digest differs"))
    assert (drive.plan.epoch, drive.plan.base, drive.plan.origin, drive.plan.checkpoint) == (3, 3, 3, OLD)
    assert drive.state.step == 10
    drive.do(drive.say(wire.Unreadable, 2, name=NEW, error="late"))
    assert drive.plan.epoch == 3
    drive.do(drive.say(wire.Unreadable, 1, name=OLD, error="gone"))

    assert drive.end is not None
    assert "no checkpoint can be read" in drive.end.verdict


def test_f22_a_new_job_goes_on_from_the_newest() -> None:
    """F22: an event names the step; its epoch is beyond all that wrote there before, so its checkpoints are newer."""
    drive = Drive(RESTART)
    later = str(Name(7, 15, "a" * 8))
    for group in range(4):
        drive.do(drive.up(group), drive.hello(group, checkpoints=(later, NEW)))

    assert (drive.plan.epoch, drive.plan.origin, drive.plan.checkpoint) == (8, 8, later)
    told = [a for a in drive.all(Announce) if a.reason == EventReason.CONTINUED]
    assert told[0].text == f"goes on from step 15, checkpoint {later}"
    assert (drive.state.job, drive.state.step, drive.state.restarts) == (JobState.RUNNING, 15, 0)


def test_a_coordinator_that_comes_back_in_between_goes_on_restarting() -> None:
    """The restart counts once; survivors whose workers have not begun again are told once more."""
    drive = trained()
    hosts = wiped_out(drive)
    text = document(drive.plan, Kept.of(drive.state))

    again = resume(RESTART, text, drive.now + 10.0)

    assert (again.state.job, again.state.restarts, again.state.starting) == (JobState.WAITING, 1, True)
    assert again.state.checkpoints == (NEW, OLD)
    states = {here.group: here.state for here in again.state.groups}
    assert all(states[g] is (GroupState.LOST if g in hosts else GroupState.STARTING) for g in range(4))


def test_the_writer_has_its_order_at_once_and_again_when_it_changes() -> None:
    """The first checkpoint is due at once, so that saving is measured; a new writer, or the same after a reconnect, is
    told again."""
    drive = started(RESTART)
    assert drive.plan.writer == 3
    [first] = drive.all(SendSave)
    assert (first.group, first.due) == (3, 0.0)

    running(drive, 1)
    drive.do(drive.hello(3, epoch=1))
    assert len(drive.all(SendSave)) == 2
    drive.do(drive.exited(3))

    assert drive.plan.writer == 2
    assert drive.all(SendSave)[-1].group == 2


def test_every_plan_names_a_writer_among_its_members() -> None:
    """Urgent ones, and those that admit."""
    drive = trained()
    drive.do(drive.exited(3))
    running(drive, 30)
    drive.do(Tick(), after=2.0)
    come_up(drive, 3)
    running(drive, 31)

    assert [plan.writer for plan in drive.plans] == [3, 2, 2]
    assert {plan.origin for plan in drive.plans} == {1}
