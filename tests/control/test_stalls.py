"""Standing still: who is waited for, who has left early, what a late heartbeat says, and a freeze at the end."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from spare.control.action import Announce, CreateGroup, DeleteGroup
from spare.control.signal import StoodStill, Tick
from tests.control.drive import CONFIG, Drive, started


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


@pytest.mark.parametrize("said", ["nothing yet", "by its agent"])
def test_silence_while_the_coordinator_itself_stood_still_is_nobody_s(said: str) -> None:
    """A machine that was stopped as a whole: its agents have counted as long, and speak again one after the other."""
    drive = started()
    drive.hear()
    heard = [
        drive.alive(g, worker="running", silent_for=20.0, still=500.0)
        for g in ((1, 3) if said == "by its agent" else ())
    ]
    drive.do(StoodStill(20.0), *heard, Tick(), after=20.0)
    assert (drive.plan.epoch, drive.state.losses) == (1, ())
    assert "stood still for 20.0 s" in drive.decisions[-1].reason + str(drive.all(Announce))

    drive.hear(after=1.0)
    drive.do(Tick(), after=1.0)
    assert drive.plan.epoch == 1


def test_who_stays_silent_after_the_coordinator_went_on_is_lost() -> None:
    """Its silence counts from then."""
    drive = started()
    drive.hear()
    drive.do(StoodStill(20.0), Tick(), after=20.0)
    for _ in range(6):
        drive.hear(0, 2, 3, after=drive.config.dead_after / 4)
        drive.do(Tick())

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


def test_who_says_nothing_after_a_commit_is_stuck_though_its_last_heartbeat_is_older() -> None:
    """Native code that holds Python's lock lets no heartbeat out: the agent repeats one of some steps ago."""
    drive = started(hang_after=6.0)
    drive.do(*(drive.committed(g, 3) for g in range(4)))
    waiting = [drive.alive(g, phase="reduce", step=3, still=7.0) for g in (0, 2, 3)]
    drive.do(*waiting, drive.alive(1, phase="rendezvous", step=0, epoch=0, still=9.0, silent_for=7.5), Tick())

    assert drive.plan.groups == (0, 2, 3)
    assert "made no progress for 7.5 s in 'compute'" in drive.plan.reason


def test_who_is_stuck_in_the_commit_is_waited_for_by_those_in_the_next_step() -> None:
    """Its optimizer never returns: the others have committed, and wait for it in the reduction of the step after."""
    drive = started(hang_after=6.0)
    drive.do(*(drive.committed(g, 1) for g in (0, 2, 3)))
    drive.do(
        *(drive.alive(g, phase="reduce", step=1, still=7.0) for g in (0, 2, 3)),
        drive.alive(1, phase="commit", step=0, still=8.0),
        Tick(),
    )

    assert drive.plan.groups == (0, 2, 3)
    assert "made no progress for 8.0 s in 'commit'" in drive.plan.reason


def test_a_joiner_that_never_acts_on_its_plan_is_lost() -> None:
    """It was ready, and is stuck before it comes to the rendezvous, where the others wait."""
    drive = started(hang_after=6.0)
    waiting = [drive.alive(g, phase="rendezvous", still=7.0) for g in (0, 2, 3)]
    drive.do(*waiting, drive.alive(1, phase="starting", epoch=0, still=9.0), Tick())

    assert drive.plan.groups == (0, 2, 3)


