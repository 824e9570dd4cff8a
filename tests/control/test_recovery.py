"""How long a recovery took, part by part."""

from __future__ import annotations

from spare.api import wire
from spare.control.signal import AgentGone, LinkDown, Pushed
from tests.control.drive import Drive, started


def running(drive: Drive, *groups: int, after: float = 0.0) -> None:
    """These say that they go on."""
    drive.do(*(drive.say(wire.Running, g, step=drive.state.step) for g in groups), after=after)


def test_a_recovery_is_timed_part_by_part() -> None:
    """First sign, decision, pushed, the last survivor running, the first commit."""
    drive = started()
    drive.do(drive.committed(0, 4))
    drive.do(drive.suspect(0, 2), after=1.0)
    drive.do(drive.exited(2), after=0.01)
    drive.do(Pushed(2), after=0.02)
    running(drive, 0, 1, after=0.04)
    running(drive, 3, after=0.08)
    drive.do(drive.committed(1, 5), after=0.16)
    [seen] = drive.state.recoveries

    assert (seen.groups, seen.step, seen.epoch) == ((2,), 4, 2)
    assert seen.pushed is not None
    assert seen.running is not None
    assert seen.committed is not None
    parts = (seen.decided - seen.sign, seen.pushed - seen.decided, seen.running - seen.pushed)
    assert [round(part, 3) for part in (*parts, seen.committed - seen.running)] == [0.01, 0.02, 0.12, 0.16]
    assert drive.state.recovering is None


def test_a_broken_line_is_the_first_sign_of_a_death() -> None:
    """It broke before anybody said why."""
    drive = started()
    drive.do(LinkDown(2, "u2", "reset"), after=1.0)
    drive.do(LinkDown(2, "u2", "refused"), after=0.1)
    drive.do(AgentGone(2, "u2", "killed"), after=0.1)

    assert drive.state.recovering is not None
    assert round(drive.state.recovering.sign, 3) == 101.0


def test_a_failure_in_the_midst_joins_the_recovery() -> None:
    """Groups united, timed from the first sign, one entry."""
    drive = started()
    drive.do(drive.exited(2), after=1.0)
    drive.do(Pushed(2), after=0.01)
    running(drive, 0)
    drive.do(drive.exited(1), after=0.01)
    running(drive, 0, 3, after=0.01)
    drive.do(drive.committed(0, 1), after=0.01)
    [seen] = drive.state.recoveries

    assert seen.groups == (1, 2)
    assert seen.epoch == 3
    assert round(seen.sign, 3) == 101.0
    assert "group 2 lost" in seen.reason
    assert "group 1 lost" in seen.reason


def test_reports_of_an_older_epoch_are_no_part_of_it() -> None:
    """A commit that was on its way when the loss was answered ends nothing."""
    drive = started()
    drive.do(drive.exited(2))
    drive.do(drive.committed(0, 1, epoch=1))

    assert drive.state.recoveries == ()


def test_a_part_that_was_not_seen_stays_open() -> None:
    """Two steps on, the missing report will not come any more."""
    drive = started()
    drive.do(drive.exited(2))
    running(drive, 0)
    drive.do(drive.committed(0, 1))
    drive.do(drive.committed(0, 2))
    [seen] = drive.state.recoveries

    assert (seen.running, seen.pushed) == (None, None)


def test_the_step_of_a_loss_is_the_one_that_goes_on() -> None:
    """Of short steps not every commit is reported; those who go on say where they are."""
    drive = started()
    drive.do(drive.committed(0, 3))
    drive.do(drive.exited(2))
    drive.do(*(drive.say(wire.Running, g, step=5) for g in (0, 1, 3)))
    drive.do(*(drive.committed(g, 6) for g in (0, 1, 3)))
    [seen] = drive.state.recoveries

    assert seen.step == 5
