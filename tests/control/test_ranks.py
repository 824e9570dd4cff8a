"""Groups of several pods and ranks: one of them lost is the group lost, and the group is as far as its slowest rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spare.api import wire
from spare.control.action import Connect, CreateGroup, DeleteGroup, ProbeAll, SendAssemble
from spare.control.signal import AgentGone, AgentNotStarted, AgentUp, LinkDown, Signal, Tick
from spare.control.state import GroupState, JobState
from tests.control.drive import CONFIG, Drive, started

PODS = replace(CONFIG, pods=2, procs=2, heartbeat=1.0, dead_after=5.0, hang_after=20.0)


def test_f38_seven_of_eight_ranks_are_no_group() -> None:
    """F38: podsPerGroup 4, procPerPod 2: with one rank missing there is no plan, with the last one there is."""
    drive = Drive(replace(CONFIG, pods=4, procs=2))
    drive.ready(0, 1, 2)
    drive.do(*(drive.up(3, pod) for pod in range(4)), *(drive.hello(3, rank) for rank in range(7)), Tick())

    assert drive.state.groups[3].state is GroupState.STARTING
    assert (drive.state.job, drive.state.plan) == (JobState.PENDING, None)

    drive.do(drive.hello(3, 7))

    assert drive.state.job is JobState.RUNNING
    assert drive.plan.stores == tuple(f"10.0.{rank // 2}.1:{29500 + rank}" for rank in range(8))


def test_f03_one_pod_failed_is_the_group_lost() -> None:
    """F03: podsPerGroup 4, one pod Failed and three ready: the group is not in the next plan, and one is lost."""
    drive = started(replace(CONFIG, pods=4))
    decision = drive.do(AgentGone(2, "u2", "pod Failed: evicted", 1))

    assert drive.plan.groups == (0, 1, 3)
    assert drive.state.masked == 1
    assert [here.group for here in drive.state.groups if here.state is GroupState.LOST] == [2]
    assert DeleteGroup(2, "u2") in decision.actions
    assert "group 2 lost (pod 1: pod Failed: evicted)" in drive.plan.reason


def test_f03_a_pod_that_ends_before_the_plan_takes_its_group_along() -> None:
    """Nothing of an incarnation that lacks a pod is admitted; the whole group is started anew."""
    drive = Drive(PODS)
    drive.ready(0, 1, 2)
    drive.do(drive.up(3, 0), drive.hello(3, 0), drive.hello(3, 1), AgentGone(3, "u3", "deleted", 1))

    assert DeleteGroup(3, "u3") in drive.all(DeleteGroup)
    drive.do(drive.up(3, 1), drive.hello(3, 2), drive.hello(3, 3))

    assert drive.state.plan is None
    drive.do(Tick(), after=1.0)
    assert drive.all(CreateGroup)[-1] == CreateGroup(3)
    drive.uids[3] = "u3b"
    drive.ready(3)
    assert drive.plan.has(3, "u3b")


@pytest.mark.parametrize("rank", range(4))
def test_any_rank_lost_is_the_group_lost(rank: int) -> None:
    """Whichever worker ends by a signal; what its siblings say afterwards is of no member."""
    drive = started(PODS)
    drive.do(drive.exited(1, rank=rank, signal=9))

    assert drive.plan.groups == (0, 2, 3)
    assert f"worker of rank {rank} killed by signal 9" in drive.plan.reason

    drive.do(*drive.ranks(drive.suspect, 1))
    assert drive.plan.epoch == 2


def test_two_ranks_lost_are_one_loss() -> None:
    """A group that loses several ranks at once is one decision and masked once."""
    drive = started(PODS)
    drive.do(*(drive.exited(1, rank=rank, signal=9) for rank in range(4)), AgentGone(1, "u1", "gone", 1))

    assert (drive.plan.epoch, drive.state.masked) == (2, 1)


def test_a_group_is_as_far_as_its_slowest_rank() -> None:
    """A step counts once every rank of a group has committed it."""
    drive = started(PODS)
    drive.do(*(drive.committed(0, 5, rank=rank) for rank in (0, 1, 3)))
    assert (drive.state.step, drive.state.groups[0].step) == (0, 0)

    drive.do(drive.committed(0, 5, rank=2, loss=0.25))
    assert (drive.state.step, drive.state.loss, drive.state.groups[0].step) == (5, 0.25, 5)


def test_ranks_that_report_different_steps_take_the_job_on() -> None:
    """Commits of short steps are not all reported, and not the same ones by all ranks."""
    drive = started(PODS)
    for first in range(1, 30, 4):
        for rank in range(4):
            drive.do(drive.committed(0, first + rank, rank=rank))

    assert drive.state.step == 29


def test_done_when_all_ranks_are_done() -> None:
    """And the groups' parameters are compared rank by rank."""
    drive = started(PODS)
    for group in range(4):
        for rank in range(4):
            assert not drive.state.finishing
            drive.do(drive.done(group, f"d{rank}", rank=rank))
    assert drive.state.finishing

    other = started(PODS)
    other.do(*(other.done(g, f"d{rank}", rank=rank) for g in range(3) for rank in range(4)))
    other.do(*(other.done(3, f"d{rank}" if rank else "x", rank=rank) for rank in range(4)))
    assert other.state.exit_code == 5