def test_a_replacement_that_does_not_get_ready_is_started_again() -> None:
    """Not before its time, and again and again; a backend that has not started anything yet is not hurried."""
    drive = started(replace=True, start_timeout=100.0)
    drive.do(drive.exited(2))
    drive.do(Tick(), after=1.0)
    for attempt in range(2):
        drive.uids[2] = f"u2-{attempt}"
        drive.do(drive.up(2))
        for _ in range(5):
            drive.hear(after=18.0)
        assert DeleteGroup(2, drive.uids[2]) not in drive.all(DeleteGroup)
        drive.hear(after=20.0)
        assert DeleteGroup(2, drive.uids[2]) in drive.all(DeleteGroup)
        drive.hear(after=60.0)
    told = [a.text for a in drive.all(Announce) if a.reason == "PodsNotStarting"]

    assert len(told) == 2
    assert "its worker was not ready 1" in told[0]
    assert "spec.detection.startTimeout" in told[0]
    assert drive.state.masked == 1


def test_a_worker_stopped_before_its_hello_is_started_again_at_once() -> None:
    """Before the first plan as after it."""
    drive = Drive(CONFIG)
    drive.do(*(drive.up(g) for g in range(4)), *(drive.hello(g) for g in (0, 2, 3)))
    drive.do(drive.alive(1, worker="silent", silent_for=4.0, phase="starting"), after=4.0)
    assert drive.all(DeleteGroup) == []
    drive.do(drive.alive(1, worker="silent", silent_for=5.5, phase="starting"), after=1.5)

    assert drive.all(DeleteGroup) == [DeleteGroup(1, "u1")]
    assert drive.state.groups[1].retry is not None


def test_silence_of_all_has_an_end() -> None:
    """Our own network, nobody is lost; after the limit the job says that it gives up, and why."""
    drive = started(unheard_limit=60.0)
    for _ in range(11):
        drive.do(Tick(), after=5.5)
    assert drive.end is None
    for _ in range(2):
        drive.do(Tick(), after=5.5)

    assert drive.end is not None
    assert drive.end.code == 4
    assert "no agent has been heard for" in drive.end.verdict
    assert drive.state.masked == 0


def test_a_network_that_comes_back_starts_the_count_anew() -> None:
    """Two short absences are not one long one."""
    drive = started(unheard_limit=60.0)
    for _ in range(4):
        for _ in range(7):
            drive.do(Tick(), after=5.5)
        drive.hear()
        drive.hear(after=0.5)

    assert drive.end is None
    assert drive.state.losses == ()


def test_an_agent_that_falls_silent_before_the_first_plan_is_started_again() -> None:
    """Its host is gone, and nothing tells of it; the job does not wait for startTimeout to end. Who has never said
    anything may still be fetching its image, and if nobody is heard it is our own network."""
    drive = Drive(replace(CONFIG, replace=True, start_timeout=600.0))
    drive.do(*(drive.up(g) for g in range(4)))
    drive.hear(0, 1, 2, phase="starting")
    drive.hear(0, 1, after=4.0, phase="starting")
    drive.do(Tick(), after=30.0)
    assert drive.all(DeleteGroup) == []

    drive.hear(0, 1, phase="starting")

    assert drive.all(DeleteGroup) == [DeleteGroup(2, "u2")]
    [told] = [a.text for a in drive.all(Announce) if a.reason == "PodsNotStarting"]
    assert "group 2 is started again: its agent was silent for 34.0 s" in told
    assert drive.state.masked == 0


def test_who_is_stuck_in_the_last_commit_is_waited_for_by_those_that_are_done() -> None:
    """There is no step after it: nobody else would ever notice."""
    drive = started(hang_after=6.0)
    drive.do(*(drive.committed(g, 10) for g in (0, 2, 3)), *(drive.done(g) for g in (0, 2, 3)))
    waiting = [drive.alive(g, phase="done", step=10, still=7.0) for g in (0, 2, 3)]
    drive.do(*waiting, drive.alive(1, phase="commit", step=9, still=8.0), Tick())

    assert drive.plan.groups == (0, 2, 3)
    assert "made no progress for 8.0 s in 'commit'" in drive.plan.reason


