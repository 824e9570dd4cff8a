"""Lost groups come back: started after a pause, admitted at a boundary, counted once."""

from __future__ import annotations

import pytest

from spare.api import wire
from spare.api.reasons import EventReason
from spare.api.spec import OnWipeOut
from spare.control.action import Announce, CreateGroup
from spare.control.signal import AgentGone, Tick
from spare.control.state import GroupState, JobState
from spare.planner import check
from tests.control.drive import Drive, started


def degraded() -> Drive:
    """A job that has lost group 2, whose survivors run under plan 2 and have committed a step in it."""
    drive = started(replace=True)
    drive.do(*(drive.say(wire.Running, g, step=0) for g in range(4)))
    drive.do(drive.exited(2))
    drive.do(*(drive.say(wire.Running, g, step=3) for g in (0, 1, 3)))
    drive.do(*(drive.committed(g, 4) for g in (0, 1, 3)))
    return drive


def returned(drive: Drive) -> None:
    """Group 2 is started again and says hello."""
    drive.do(Tick(), after=1.0)
    drive.uids[2] = "again2"
    drive.ready(2)


def test_a_lost_group_is_started_again_after_a_pause() -> None:
    """Not in the same breath as the plan that goes on without it: survivors come first."""
    drive = degraded()
    before = len(drive.all(CreateGroup))

    drive.do(Tick(), after=1.0)

    assert [a.group for a in drive.all(CreateGroup)[before:]] == [2]
    assert drive.state.groups[2].state is GroupState.STARTING


def test_a_ready_replacement_is_admitted_by_a_boundary_plan() -> None:
    """Its base stays that of the last urgent plan, so members act at a commit; the joiner is admitted by this epoch."""
    drive = degraded()

    returned(drive)

    plan = drive.plan
    assert (plan.epoch, plan.base) == (3, 2)
    assert {m.group: m.admission for m in plan.members} == {0: 1, 1: 1, 2: 3, 3: 1}
    assert plan.leader == 0
    assert check(plan.schedule) == ()
    assert plan.schedule.depth == 1.0
    assert drive.state.job is JobState.DEGRADED


def test_a_joiner_is_back_when_it_has_committed() -> None:
    """Then the job runs whole again, one event says so, and its loss was masked once."""
    drive = degraded()
    returned(drive)
    drive.do(*(drive.say(wire.Running, g, step=5) for g in range(4)))

    drive.do(*(drive.committed(g, 6) for g in range(4)))

    assert drive.state.job is JobState.RUNNING
    assert drive.state.masked == 1
    back = [a for a in drive.all(Announce) if a.reason == EventReason.GROUP_REJOINED]
    assert [a.groups for a in back] == [(2,)]


def test_nobody_is_admitted_while_a_member_has_not_said_that_it_runs() -> None:
    """A boundary plan before that could overtake the urgent one."""
    drive = started(replace=True)
    drive.do(*(drive.say(wire.Running, g, step=0) for g in range(4)))
    drive.do(drive.exited(2))
    drive.do(*(drive.say(wire.Running, g, step=3) for g in (0, 1)))

    returned(drive)
    assert drive.plan.epoch == 2

    drive.do(drive.say(wire.Running, 3, step=3), drive.committed(0, 4))
    assert drive.plan.epoch == 3


def test_a_joiner_that_dies_again_is_no_second_loss() -> None:
    """An urgent plan goes on without it, masked stays, and it is started once more, after a longer pause."""
    drive = degraded()
    returned(drive)

    drive.do(drive.exited(2))

    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (4, 4, (0, 1, 3))
    assert drive.state.masked == 1
    assert drive.state.groups[2].retry is not None
    assert drive.state.groups[2].retry - drive.now > 0.5


def test_a_member_lost_while_another_joins_leaves_the_joiner_a_joiner() -> None:
    """The urgent plan keeps the admission, and the leader is one that has the state."""
    drive = degraded()
    returned(drive)

    drive.do(drive.exited(0))

    assert (drive.plan.epoch, drive.plan.base) == (4, 4)
    assert {m.group: m.admission for m in drive.plan.members} == {1: 1, 2: 3, 3: 1}
    assert drive.plan.leader == 1
    assert drive.state.groups[2].state is GroupState.JOINING


def test_a_joiner_alone_with_a_shard_does_not_save_it() -> None:
    """What is missing of the step in flight can only be computed by who has the state."""
    drive = started(replace=True, redundancy=2)
    drive.do(*(drive.say(wire.Running, g, step=0) for g in range(4)))
    drive.do(drive.exited(2))
    drive.do(*(drive.say(wire.Running, g, step=3) for g in (0, 1, 3)))
    drive.do(*(drive.committed(g, 4) for g in (0, 1, 3)))
    returned(drive)
    placement = drive.plan.schedule.placement
    other = next(g for shard in placement.stack(2) for g in placement.hosts(shard) if g != 2)

    drive.do(drive.exited(other))

    assert drive.end is not None
    assert "wipe-out" in drive.end.verdict


def test_nobody_is_admitted_once_a_member_is_done() -> None:
    """The job is about to end: a joiner would only hold it up."""
    drive = degraded()
    drive.do(drive.done(0))

    returned(drive)

    assert drive.plan.epoch == 2


def test_f03_an_ended_worker_is_not_live_though_its_agent_answers() -> None:
    """F03: what has ended but still exists counts as lost, however often its agent says hello."""
    drive = started(replace=True)
    drive.do(*(drive.say(wire.Running, g, step=0) for g in range(4)))

    drive.do(drive.exited(2))
    drive.do(drive.hello(2), drive.alive(2, worker="exited"), after=0.1)

    assert drive.plan.groups == (0, 1, 3)
    assert drive.state.groups[2].state is GroupState.LOST