def test_the_job_is_complete_when_every_rank_has_ended() -> None:
    """One worker's end after the finish is not the group's."""
    drive = started(PODS)
    drive.finish()
    every = [(g, rank) for g in range(4) for rank in range(4)]
    for group, rank in every:
        assert not drive.state.ended
        drive.do(drive.exited(group, rank=rank, code=0))
    assert drive.state.job is JobState.COMPLETE


def test_a_joiner_is_active_when_all_its_ranks_have_committed() -> None:
    """Until then it has not got the whole state, and its loss would cost nothing."""
    drive = started(replace(PODS, replace=True))
    drive.do(drive.exited(2, rank=1, signal=9))
    drive.do(Tick(), after=1.0)
    for group in drive.state.live:
        drive.do(*drive.ranks(drive.running, group))
        drive.do(*drive.ranks(drive.committed, group, 4))
    drive.uids[2] = "u2b"
    drive.ready(2)
    assert drive.state.groups[2].state is GroupState.JOINING

    states = [drive.do(drive.committed(2, 5, rank=rank)).state.groups[2].state for rank in range(4)]
    assert states == [GroupState.JOINING] * 3 + [GroupState.ACTIVE]


def test_the_quietest_pod_counts() -> None:
    """One pod's silence loses the group though the other is heard."""
    drive = started(PODS)
    for _ in range(7):
        drive.now += 1.0
        first = [drive.alive(2, rank=rank) for rank in (0, 1)]
        others = [beat for g in (0, 1, 3) for beat in drive.ranks(drive.alive, g)]
        drive.do(*first, *others, Tick())

    assert drive.plan.groups == (0, 1, 3)
    assert "silent" in drive.plan.reason


def test_one_hanging_rank_is_a_hanging_group() -> None:
    """Its siblings wait for it in the same phase; the others wait in the reduction."""
    drive = started(PODS)
    reports: list[Signal] = [
        beat for g in (0, 1, 3) for beat in drive.ranks(drive.alive, g, phase="reduce", still=25.0)
    ]
    reports += [drive.alive(2, rank=rank, phase="compute", still=24.0 + rank) for rank in range(4)]
    drive.do(*reports, Tick())

    assert drive.plan.groups == (0, 1, 3)


