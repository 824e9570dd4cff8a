"""Warm spares: started last, given the place of a lost group at once, replaced when they are used up or die."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spare.api import wire
from spare.api.reasons import EventReason
from spare.api.spec import OnWipeOut
from spare.control.action import Announce, Connect, CreateGroup, DeleteGroup, PushPlan, SendStop, TakeOver
from spare.control.config import Config
from spare.control.record import Kept, document
from spare.control.resume import resume
from spare.control.signal import AgentGone, AgentNotStarted, AgentUp, DrainGroup, LinkDown, Signal, Suspend, Tick
from spare.control.state import GroupState
from tests.control.drive import CONFIG, Drive

SPARE = 4
"""Number of the first spare: groups are 0 to 3."""


def begun(config: Config = CONFIG, **changes: Any) -> Drive:
    """A job under its first plan, all groups running; its spares are being started."""
    drive = Drive(replace(config, **{"replace": True, "spares": 1, **changes}))
    drive.ready()
    drive.do(*(drive.say(wire.Running, g, step=0) for g in range(4)))
    drive.do(Tick())
    return drive


def warm(**changes: Any) -> Drive:
    """The same, and its spares are ready."""
    drive = begun(**changes)
    drive.ready(*range(SPARE, drive.config.numbers))
    return drive


def told(drive: Drive, reason: EventReason) -> list[str]:
    """What was announced for a reason."""
    return [a.text for a in drive.all(Announce) if a.reason == reason]


def goes_on(drive: Drive, step: int) -> None:
    """The survivors run under the present plan and commit a step."""
    live = [g for g in drive.state.live if drive.state.groups[g].state is not GroupState.JOINING]
    drive.do(*(drive.say(wire.Running, g, step=step) for g in live))
    drive.do(*(drive.committed(g, step + 1) for g in live))


def state_of(drive: Drive, number: int) -> GroupState:
    """Of a group, or spare, now."""
    return drive.state.at(number).state


def created(drive: Drive) -> list[int]:
    """Numbers that were started, in order."""
    return [a.group for a in drive.all(CreateGroup)]


# --- they are kept ------------------------------------------------------------------------------------------------


def test_spares_are_started_after_the_first_plan() -> None:
    """Groups come first: nothing of a quota or of a machine is a spare's before all of them are there (F46)."""
    drive = Drive(replace(CONFIG, replace=True, spares=2))
    drive.do(Tick(), after=2.0)
    assert created(drive) == [0, 1, 2, 3]

    drive.ready()
    drive.do(Tick())

    assert created(drive) == [0, 1, 2, 3, 4, 5]
    assert [here.state for here in drive.state.spares] == [GroupState.STARTING] * 2


def test_a_ready_spare_takes_part_in_nothing() -> None:
    """It is told of, and in no plan."""
    drive = warm()

    assert told(drive, EventReason.SPARE_READY) == ["spare 0 ready"]
    assert (drive.plan.epoch, drive.plan.groups) == (1, (0, 1, 2, 3))
    assert drive.state.spares[0].state is GroupState.READY


@pytest.mark.parametrize("how", ["worker", "agent", "not started", "error", "silence", "drained"])
def test_a_spare_that_dies_is_no_loss(how: str) -> None:
    """The job does not care; another is started after a pause."""
    drive = begun() if how == "not started" else warm()
    if how == "silence":
        for _ in range(8):
            drive.hear(after=1.0)
    else:
        ways: dict[str, Signal] = {
            "worker": drive.exited(SPARE),
            "agent": AgentGone(SPARE, "u4", "the agent exited"),
            "not started": AgentNotStarted(SPARE, "no room"),
            "error": drive.exited(SPARE, code=1, tail="ImportError"),
            "drained": DrainGroup(SPARE, "node is going", 5.0, uid="u4"),
        }
        drive.do(ways[how])

    assert (drive.plan.epoch, drive.state.masked, drive.state.losses_seen, drive.end) == (1, 0, 0, None)
    assert len(told(drive, EventReason.SPARE_LOST)) == 1
    drive.hear(after=3.0)
    assert created(drive)[4:] == [4, 4]
    if how != "not started":
        assert DeleteGroup(SPARE, "u4") in drive.all(DeleteGroup)


