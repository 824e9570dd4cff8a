"""A wipe-out with `onWipeOut: Restart`: all groups begin again from the newest checkpoint, as often as is allowed."""

from __future__ import annotations

from dataclasses import replace

from spare.api import wire
from spare.api.exit_codes import ExitCode
from spare.api.reasons import EventReason
from spare.api.spec import OnWipeOut
from spare.control.action import Announce, CreateGroup, SendRenew
from spare.control.decide import decide
from spare.control.record import Kept, document
from spare.control.resume import resume
from spare.control.signal import AgentGone, DrainGroup, LinkDown, Tick
from spare.control.state import JobState
from spare.coordinator.snapshot import snapshot_of
from tests.control.drive import CONFIG, Drive, started

SAVED = "epoch-00000001-abcdef01/step-0000000005"


def wiped_out(limit: int = 3) -> Drive:
    """Four groups at step 7, step 5 saved, and groups 0 to 2 killed at once: shard 0 has no host."""
    config = replace(CONFIG, on_wipe_out=OnWipeOut.RESTART, checkpoint="/saved", backoff_limit=limit, replace=True)
    drive = started(config)
    drive.do(*(drive.running(g) for g in range(4)))
    drive.do(*(drive.committed(g, 5, loss=0.9) for g in range(4)))
    drive.do(drive.say(wire.Saved, 3, name=SAVED, seconds=1.0, staged=0.1, size=10))
    drive.do(*(drive.committed(g, 7, loss=0.5) for g in range(4)))
    drive.do(LinkDown(2, "u2", "reset"), after=1.0)
    drive.do(drive.exited(0), drive.exited(1), AgentGone(2, "u2", "killed by signal 9"), after=0.25)
    return drive


def again(drive: Drive) -> None:
    """The lost ones are started, and all say hello."""
    for _ in range(8):
        drive.hear(3, after=1.0, phase="starting")
    for g in (0, 1, 2):
        drive.uids[g] = f"{drive.uids[g]}'"
    drive.do(*(drive.up(g) for g in (0, 1, 2)), *(drive.hello(g, epoch=0) for g in range(4)))


def job_state(drive: Drive) -> JobState:
    """Now."""
    return drive.state.job


def loss(drive: Drive) -> float | None:
    """Now."""
    return drive.state.loss


def test_all_begin_again_from_the_newest_checkpoint() -> None:
    """Whoever is left is told to renew itself, the others are started, and nobody waits for what was lost."""
    drive = wiped_out()

    assert job_state(drive) is JobState.WAITING
    [renew] = drive.all(SendRenew)
    assert renew.groups == (3,)
    before = len(drive.all(CreateGroup))

    again(drive)

    assert [a.group for a in drive.all(CreateGroup)[before:]] == [0, 1, 2]
    assert job_state(drive) is JobState.RUNNING
    assert (drive.plan.checkpoint, drive.plan.groups) == (SAVED, (0, 1, 2, 3))
    assert drive.state.step == 5
    assert drive.state.restarts == 1


def test_a_step_that_is_taken_back_has_no_loss() -> None:
    """The last one known is that of step 7, and the job is at step 5."""
    drive = wiped_out()
    again(drive)

    assert loss(drive) is None
    drive.do(drive.committed(0, 6, loss=0.8))
    assert (drive.state.step, loss(drive)) == (6, 0.8)


def test_waiting_for_all_to_be_there_is_not_detection() -> None:
    """The recovery says how long the loss took to be seen, and how long all took to begin again."""
    drive = wiped_out()
    again(drive)
    drive.do(*(drive.running(g) for g in range(4)))
    drive.do(*(drive.committed(g, 6) for g in range(4)), after=0.5)
    [recovery] = snapshot_of(drive.state, 0.0).recoveries

    assert (recovery.detect, recovery.restart) == (0.25, 8.0)
    assert recovery.total == 0.25 + 8.0 + 0.5


def test_after_the_last_restart_the_job_fails_and_says_so() -> None:
    """backoffLimit counts restarts, not losses."""
    drive = wiped_out(limit=0)

    assert drive.end is not None
    assert drive.end.code == ExitCode.WIPE_OUT
    assert "backoffLimit (0)" in drive.end.verdict
    assert EventReason.BACKOFF_LIMIT_EXCEEDED in {a.reason for a in drive.all(Announce)}


def test_a_group_that_had_left_begins_again_with_the_others() -> None:
    """All are needed, though nobody was to come back while the job went on; a coordinator that comes back knows it."""
    config = replace(CONFIG, on_wipe_out=OnWipeOut.RESTART, redundancy=2, replace=False)
    drive = started(config)
    drive.do(*(drive.running(g) for g in range(4)))
    drive.do(DrainGroup(1, "spare drain", 30.0))
    drive.hear(after=0.1)
    assert drive.plan.groups == (0, 2, 3)
    drive.do(*(drive.running(g) for g in (0, 2, 3)))
    drive.do(drive.exited(0), drive.exited(2), drive.exited(3))
    assert drive.state.restarting is not None
    back = resume(config, document(drive.plan, Kept.of(drive.state)), drive.now)

    drive.do(Tick(), after=1.0)

    assert sorted(a.group for a in drive.all(CreateGroup)[4:]) == [0, 1, 2, 3]
    after = decide(back.state, (Tick(),), drive.now + 2.0)
    assert {a.group for a in after.actions if isinstance(a, CreateGroup)} == {0, 1, 2, 3}