def test_a_probe_is_answered_by_all_pods() -> None:
    """A suspicion waits for the pod that has not answered, and loses the group if it never does."""
    drive = started(PODS)
    drive.do(drive.suspect(0, 2), drive.suspect(0, 3, rank=1))
    [probe] = drive.all(ProbeAll)
    assert [s.unreachable for s in drive.state.suspicions] == [frozenset({2, 3})]
    answers = [a for g in (0, 1, 3) for a in drive.ranks(drive.alive, g, nonce=probe.nonce)]
    half = [drive.alive(2, rank=rank, nonce=probe.nonce) for rank in (0, 1)]
    drive.do(*answers, *half, after=0.1)
    drive.do(Tick(), after=2.0)
    assert drive.plan.epoch == 1

    drive.do(*(drive.alive(2, rank=rank, nonce=probe.nonce) for rank in (2, 3)))
    assert (drive.plan.epoch, drive.plan.groups) == (2, (0, 1, 2, 3))


def test_each_pod_has_its_connection() -> None:
    """Dialled when it is up, and told where the ranks meet as soon as pod 0 has said so and all are there.

    Not before: the other may wait for its node for days, and ranks that have begun wait for each other for minutes.
    """
    drive = Drive(PODS)
    meet = {"home": "10.0.0.1:4000", "master": "10.0.0.1:4001"}
    first = drive.do(drive.up(0, 0), drive.hello(0, 0, store=None, pid=0, **meet))
    later = drive.do(drive.up(0, 1), drive.hello(0, 2, store=None, pid=0))

    assert first.actions == (Connect(0, "u0", "10.0.0.1:7000", 0),)
    assert later.actions == (
        Connect(0, "u0", "10.0.1.1:7000", 1),
        SendAssemble(0, (0, 1), "10.0.0.1:4000", "10.0.0.1:4001"),
    )
    assert drive.do(drive.hello(0, 0)).actions == ()  # a worker's own: it has begun
    drive.do(LinkDown(0, "u0", "reset", 1))
    assert [pod.link_down is None for pod in drive.state.groups[0].pods] == [True, False]


def test_who_is_missing_is_named_by_pod_and_rank() -> None:
    """The start's deadline says which pod, which rank, and what was last seen of it."""
    drive = Drive(replace(PODS, start_timeout=30.0))
    drive.ready(0, 1)
    drive.do(drive.up(2, 0), *(drive.hello(2, rank) for rank in (0, 1)))
    drive.do(*(drive.up(3, pod) for pod in (0, 1)), *(drive.hello(3, rank) for rank in range(3)))
    drive.do(Tick(), after=31.0)

    assert "group 2: pod 1: the backend has not started its agent" in drive.state.verdict
    assert "group 3: pod 1: its agent runs at 10.0.1.4:7000, worker of rank 3 is not ready" in drive.state.verdict


def test_a_pod_that_cannot_be_started_is_the_group_not_started() -> None:
    """The pods that are there go with it."""
    drive = Drive(PODS)
    drive.do(drive.up(0, 0), AgentNotStarted(0, "image not found", 1))

    assert drive.state.groups[0].state is GroupState.LOST
    assert drive.all(DeleteGroup) == [DeleteGroup(0, "u0")]


def test_nobody_speaks_for_a_rank_that_there_is_not() -> None:
    """A report of another pod than the rank's, or of one too many, is refused."""
    drive = started(PODS)
    drive.do(drive.committed(0, 9, rank=4), drive.committed(0, 9, rank=1, pod=1), AgentUp(0, "new", "a:1", pod=7))

    assert drive.state.refused == 2
    assert drive.state.groups[0].uid == "u0"


def test_what_siblings_raise_when_one_dies_is_no_error_of_the_script() -> None:
    """Their collectives fail and their scripts end with that; whether the death or its echo is heard first."""
    for first in (True, False):
        drive = started(PODS)
        echo = drive.errored(1, rank=1, type="RuntimeError", text="gloo/x.cc: connection reset", inside=True)
        wrapped = drive.errored(1, rank=2, type="MyError", text="cannot go on")
        death = drive.exited(1, rank=0, signal=9)
        drive.do(*([death, echo, wrapped] if first else [echo, wrapped, death]))
        drive.do(drive.exited(1, rank=1, code=1), drive.exited(1, rank=2, code=1), Tick(), after=5.0)

        assert drive.end is None
        assert (drive.plan.groups, drive.state.masked) == ((0, 2, 3), 1)
        assert "worker of rank 0 killed by signal 9" in drive.plan.reason