def test_a_spare_that_raises_fails_no_job() -> None:
    """Not even while the groups start again, when any exception of the script would: it has said so before a place."""
    drive = warm()
    drive.do(drive.errored(SPARE), drive.exited(SPARE, code=1))

    assert drive.end is None
    assert drive.state.errors == ()


def test_the_pause_grows_while_spares_do_not_last() -> None:
    """And begins anew after one that has lasted."""
    drive = warm()
    pauses = []
    for n in range(4):
        drive.do(AgentGone(SPARE, drive.uids[SPARE], "gone"))
        retry = drive.state.spares[0].retry
        assert retry is not None
        pauses.append(retry - drive.now)
        drive.do(Tick(), after=pauses[-1])
        drive.uids[SPARE] = f"again{n}"
        drive.ready(SPARE)
    for _ in range(70):
        drive.hear(0, 1, 2, 3, SPARE, after=1.0)
    drive.do(AgentGone(SPARE, drive.uids[SPARE], "gone"))

    assert pauses == [0.5, 1.0, 2.0, 4.0]
    assert drive.state.spares[0].retry == drive.now + 0.5


# --- they take places ---------------------------------------------------------------------------------------------


def test_a_spare_takes_a_lost_groups_place_at_once() -> None:
    """In the decision that answers the loss; the next boundary plan admits it, and another spare is started."""
    drive = warm()

    drive.do(drive.exited(2))

    assert drive.plan.groups == (0, 1, 3)
    assert drive.all(TakeOver) == [TakeOver(2, SPARE, "u4")]
    here = drive.state.groups[2]
    assert (here.state, here.uid, here.stores) == (GroupState.READY, "u4", ("10.0.0.5:29500",))
    assert 2 not in created(drive)[4:]
    goes_on(drive, 3)
    assert (drive.plan.epoch, drive.plan.base) == (3, 2)
    assert [(m.group, m.uid, m.admission) for m in drive.plan.members if m.group == 2] == [(2, "u4", 3)]
    assert drive.plan.part_for(2, "u4").group == 2
    drive.hear(after=1.0)
    assert created(drive)[4:] == [SPARE, SPARE]
    assert drive.state.masked == 1


def test_what_it_says_under_its_old_number_is_the_groups() -> None:
    """It learns its number by the plan; until then, and in whatever order, its incarnation tells who it is."""
    drive = warm()
    drive.do(drive.exited(2))
    goes_on(drive, 3)

    drive.do(drive.alive(SPARE, step=0, phase="rendezvous"), AgentUp(SPARE, "u4", "10.0.0.5:7000"))
    drive.uids[2] = "u4"
    drive.do(drive.say(wire.Running, 2, step=5), *(drive.committed(g, 6) for g in range(4)))

    assert state_of(drive, 2) is GroupState.ACTIVE
    assert told(drive, EventReason.GROUP_REJOINED) == ["group 2 is back, as what was spare 0, in epoch 3"]
    assert drive.state.refused == 0
    assert drive.state.spares[0].uid == ""

    drive.do(drive.exited(SPARE))
    assert state_of(drive, 2) is GroupState.LOST
    assert drive.state.masked == 2


def test_one_spare_and_two_losses() -> None:
    """The lower group gets it; the other is started as ever, before the next spare is."""
    drive = warm()

    drive.do(drive.exited(3), drive.exited(1))
    drive.do(Tick(), after=0.6)

    assert drive.all(TakeOver) == [TakeOver(1, SPARE, "u4")]
    assert drive.state.groups[3].state is GroupState.STARTING
    assert created(drive)[4:] == [SPARE, 3]
    drive.uids[3] = "again3"
    drive.do(drive.up(3))
    drive.do(Tick(), after=0.1)
    assert created(drive)[4:] == [SPARE, 3, SPARE]


