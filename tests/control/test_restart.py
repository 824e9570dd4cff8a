"""A wipe-out with `onWipeOut: Restart`: all groups begin again from the newest checkpoint, as often as is allowed."""

from __future__ import annotations

from dataclasses import replace

from spare.api import wire
from spare.api.checkpoint import Name, tag_of
from spare.api.exit_codes import ExitCode
from spare.api.reasons import EventReason
from spare.api.spec import OnWipeOut
from spare.control.action import Announce, CreateGroup, SendRenew
from spare.control.decide import decide
from spare.control.record import Kept, document
from spare.control.resume import resume
from spare.control.signal import AgentGone, Allow, DrainGroup, LinkDown, Tick
from spare.control.state import JobState
from spare.coordinator.snapshot import snapshot_of
from tests.control.drive import CONFIG, Drive, started

SAVED = str(Name(1, 5, tag_of(CONFIG.job)))
OTHERS = str(Name(2, 90, tag_of("another/job")))


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


def test_a_script_that_ends_before_it_begins_again_is_no_error() -> None:
    """What it raised is of a step that never was: several can find at the same moment that they cannot go on."""
    drive = wiped_out()
    drive.do(drive.errored(3, type="StateLost", ours=True), drive.exited(3, code=1), after=0.1)

    assert drive.end is None
    before = len(drive.all(CreateGroup))
    drive.do(Tick(), after=2.0)
    assert 3 in {a.group for a in drive.all(CreateGroup)[before:]}


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


def test_a_group_that_has_begun_again_often_has_not_died_often() -> None:
    """Starts count until one of them has committed something: the fifth wipe-out is no crash loop."""
    drive = wiped_out(limit=9)
    for _ in range(6):
        again(drive)
        drive.do(*(drive.running(g) for g in range(4)))
        drive.do(*(drive.committed(g, 8) for g in range(4)))
        drive.do(*(drive.exited(g) for g in (0, 1, 2)), after=1.0)

    assert (drive.end, drive.state.restarts) == (None, 7)


def test_what_another_job_saves_on_the_same_path_is_no_history_of_this_one() -> None:
    """It began later, from what this one had saved. Before a job's first plan whatever is there is gone on from."""
    drive = wiped_out()
    for _ in range(8):
        drive.hear(3, after=1.0, phase="starting")
    for g in (0, 1, 2):
        drive.uids[g] = f"{drive.uids[g]}'"
    seen = (OTHERS, SAVED)
    drive.do(*(drive.up(g) for g in (0, 1, 2)), *(drive.hello(g, epoch=0, checkpoints=seen) for g in range(4)))
    assert drive.plan.checkpoint == SAVED

    fresh = Drive(drive.config)
    fresh.do(*(fresh.up(g) for g in range(4)), *(fresh.hello(g, checkpoints=seen) for g in range(4)))
    assert fresh.plan.checkpoint == OTHERS


def test_f20_starts_that_are_far_apart_are_one_restart() -> None:
    """F20: over two minutes; one plan, the newest checkpoint that anybody has found, and no second restart."""
    drive = wiped_out()
    newer, there = str(Name(1, 6, tag_of(CONFIG.job))), [3]
    drive.do(drive.hello(3, epoch=0, checkpoints=(SAVED,)))
    for group, found in ((0, (SAVED,)), (1, (newer, SAVED)), (2, (SAVED,))):
        for _ in range(40):
            drive.hear(*there, after=1.0, phase="starting")
        assert drive.plan.epoch == 1
        there.append(group)
        drive.uids[group] = f"u{group}'"
        drive.do(drive.up(group), drive.hello(group, epoch=0, checkpoints=found))

    assert (drive.plan.checkpoint, drive.plan.groups) == (newer, (0, 1, 2, 3))
    assert (drive.state.restarts, drive.state.step, len(drive.plans)) == (1, 6, 2)


def test_f21_masked_losses_use_none_of_the_limit() -> None:
    """F21: backoffLimit 2, fifty losses that are masked, and three wipe-outs: the third is one too many."""
    drive = wiped_out(limit=2)
    again(drive)
    step = 8
    for number in range(50):
        group = number % 4
        drive.do(*(drive.running(g) for g in range(4)))
        drive.do(*(drive.committed(g, step) for g in range(4)))
        drive.do(drive.exited(group), after=0.5)
        others = drive.plan.groups
        drive.do(*(drive.running(g) for g in others))
        drive.do(*(drive.committed(g, step + 1) for g in others))
        drive.do(Tick(), after=drive.config.backoff(1))
        drive.uids[group] += "+"
        drive.do(drive.up(group), drive.hello(group, epoch=0))
        assert drive.plan.groups == (0, 1, 2, 3), number
        step += 2
    assert (drive.state.masked, drive.state.restarts, drive.end) == (50, 1, None)

    for restarts in (2, 2):
        drive.do(*(drive.running(g) for g in range(4)))
        drive.do(*(drive.committed(g, step) for g in range(4)))
        drive.do(*(drive.exited(g) for g in (0, 1, 2)), after=0.5)
        assert drive.state.restarts == restarts
        if drive.end is None:
            again(drive)

    assert drive.end is not None
    assert "as often as runPolicy.backoffLimit (2) allows" in drive.end.verdict


def test_a_checkpoint_that_is_told_of_again_is_no_second_one() -> None:
    """An agent repeats it to whoever attaches: after a line that broke as after a coordinator that did."""
    drive = started(checkpoint="/saved")
    saved = {"name": SAVED, "seconds": 1.0, "staged": 0.1, "size": 10}
    drive.do(drive.say(wire.Saved, 3, **saved))
    at = drive.state.saved
    drive.do(drive.say(wire.Saved, 3, **saved), after=60.0)

    assert [a.reason for a in drive.all(Announce)].count("Checkpointed") == 1
    assert drive.state.saved == at


def test_the_limit_may_be_edited_at_any_time() -> None:
    """The next wipe-out is judged by what it is then, down as well as up."""
    for before, after, goes_on in ((0, 1, True), (3, 0, False)):
        config = replace(CONFIG, on_wipe_out=OnWipeOut.RESTART, checkpoint="/saved", backoff_limit=before, replace=True)
        drive = started(config)
        drive.do(*(drive.running(g) for g in range(4)))
        drive.do(*(drive.committed(g, 7, loss=0.5) for g in range(4)))
        drive.do(Allow(after))
        drive.do(drive.exited(0), drive.exited(1), drive.exited(2), after=0.25)

        assert (job_state(drive) is JobState.WAITING) is goes_on
        assert (drive.state.exit_code == ExitCode.WIPE_OUT) is not goes_on
