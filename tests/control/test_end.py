"""How a job ends: complete, by the script's error, by the user."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spare.api import wire
from spare.api.exit_codes import ExitCode
from spare.control.action import Announce, EndJob, SendFinish, SendStop
from spare.control.signal import AgentGone, Interrupted, Tick
from spare.control.state import JobState
from tests.control.drive import CONFIG, Drive, started


def test_finish_is_sent_when_all_members_are_done() -> None:
    """Not before the last has said so."""
    drive = started()
    drive.do(drive.done(0), drive.done(1), drive.done(2))
    assert drive.all(SendFinish) == []
    drive.do(drive.done(3))

    assert drive.all(SendFinish) == [SendFinish((0, 1, 2, 3))]
    assert drive.end is None, "the scripts still run what follows the session"


def test_the_job_is_complete_when_all_scripts_have_ended() -> None:
    """Exits after the finish are no losses; agents that go are none either."""
    drive = started()
    drive.finish()
    drive.do(drive.exited(0, code=0), drive.exited(1, code=0), AgentGone(2, "u2", "exited"))
    assert drive.end is None
    drive.do(drive.exited(3, code=0))

    assert drive.end == EndJob(ExitCode.COMPLETE, "complete: 10 steps on 4 groups, 0 losses masked")
    assert drive.state.job is JobState.COMPLETE
    assert drive.state.digest == "d"
    assert drive.state.masked == 0


def test_a_job_that_has_nothing_left_to_do_says_so() -> None:
    """Its checkpoint has as many steps as the script asks for, or more."""
    drive, saved = Drive(replace(CONFIG, checkpoint="/saved")), "epoch-00000001-abcdef01/step-0000000005"
    drive.do(*(drive.up(g) for g in range(4)), *(drive.hello(g, checkpoints=(saved,)) for g in range(4)))
    drive.do(*(drive.done(g, step=5) for g in range(4)))
    drive.do(*(drive.exited(g, code=0) for g in range(4)))

    assert drive.end is not None
    assert drive.end.verdict.endswith(f"all of them were in checkpoint {saved} already, and nothing was left to do")


@pytest.mark.parametrize(
    ("step", "newest"), [(None, "nor anything before"), (7, "the newest checkpoint is "), (10, "")]
)
def test_an_end_that_could_not_be_saved_is_told_in_the_verdict(step: int | None, newest: str) -> None:
    """The training is complete, but who counts on its last checkpoint must know that there is none."""
    drive = started(checkpoint="/saved")
    if step is not None:
        name = f"epoch-00000001-abcdef01/step-{step:010}"
        drive.do(drive.say(wire.Saved, 0, name=name, staged=0.0, seconds=0.1, size=9))
    drive.finish()
    drive.do(*(drive.exited(g, code=0) for g in range(4)))

    assert drive.end is not None
    assert drive.end.code == ExitCode.COMPLETE
    assert ("could not be saved" in drive.end.verdict) is bool(newest)
    assert newest in drive.end.verdict


def test_a_script_that_fails_after_the_finish_is_an_error() -> None:
    """A model that could not be saved is no success."""
    drive = started()
    drive.finish()
    drive.do(drive.errored(1, type="OSError", text="disk full"), drive.exited(1, code=1))

    assert drive.end is not None
    assert drive.end.code == ExitCode.USER_ERROR
    assert "disk full" in drive.end.verdict


def test_a_start_that_is_due_wakes_nobody_after_the_last_step() -> None:
    """Found by the simulation, seed 101: nobody is started any more, and the coordinator span over it."""
    drive = started(replace=True)
    drive.do(drive.exited(2), Tick())
    drive.finish()
    decision = drive.do(Tick(), after=1.0)

    assert drive.end is None
    assert decision.wake > drive.now


def test_who_dies_after_the_finish_is_not_waited_for() -> None:
    """A signal, or silence for deadAfter."""
    drive = started()
    drive.finish()
    drive.do(*(drive.exited(g, code=0) for g in (0, 1)), drive.exited(2, signal=9))
    for _ in range(6):
        drive.do(Tick(), after=1)

    assert drive.end is not None
    assert drive.end.code == ExitCode.COMPLETE


def test_a_member_lost_after_all_were_done_does_not_undo_it() -> None:
    """It committed the last step with the others."""
    drive = started()
    drive.do(*(drive.done(g) for g in range(4)), drive.exited(3))

    assert drive.all(SendFinish) == [SendFinish((0, 1, 2))]
    assert drive.plan.epoch == 1
    assert drive.state.masked == 0


def test_a_member_lost_before_the_others_are_done_is_answered() -> None:
    """The others may still need to regroup; who was done says so again under the new plan."""
    drive = started()
    drive.do(drive.done(0), drive.done(1), drive.exited(3))
    drive.do(drive.done(2, epoch=1))
    assert drive.all(SendFinish) == []
    drive.do(*(drive.done(g) for g in (0, 1, 2)))

    assert drive.all(SendFinish) == [SendFinish((0, 1, 2))]
    assert drive.state.masked == 1


def test_different_digests_fail_the_job_and_say_who_differs() -> None:
    """Complete means that all hold the same model."""
    drive = started()
    drive.do(drive.done(0), drive.done(1, digest="x"), drive.done(2), drive.done(3))

    assert drive.end is not None
    assert drive.end.code == ExitCode.INEXACT
    assert "groups 0, 2, 3: d; groups 1: x" in drive.end.verdict


def test_a_finish_is_said_again_to_who_was_away() -> None:
    """The order was lost with the line."""
    drive = started()
    drive.finish()

    assert drive.do(drive.hello(1)).actions == (SendFinish((1,)),)


def test_an_exception_of_the_script_ends_the_job_with_its_text() -> None:
    """Type, message, where, traceback; everything is told to stop; nothing is masked."""
    drive = started()
    decision = drive.do(drive.errored(1, micro=(2, 5)))

    assert drive.end is not None
    assert drive.end.code == ExitCode.USER_ERROR
    assert drive.end.verdict.splitlines() == [
        "ValueError: bad shape (group 1, step 3, micro-batch 5 of shard 2)",
        "  File train.py, line 7",
    ]
    assert [type(action) for action in decision.actions] == [Announce, SendStop, EndJob]
    assert drive.state.masked == 0
    assert drive.state.job is JobState.FAILED


def test_a_checkpoint_that_does_not_fit_is_refused_in_one_sentence() -> None:
    """The reason is told by its own word, and no line of code is wrong."""
    drive = started()
    drive.do(drive.errored(1, type="CheckpointMismatch", ours=True, text="checkpoint c is of another model"))

    assert drive.end is not None
    assert drive.end.verdict == "checkpoint c is of another model (group 1, step 3)"


def test_the_same_exception_everywhere_is_one_end() -> None:
    """The exits that follow add nothing."""
    drive = started()
    drive.do(*(drive.errored(g) for g in range(4)), *(drive.exited(g, code=1) for g in range(4)))
    drive.do(drive.errored(2), Tick())

    assert len(drive.all(EndJob)) == 1
    assert "[and 3 more groups at the same time]" in drive.state.verdict
    assert len(drive.plans) == 1


@pytest.mark.parametrize(
    ("type_", "code"),
    [
        ("RendezvousTimeout", ExitCode.STALLED),
        ("PlanTimeout", ExitCode.STALLED),
        ("StateDiverged", ExitCode.INEXACT),
        ("SessionMisuse", ExitCode.USER_ERROR),
    ],
)
def test_an_error_of_the_runtime_ends_the_job_with_its_own_code(type_: str, code: ExitCode) -> None:
    """A deadline that passed is no error of the script."""
    drive = started()
    drive.do(drive.errored(1, type=type_, ours=True))

    assert drive.end is not None
    assert drive.end.code == code


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"code": 1, "tail": "Killed by OOM guard"}, "exited with code 1; its last words:\nKilled by OOM guard"),
        ({"code": 0}, "ended after 4 steps, before the last one was committed"),
    ],
)
def test_an_exit_without_a_signal_is_the_scripts_own(how: dict[str, object], text: str) -> None:
    """Also with code 0, when steps are left."""
    drive = started()
    drive.do(drive.committed(1, 4))
    drive.do(drive.exited(1, **how))

    assert drive.end is not None
    assert drive.end.code == ExitCode.USER_ERROR
    assert text in drive.end.verdict


def test_an_interrupt_ends_the_job() -> None:
    """Everything is told to stop; code 130."""
    drive = started()
    decision = drive.do(Interrupted("interrupted by the user"))

    assert decision.actions[1:] == (
        SendStop("interrupted by the user"),
        EndJob(ExitCode.INTERRUPTED, "interrupted by the user"),
    )


def test_nothing_follows_the_end() -> None:
    """Complete and failed are final (F34)."""
    drive = started()
    drive.do(Interrupted("enough"))
    before = drive.state
    decision = drive.do(drive.exited(0), drive.up(1), drive.hello(2), drive.errored(3), Tick(), after=1000)

    assert decision.actions == ()
    assert drive.state == before


def test_a_phase_that_is_over_is_no_sign_of_a_step_more() -> None:
    """Its last heartbeat came from the last step's reduction; then it committed that step, and writes a checkpoint."""
    for over in ("committed", "running"):
        drive = started()
        drive.do(*(drive.alive(g, phase="reduce", step=9) for g in range(4)))
        drive.do(*(drive.committed(g, 10) for g in (0, 1, 2)), getattr(drive, over)(3, step=10))
        drive.do(*(drive.done(g) for g in (0, 1, 2)), Tick())
        assert drive.end is None

        drive.do(drive.alive(3, phase="reduce", step=10), Tick())
        assert drive.end is not None
        assert "group 0 ended after 10 steps, while group 3 is in step 10" in drive.end.verdict
