"""Fewer groups than minGroups: start without the rest only after waiting, and do not go on with less."""

from __future__ import annotations

from dataclasses import replace

from spare.api.exit_codes import ExitCode
from spare.api.reasons import EventReason
from spare.api.spec import OnWipeOut
from spare.control.action import Announce, DeleteGroup, PushPlan
from spare.control.signal import AgentNotStarted, Tick
from spare.control.state import GroupState, JobState
from spare.planner import check
from tests.control.drive import CONFIG, Drive, started

MINIMUM = replace(CONFIG, groups=8, min_groups=6, replace=True, start_wait=300.0, start_timeout=600.0)


def test_f45_the_job_starts_with_six_of_eight_after_five_minutes() -> None:
    """Not before; then Degraded, at depth 1.375; the others join when they come."""
    drive = Drive(MINIMUM)
    drive.ready(0, 1, 2, 3, 4, 5)
    drive.do(Tick(), after=299.0)
    assert drive.state.plan is None

    drive.do(Tick(), after=2.0)

    assert drive.plan.groups == (0, 1, 2, 3, 4, 5)
    assert drive.plan.schedule.depth == 1.375
    assert check(drive.plan.schedule) == ()
    assert drive.state.job is JobState.DEGRADED
    drive.do(*(drive.running(g, step=0) for g in range(6)))
    drive.do(*(drive.committed(g, 1) for g in range(6)))
    drive.ready(6)
    assert [m.group for m in drive.plan.members] == [*range(7)]
    assert drive.state.groups[6].state is GroupState.JOINING


def test_too_few_to_start_is_told_with_who_is_missing() -> None:
    """After the start's own deadline."""
    drive = Drive(MINIMUM)
    drive.ready(0, 1, 2, 3, 4)
    drive.do(Tick(), after=400.0)
    assert drive.end is None
    drive.do(Tick(), after=201.0)

    assert drive.end is not None
    assert "3 of 8 groups were not ready" in drive.end.verdict


def test_groups_that_cannot_be_started_do_not_end_a_job_that_can_do_without() -> None:
    """Two may be missing; the third is one too many."""
    drive = Drive(MINIMUM)
    drive.ready(0, 1, 2, 3, 4, 5)
    for _ in range(12):
        drive.do(AgentNotStarted(6, "quota"), AgentNotStarted(7, "quota"), after=20.0)
    assert drive.end is None
    drive.do(Tick(), after=100.0)

    assert drive.plan.groups == (0, 1, 2, 3, 4, 5)


def below() -> Drive:
    """A job with six groups at least that has lost three."""
    drive = started(MINIMUM)
    drive.do(*(drive.running(g, step=0) for g in range(8)))
    drive.do(*(drive.committed(g, 1) for g in range(8)))
    drive.do(drive.exited(1), drive.exited(4))
    drive.do(*(drive.running(g, step=1) for g in drive.plan.groups))
    drive.do(*(drive.committed(g, 2) for g in drive.plan.groups))
    drive.do(drive.exited(6))
    return drive


def test_below_the_minimum_the_job_waits_and_says_why() -> None:
    """No plan without the third; its processes are ended at once, and the reason is told once."""
    drive = below()

    assert drive.plan.epoch == 2
    assert drive.state.job is JobState.WAITING
    assert 6 in {a.group for a in drive.all(DeleteGroup)}
    told = [a for a in drive.all(Announce) if a.reason == EventReason.BELOW_MIN_GROUPS]
    assert [a.text for a in told] == [
        "group 6 lost (worker killed by signal 9): 5 groups are left, and minGroups is 6; waiting for 1 more"
    ]
    count = len(drive.all(DeleteGroup))
    drive.hear()
    assert len(drive.all(DeleteGroup)) == count
    assert len([a for a in drive.all(Announce) if a.reason == EventReason.BELOW_MIN_GROUPS]) == 1


def test_it_goes_on_once_a_replacement_is_ready() -> None:
    """The survivors at once, by an urgent plan; the replacement joins at the commit behind it."""
    drive = below()
    drive.do(Tick(), after=2.0)
    drive.uids[4] = "again4"
    drive.ready(4)

    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (3, 3, (0, 2, 3, 5, 7))
    assert (drive.state.job, drive.state.masked) == (JobState.DEGRADED, 3)
    drive.do(*(drive.running(g, step=2) for g in drive.plan.groups))
    drive.do(*(drive.committed(g, 3) for g in drive.plan.groups))
    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (4, 3, (0, 2, 3, 4, 5, 7))


def test_the_wait_has_an_end() -> None:
    """It says for how many it waited."""
    drive = below()
    for _ in range(310):
        drive.hear()
        drive.do(*(drive.alive(g) for g in drive.state.live), after=10.0)
        if drive.end is not None:
            break

    assert drive.end is not None
    assert drive.end.code == ExitCode.STALLED
    assert "for 1 more, 0 are ready" in drive.end.verdict


def test_who_replaces_nobody_does_not_wait_for_anybody() -> None:
    """With --no-replacements there is nothing to wait for."""
    drive = started(MINIMUM, replace=False)
    drive.do(*(drive.running(g, step=0) for g in range(8)))
    drive.do(drive.exited(1), drive.exited(4), drive.exited(6))

    assert drive.end is not None
    assert "lost groups are not replaced" in drive.end.verdict


def test_fetching_goes_on_until_nobody_is_left() -> None:
    """One group after another: each plan is valid, and says which shards are fetched."""
    drive = started(replace(CONFIG, redundancy=2, on_wipe_out=OnWipeOut.FETCH))
    for group in range(3):
        drive.do(*(drive.running(g, step=group) for g in drive.plan.groups))
        drive.do(*(drive.committed(g, group + 1) for g in drive.plan.groups))
        drive.do(drive.exited(group))
        assert check(drive.plan.schedule, 2) == ()
    assert drive.plan.groups == (3,)
    assert "fetched by groups that do not host" in drive.plan.reason
    assert drive.plan.schedule.depth == 4.0
    drive.do(drive.exited(3))

    assert drive.end is not None
    assert drive.end.code == ExitCode.WIPE_OUT
    assert len(drive.all(PushPlan)) == 4