def test_a_connection_inside_that_breaks_loses_the_group() -> None:
    """Nobody is known to have died, but it cannot be made again: after a moment the group is out, and why is told."""
    drive = started(PODS)
    broken = drive.do(drive.errored(1, rank=1, type="RuntimeError", text="gloo/x.cc: connection reset", inside=True))
    assert drive.plan.epoch == 1
    drive.do(Tick(), after=broken.wake - drive.now)

    assert (drive.plan.groups, drive.end) == ((0, 2, 3), None)
    assert "rank 1: RuntimeError: gloo/x.cc: connection reset" in drive.plan.reason


def test_an_exception_of_one_rank_ends_the_job_when_nobody_has_died() -> None:
    """It waits for a sibling's death that may have caused it, and not longer."""
    drive = started(PODS)
    raised = drive.do(drive.errored(1, rank=3), drive.exited(1, rank=3, code=1))
    assert drive.end is None
    drive.do(Tick(), after=raised.wake - drive.now)

    assert drive.end is not None
    assert drive.end.code == 1
    assert "ValueError: bad shape (group 1, rank 3, step 3)" in drive.end.verdict


def test_a_pod_that_shows_itself_after_its_sibling_could_not_be_started() -> None:
    """Its incarnation has the number then, and what is missing of it is asked for again: nobody else would (F27)."""
    drive = Drive(PODS)
    drive.ready(0, 1, 2)
    drive.do(AgentNotStarted(3, "refused by a webhook", 1))
    before = len(drive.all(CreateGroup))

    drive.do(drive.up(3, 0), after=0.1)

    assert drive.all(CreateGroup)[before:] == [CreateGroup(3)]
    drive.ready(3)
    assert drive.plan.groups == (0, 1, 2, 3)


@pytest.mark.parametrize("inside", [True, False])
def test_what_a_rank_raised_is_not_judged_once_its_group_was_let_go(inside: bool) -> None:
    """It is no member any more: its end tells, and neither the job nor its coordinator ends by it."""
    drive = started(PODS)
    drive.do(*(running for g in range(4) for running in drive.ranks(drive.running, g)))
    drive.do(drive.say(wire.Leave, 1, grace=30.0, reason="SIGTERM"))
    raised = drive.errored(1, rank=1, type="RuntimeError", text="gloo/x.cc: connection reset", inside=inside)
    drive.do(raised, after=0.8 * PODS.settle)
    drive.do(Tick(), after=0.4 * PODS.settle)
    assert drive.state.groups[1].state is GroupState.LEFT

    drive.do(Tick(), after=2.0)

    assert drive.end is None
    assert drive.plan.groups == (0, 2, 3)


def test_a_script_that_raises_is_told_though_its_end_breaks_its_siblings_connections() -> None:
    """Its process ends a moment after it has raised, and what the siblings raise because of that is judged sooner."""
    for wait in (0.06, 0.3, 0.9):
        drive = started(PODS)
        drive.do(drive.errored(1, rank=3))
        echo = drive.errored(1, rank=0, type="RuntimeError", text="gloo/x.cc: connection reset", inside=True)
        said = drive.do(drive.exited(1, rank=3, code=1), echo, after=wait)
        while drive.end is None and said.wake < float("inf"):
            assert said.wake > drive.now, "it wakes for nothing"
            said = drive.do(Tick(), after=said.wake - drive.now)

        assert drive.end is not None
        assert (drive.end.code, drive.state.masked) == (1, 0)
        assert "ValueError: bad shape (group 1, rank 3, step 3)" in drive.end.verdict
