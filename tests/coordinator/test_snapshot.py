"""What others see of the state."""

from __future__ import annotations

from spare.api import wire
from spare.control.signal import Pushed
from spare.coordinator.snapshot import snapshot_of
from tests.control.drive import Drive, started


def test_before_the_first_plan_there_is_little_to_see() -> None:
    """No stacks, no depth; the groups and where they are."""
    snapshot = snapshot_of(Drive().state, 0.0)

    assert (snapshot.state, snapshot.epoch, snapshot.depth, snapshot.step) == ("pending", 0, 0.0, 0)
    assert [g.state for g in snapshot.groups] == ["starting"] * 4
    assert snapshot.groups[0].stack == ()


def test_a_degraded_job_shows_what_it_lost_and_how_long_that_took() -> None:
    """Stacks and loads by the present plan, the furthest step, the recovery in seconds and wall time."""
    drive = started()
    drive.do(drive.exited(2))
    drive.do(Pushed(2), after=0.25)
    drive.do(*(drive.say(wire.Running, g, step=0) for g in (0, 1, 3)), after=0.25)
    drive.do(drive.committed(0, 2, loss=0.5), drive.committed(1, 2), drive.committed(3, 1), after=0.5)
    snapshot = snapshot_of(drive.state, 5000.0)

    assert (snapshot.state, snapshot.epoch, snapshot.step, snapshot.masked) == ("degraded", 2, 2, 1)
    assert sum(g.load for g in snapshot.groups) == 32
    assert snapshot.groups[2].load == 0
    assert snapshot.groups[2].state == "lost"
    assert snapshot.groups[2].reason == "worker killed by signal 9"
    assert snapshot.groups[0].pid == 1000
    assert snapshot.loss == 0.5
    [recovery] = snapshot.recoveries
    parts = (recovery.detect, recovery.plan, recovery.regroup, recovery.patch, recovery.total)
    assert parts == (0.0, 0.25, 0.25, 0.5, 1.0)
    assert recovery.decided_at == 5100.0


def test_what_was_not_seen_is_minus_one() -> None:
    """A recovery of which a report is missing."""
    drive = started()
    drive.do(drive.exited(2))
    drive.do(drive.committed(0, 1))
    drive.do(drive.committed(0, 2))
    [recovery] = snapshot_of(drive.state, 0.0).recoveries

    assert (recovery.plan, recovery.regroup, recovery.patch) == (-1.0, -1.0, -1.0)
    assert recovery.total == 0.0
