"""Signals that only say that all goes on as before: noted at once; the ticks look at the job as a whole."""

from __future__ import annotations

from spare.control.action import CreateGroup
from spare.control.signal import Tick
from tests.control.drive import Drive, started


def _missing_one() -> Drive:
    """Group 3 is lost, and is to be started again after a pause; all others run and have committed."""
    drive = started(replace=True)
    drive.do(*(drive.running(g) for g in range(4)))
    drive.do(*(drive.committed(g, 1) for g in range(4)))
    drive.do(drive.exited(3))
    drive.do(*(drive.running(g) for g in range(3)))
    drive.do(*(drive.committed(g, 2) for g in range(3)))
    drive.do(Tick())
    return drive


def test_heartbeats_do_not_let_a_moment_be_forgotten() -> None:
    """A group is to be started again at a moment: heartbeats before it move it nowhere."""
    drive = _missing_one()
    due = drive.state.groups[3].retry
    assert due is not None
    assert drive.decisions[-1].wake == due
    for _ in range(3):
        said = drive.do(drive.alive(0), drive.committed(1, 3), after=(due - drive.now) / 10)
        assert (said.actions, said.wake) == ((), due)
    assert drive.do(Tick(), after=due - drive.now).actions == (CreateGroup(3),)


def test_who_lives_is_worked_out_anew_after_each_change() -> None:
    """It is kept for as long as nothing has changed, and no longer."""
    drive = started()
    before = drive.state
    assert before.live == tuple(range(4))
    drive.do(drive.exited(2))
    assert drive.state.live == (0, 1, 3)
    assert before.live == tuple(range(4))