def test_who_saves_the_last_step_for_long_is_not_stuck() -> None:
    """It has committed, too, and says that it is done when its checkpoint is."""
    drive = started(hang_after=6.0)
    drive.do(*(drive.committed(g, 10) for g in range(4)), *(drive.done(g) for g in (0, 1, 2)))
    for still in (7.0, 70.0, 700.0):
        waiting = [drive.alive(g, phase="done", step=10, still=still) for g in (0, 1, 2)]
        drive.do(*waiting, drive.alive(3, phase="compute", step=10, still=still), Tick(), after=1.0)

    assert (drive.plan.epoch, drive.end) == (1, None)


def test_a_script_that_hangs_before_it_is_ready_is_started_again_where_pods_may_take_for_ever() -> None:
    """On a cluster nothing limits the wait for a pod; from when its agent runs, startTimeout does."""
    drive = Drive(replace(CONFIG, start_timeout=math.inf, ready_timeout=60.0))
    drive.ready(0, 1, 2)

    def pass_by(seconds: int, *groups: int) -> None:
        for _ in range(seconds):
            drive.do(*(drive.alive(g, worker="none" if g == 3 else "running") for g in groups), Tick(), after=1.0)

    pass_by(200, 0, 1, 2)
    drive.do(drive.up(3))
    pass_by(59, 0, 1, 2, 3)
    assert drive.all(DeleteGroup) == []
    pass_by(3, 0, 1, 2, 3)

    assert drive.all(DeleteGroup) == [DeleteGroup(3, "u3")]
    [told] = [a.text for a in drive.all(Announce) if a.reason == "PodsNotStarting"]
    assert "group 3 is started again: its worker was not ready 61 s after its agent ran" in told
    pass_by(3, 0, 1, 2)
    assert drive.all(CreateGroup)[-1] == CreateGroup(3)
    assert drive.end is None


def stuck_in(drive: Drive, last: dict[str, Any], *, all_silent: bool = False) -> None:
    """Group 1 says nothing after `last`, for so long; the others wait in step 10, and say so, or nothing either."""
    drive.do(drive.alive(1, **last), Tick())
    for seconds in (4.0, 8.0):
        quiet = {"silent_for": seconds if all_silent else 0.0, "still": seconds}
        waiting = [drive.alive(g, phase="reduce", step=10, **quiet) for g in (0, 2, 3)]
        drive.do(*waiting, drive.alive(1, **last, still=seconds, silent_for=seconds), Tick(), after=4.0)


@pytest.mark.parametrize(
    "last", [{"phase": "barrier", "step": 9}, {"phase": "reduce", "step": 10}, {"phase": "compute", "step": 10}]
)
def test_who_is_stuck_where_it_can_tell_nothing_is_lost_whatever_it_told_last(last: dict[str, Any]) -> None:
    """Native code keeps Python's lock: the last heartbeat may be of the barrier before (not every commit is reported),
    or of a reduction that was begun again."""
    drive = started(hang_after=6.0)
    stuck_in(drive, last)

    assert drive.plan.groups == (0, 2, 3)
    assert f"made no progress for 8.0 s in {last['phase']!r}" in drive.plan.reason


def test_where_no_worker_can_say_anything_nobody_is_to_blame() -> None:
    """The heartbeats of all stay away, while their agents are there: whoever told of a reduction last may not wait."""
    drive = started(hang_after=6.0)
    stuck_in(drive, {"phase": "compute", "step": 10}, all_silent=True)

    assert (drive.plan.epoch, drive.end) == (1, None)


def test_a_joiner_that_waits_to_be_met_is_not_stuck_though_the_others_are_steps_ahead() -> None:
    """It beats, and tells of the rendezvous: all wait there for a group that still computes."""
    drive = started(hang_after=60.0)
    waits = [drive.alive(g, phase="rendezvous", step=0 if g == 3 else 10, still=70.0) for g in (0, 2, 3)]
    drive.do(*waits, drive.alive(1, step=10, still=1.0), Tick())

    assert (drive.plan.epoch, drive.end) == (1, None)