def test_a_spare_that_dies_joining_is_followed_after_a_pause() -> None:
    """Each that cannot join costs the others a regroup, so the next, spare or not, has to wait."""
    drive = warm(spares=2)
    drive.do(drive.exited(2))
    goes_on(drive, 3)

    drive.uids[2] = "u4"
    drive.do(drive.exited(2))

    assert drive.plan.groups == (0, 1, 3)
    assert drive.state.masked == 1
    assert len(drive.all(TakeOver)) == 1
    drive.hear(0, 1, 3, SPARE + 1, after=1.1)
    assert drive.all(TakeOver)[1:] == [TakeOver(2, SPARE + 1, "u5")]


def test_a_group_that_was_drained_is_followed_at_once() -> None:
    """Its number is free from the plan on that lets it go."""
    drive = warm()
    drive.do(DrainGroup(1, "spare drain", 30.0))
    drive.hear(0, 1, 2, 3, SPARE, after=0.1)
    assert drive.plan.groups == (0, 2, 3)
    assert drive.decisions[-1].wake <= drive.now
    drive.do(Tick())

    assert drive.state.groups[1].state is GroupState.READY
    assert drive.all(TakeOver) == [TakeOver(1, SPARE, "u4")]


def test_nobody_is_followed_where_nobody_is_to_come_back() -> None:
    """`spare drain --no-replacement` means it."""
    drive = warm()
    drive.do(DrainGroup(1, "spare drain", 30.0, again=False))
    drive.hear(0, 1, 2, 3, SPARE, after=0.1)
    drive.do(Tick(), after=2.0)

    assert drive.state.groups[1].state is GroupState.LEFT
    assert drive.all(TakeOver) == []


@pytest.mark.parametrize("how", ["line down", "quiet", "stopped", "starting"])
def test_only_a_spare_that_is_there_is_given_a_place(how: str) -> None:
    """A dead one would cost the others a second plan."""
    drive = begun() if how == "starting" else warm()
    if how == "line down":
        drive.do(LinkDown(SPARE, "u4", "reset"))
    elif how == "quiet":
        drive.hear(after=1.5)
        drive.hear(after=1.5)
    elif how == "stopped":
        drive.do(drive.alive(SPARE, worker="silent", silent_for=1.0))

    drive.do(drive.exited(2))

    assert drive.all(TakeOver) == []
    assert drive.state.groups[2].state is GroupState.LOST


def test_a_start_that_hangs_is_overtaken() -> None:
    """A pod that finds no room must not keep a ready spare from its place; comes it later, it is ended."""
    drive = begun()
    drive.do(drive.exited(2))
    drive.hear(0, 1, 3, after=0.6)
    assert created(drive)[-1] == 2
    drive.ready(SPARE)
    assert drive.all(TakeOver) == []

    for _ in range(6):
        drive.hear(0, 1, 3, SPARE, after=1.0)
    assert drive.all(TakeOver) == [TakeOver(2, SPARE, "u4")]

    drive.do(AgentUp(2, "late", "10.0.0.99:7000"))
    assert DeleteGroup(2, "late") in drive.all(DeleteGroup)
    assert drive.state.groups[2].uid == "u4"
    assert [a for a in drive.all(Connect) if a.uid == "late"] == []


def test_a_spare_counts_for_min_groups() -> None:
    """The survivors need not wait for a replacement that is there already."""
    drive = warm(min_groups=4)

    drive.do(drive.exited(2))

    assert drive.plan.epoch == 2
    assert told(drive, EventReason.BELOW_MIN_GROUPS) == []


