"""Standing still: who is waited for, who has left early, what a late heartbeat says, and a freeze at the end."""

from __future__ import annotations

from spare.control.signal import Tick
from tests.control.drive import started


def test_a_stall_of_all_condemns_nobody_when_the_first_goes_on() -> None:
    """Time counts against a group from when somebody waits for it, not from when it stood still."""
    drive = started(hang_after=6.0)
    drive.hear(still=9.0)

    drive.do(drive.alive(0, phase="reduce", still=0.1), *(drive.alive(g, still=9.5) for g in (1, 2, 3)), after=0.5)
    assert drive.state.losses == ()
    assert drive.plan.epoch == 1

    waiting = [drive.alive(g, phase="reduce", still=6.5) for g in (0, 2, 3)]
    drive.do(*waiting, drive.alive(1, still=16.0), Tick(), after=0.5)
    assert drive.plan.groups == (0, 2, 3)


def test_a_group_that_ends_early_fails_the_job_with_its_reason() -> None:
    """It says done at step 6 while the others already reduce step 6: it will never come."""
    drive = started()
    drive.do(drive.done(1, step=6))
    drive.do(*(drive.alive(g, phase="reduce", step=6) for g in (0, 2, 3)), Tick())

    assert drive.end is not None
    assert "group 1 ended after 6 steps" in drive.end.verdict


def test_a_heartbeat_that_a_commit_has_overtaken_says_nothing_of_the_phase() -> None:
    """An agent repeats what its worker said last: the reduction of the last step is over."""
    drive = started()
    drive.do(*(drive.committed(g, 10) for g in range(4)), *(drive.alive(g, phase="reduce", step=9) for g in range(4)))
    drive.do(drive.done(1, step=10))

    assert drive.end is None
    assert {drive.state.groups[g].phase for g in (0, 2, 3)} == {"compute"}


def test_a_worker_frozen_after_the_last_step_does_not_hold_up_the_end() -> None:
    """All have committed everything; who falls silent then is taken for finished."""
    drive = started()
    drive.finish()
    drive.do(*(drive.exited(g, code=0) for g in (0, 2, 3)))
    assert drive.end is None

    drive.do(drive.alive(1, worker="silent", silent_for=9.0, phase="done"), after=1.0)

    assert drive.end is not None
    assert drive.end.code == 0