def test_f03_a_replacement_that_is_going_away_is_never_admitted() -> None:
    """F03: it was ready, but its end is known before a plan could admit it."""
    drive = started(replace=True)
    drive.do(*(drive.say(wire.Running, g, step=0) for g in range(4)))
    drive.do(drive.exited(2))
    returned(drive)  # ready, while the survivors have not said that they run
    drive.do(AgentGone(2, "again2", "deleted"))

    drive.do(*(drive.say(wire.Running, g, step=3) for g in (0, 1, 3)))
    drive.do(*(drive.committed(g, 4) for g in (0, 1, 3)))

    assert drive.plan.epoch == 2
    assert drive.plan.groups == (0, 1, 3)


def _answered(drive: Drive) -> None:
    """Every member answers the probe, and there was time for a death to be told."""
    drive.do(*(drive.alive(g, nonce=drive.state.probes) for g in drive.state.live))
    drive.do(Tick(), after=0.1)


@pytest.mark.parametrize("kind", ["RendezvousTimeout", "PlanTimeout", "LedgerUnwritable"])
def test_what_keeps_a_joiner_from_joining_costs_the_joiner_alone(kind: str) -> None:
    """An urgent plan goes on without it, that is said, and it is started once more after a pause."""
    drive = degraded()
    returned(drive)

    drive.do(drive.errored(2, type=kind, ours=True, text="waited 300 s for the store of the leader"))

    assert drive.end is None
    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (4, 4, (0, 1, 3))
    assert "could not join" in drive.plan.reason
    assert "waited 300 s for the store of the leader" in drive.plan.reason
    assert drive.state.masked == 1
    assert drive.state.groups[2].retry is not None


@pytest.mark.parametrize("kind", ["StateDiverged", "CheckpointMismatch"])
def test_what_a_joiner_says_of_the_jobs_state_ends_the_job(kind: str) -> None:
    """It would be true of the next one as well."""
    drive = degraded()
    returned(drive)

    drive.do(drive.errored(2, type=kind, ours=True))

    assert drive.end is not None


def test_a_joiner_that_the_members_wait_for_in_vain_goes_at_once() -> None:
    """Though it answers the probe: it has nothing that the job needs."""
    drive = degraded()
    returned(drive)

    drive.do(drive.suspect(0, 2, phase="rendezvous"), drive.suspect(1, 2, phase="rendezvous"))
    _answered(drive)

    assert drive.plan.groups == (0, 1, 3)
    assert drive.state.groups[2].retry is not None


def test_a_joiner_that_cannot_reach_its_donor_goes_and_not_the_donor() -> None:
    """The same members try once more; if it fails again, and nobody else complains of the donor, it is the joiner."""
    drive = degraded()
    returned(drive)
    for epoch, groups in ((4, (0, 1, 2, 3)), (5, (0, 1, 3))):
        drive.do(drive.suspect(2, 0, phase="load"), drive.suspect(1), drive.suspect(3))
        _answered(drive)

        assert (drive.plan.epoch, drive.plan.groups) == (epoch, groups)


def test_a_joiner_with_whom_everything_fails_goes_though_nobody_is_named() -> None:
    """The others cannot connect to it, say, and what fails tells no name: the job must not end by it."""
    drive = degraded()
    returned(drive)
    for _ in range(4):
        assert drive.plan.groups == (0, 1, 2, 3)
        drive.do(*(drive.suspect(g) for g in drive.plan.groups))
        _answered(drive)

    assert (drive.plan.groups, drive.end) == ((0, 1, 3), None)
    assert "it could not join: 4 failures running" in drive.plan.reason


def test_a_donor_that_a_member_cannot_reach_either_is_the_one_to_go() -> None:
    """Then two complain of it."""
    drive = degraded()
    returned(drive)
    for groups in ((0, 1, 2, 3), (1, 2, 3)):
        drive.do(drive.suspect(2, 0, phase="load"), drive.suspect(1, 0), drive.suspect(3))
        _answered(drive)

        assert drive.plan.groups == groups


def test_members_that_all_died_are_lost_though_no_other_member_is_heard() -> None:
    """A group that waits to be admitted shows that our own network works."""
    drive = degraded()
    returned_but_not_admitted(drive)
    for _ in range(30):
        drive.do(drive.alive(2), Tick(), after=drive.config.heartbeat)
        if drive.end is not None:
            break

    assert drive.end is not None
    assert "wipe-out" in drive.end.verdict


def returned_but_not_admitted(drive: Drive) -> None:
    """Group 2 is ready, and all members have fallen silent before."""
    drive.do(Tick(), after=1.0)
    drive.uids[2] = "again2"
    drive.do(drive.suspect(0), drive.up(2), drive.hello(2))


def test_nobody_is_admitted_in_the_breath_in_which_the_job_begins_again() -> None:
    """A wipe-out that leads to a restart: who is ready begins with the others, by the plan of the restart."""
    drive = started(replace=True, redundancy=2, on_wipe_out=OnWipeOut.RESTART)
    drive.do(*(drive.say(wire.Running, g, step=0) for g in range(4)))
    drive.do(drive.exited(2))
    drive.uids[2] = "again2"
    drive.do(Tick(), after=1.0)
    drive.ready(2)
    placement = drive.plan.schedule.placement
    other = next(g for shard in placement.stack(2) for g in placement.hosts(shard) if g != 2)

    drive.do(*(drive.say(wire.Running, g, step=3) for g in (0, 1, 3) if g != other), drive.exited(other))

    assert drive.end is None
    assert drive.state.restarts == 1
    assert drive.state.starting
    assert drive.plan.epoch == 2