def test_a_group_of_several_pods_is_taken_as_a_whole() -> None:
    """All ranks of the spare are the group's."""
    drive = begun(pods=2, procs=2)
    drive.do(drive.up(SPARE, 0), drive.up(SPARE, 1))
    drive.do(*drive.ranks(drive.hello, SPARE)[:3])
    assert state_of(drive, SPARE) is GroupState.STARTING
    drive.do(drive.ranks(drive.hello, SPARE)[3])
    assert state_of(drive, SPARE) is GroupState.READY

    drive.do(drive.exited(2))

    assert drive.all(TakeOver) == [TakeOver(2, SPARE, "u4")]
    assert len(drive.state.groups[2].stores) == 4


# --- the job's other turns ----------------------------------------------------------------------------------------


def test_a_restart_begins_with_the_spare() -> None:
    """After a wipe-out it is one of the groups that begin again."""
    drive = warm(redundancy=2, on_wipe_out=OnWipeOut.RESTART)
    placement = drive.plan.schedule.placement
    pair = next(iter(placement.host_table))
    drive.do(*(drive.exited(g) for g in pair))

    assert drive.state.restarting is not None
    assert [(a.group, a.uid) for a in drive.all(TakeOver)] == [(min(pair), "u4")]


def test_a_job_that_stops_gives_no_places() -> None:
    """And its spares are told to stop with all others."""
    drive = warm()
    drive.do(Suspend("SIGTERM", 30.0))
    drive.do(drive.exited(2))
    drive.do(Tick(), after=1.0)
    assert drive.all(TakeOver) == []

    other = warm()
    other.finish()
    other.do(*(other.exited(g, code=0) for g in range(4)))
    assert other.end is not None
    assert len(other.all(SendStop)) == 1


def test_a_spare_that_dies_after_the_last_step_ends_nothing() -> None:
    """Only members are waited for."""
    drive = warm()
    drive.finish()
    drive.do(AgentGone(SPARE, "u4", "gone"))
    assert drive.end is None

    drive.do(*(drive.exited(g, code=0) for g in range(4)))
    assert drive.end is not None
    assert drive.end.code == 0


# --- a coordinator that comes back --------------------------------------------------------------------------------


def back(drive: Drive) -> Drive:
    """Another coordinator, that knows the record only."""
    again = Drive(drive.config, drive.now + 1.0)
    again.uids = dict(drive.uids)
    again.decisions = [resume(drive.config, document(drive.plan, Kept.of(drive.state)), again.now)]
    return again


def attach(drive: Drive, *numbers: int) -> None:
    """The backend tells of these agents, and each says hello."""
    drive.do(*(drive.up(number) for number in numbers))
    drive.do(*(drive.hello(number, epoch=0 if number >= SPARE else drive.plan.epoch) for number in numbers))


def test_a_spare_that_waits_goes_on_waiting() -> None:
    """Nothing is started in its place."""
    again = back(warm())
    attach(again, 0, 1, 2, 3, SPARE)
    again.do(Tick(), after=2.0)

    assert again.state.spares[0].uid == "u4"
    assert again.state.spares[0].state is GroupState.READY
    assert created(again) == []


def test_a_spare_that_had_a_place_without_a_plan_gets_it_again() -> None:
    """Nobody was told, so it is a spare as before."""
    drive = warm()
    drive.do(drive.exited(2))
    again = back(drive)
    attach(again, 0, 1, 3, SPARE)
    again.hear(0, 1, 3, SPARE, after=1.1)

    assert again.all(TakeOver) == [TakeOver(2, SPARE, "u4")]


def test_a_spare_that_a_plan_admitted_is_the_groups_whatever_it_says() -> None:
    """The plan was recorded and never reached it: it is told of by its old number, and gets the plan now."""
    drive = warm()
    drive.do(drive.exited(2))
    goes_on(drive, 3)
    again = back(drive)
    attach(again, 0, 1, 3, SPARE)

    assert (again.state.groups[2].uid, again.state.groups[2].pods[0].address) == ("u4", "10.0.0.5:7000")
    pushed = [push for push in again.all(PushPlan) if (2, "u4") in push.to]
    assert [push.plan.epoch for push in pushed] == [3]
    assert again.state.spares[0].uid == ""
