"""Groups whose grace ends before the step does: an urgent plan without them, and an heir of what they hold."""

from __future__ import annotations

from typing import Any

from spare.api import wire
from spare.control.action import SendDrain
from spare.control.plan import Plan
from spare.control.signal import AgentGone
from spare.control.state import GroupState, JobState
from tests.control.drive import Drive, started
from tests.control.test_leave import ask, running

SERVES = "10.0.0.2:40000"


def test_whose_grace_is_nearly_over_hands_on_what_it_holds() -> None:
    """An urgent plan without it; the least loaded member is its heir, and nobody else hears of it."""
    drive = running(groups=2, redundancy=2)
    ask(drive, 1)
    assert drive.plan.epoch == 1

    ask(drive, 1, grace=10.0, serves=SERVES)

    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (2, 2, (0,))
    assert drive.plan.part_for(0, "u0").legacies == (wire.Legacy(group=1, epoch=1, serves=SERVES),)
    assert drive.plan.part_for(1, "u1").legacies == ()
    drive.do(drive.say(wire.Left, 1, step=1))
    assert (drive.state.drained, drive.state.masked) == (1, 0)


def test_one_that_was_let_go_and_cannot_wait_hands_on_too() -> None:
    """The boundary does not come in time: the same members, urgently, one of them its heir."""
    drive = running()
    ask(drive, 1)

    drive.do(drive.say(wire.Leave, 1, grace=3.0, reason="SIGTERM", serves=SERVES, epoch=1))

    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (3, 3, (0, 2, 3))
    assert [len(drive.plan.part_for(g, f"u{g}").legacies) for g in (0, 2, 3)] == [0, 1, 0]
    assert drive.state.masked == 0


def test_the_heir_is_no_group_that_the_others_wait_for() -> None:
    """A straggler that was given less, or one that stands still, is the least loaded, and the last to hear of it."""
    for slow in ({"phase": "compute"}, {"phase": "reduce", "worker": "silent", "silent_for": 2.0}):
        drive = running()
        drive.hear(0, 3, phase="reduce", step=1)
        drive.hear(2, **slow, step=1)
        ask(drive, 1)

        drive.do(drive.say(wire.Leave, 1, grace=3.0, reason="SIGTERM", serves=SERVES, epoch=1))

        assert [len(drive.plan.part_for(g, f"u{g}").legacies) for g in (0, 2, 3)] == [1, 0, 0]


def test_what_is_held_is_handed_on_once() -> None:
    """A second plan does not name another heir: both might have taken it."""
    drive = running()
    ask(drive, 1)
    drive.do(drive.say(wire.Leave, 1, grace=3.0, reason="SIGTERM", serves=SERVES, epoch=1))

    drive.do(drive.exited(0))

    assert drive.plan.epoch == 4
    assert all(drive.plan.part_for(g, f"u{g}").legacies == () for g in (2, 3))
    assert drive.plan.part_for(1, "u1").drained


def test_what_was_offered_before_an_urgent_plan_is_not_handed_on_after_it() -> None:
    """The others were given what the leaver's death would leave missing: an heir named now would hold it, too."""
    drive = running(groups=5, redundancy=4)
    ask(drive, 1)
    drive.do(drive.exited(4))
    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (3, 3, (0, 2, 3))

    drive.do(drive.say(wire.Leave, 1, grace=3.0, reason="SIGTERM", serves=SERVES, epoch=1))

    assert drive.plan.epoch == 3
    drive.do(drive.exited(0))
    assert drive.plan.epoch == 4
    assert all(drive.plan.part_for(g, f"u{g}").legacies == () for g in (2, 3))


def test_a_member_that_an_urgent_plan_kept_offers_again_under_it() -> None:
    """What it offered before it has withdrawn; nobody is told to go by that."""
    drive = running(groups=3, redundancy=3)
    drive.do(drive.exited(2))
    assert (drive.plan.epoch, drive.plan.groups) == (2, (0, 1))

    ask(drive, 1, grace=3.0, serves=SERVES)  # under plan 2
    assert (drive.plan.epoch, drive.plan.part_for(0, "u0").legacies[0].epoch) == (3, 2)

    other = running(groups=3, redundancy=3)
    other.do(other.exited(2))
    other.do(other.say(wire.Leave, 1, grace=3.0, reason="SIGTERM", serves=SERVES, epoch=1))
    assert other.plan.epoch == 2
    other.do(other.say(wire.Leave, 1, grace=2.9, reason="SIGTERM", serves="10.0.0.2:40001", epoch=2))
    assert other.plan.part_for(0, "u0").legacies == (wire.Legacy(group=1, epoch=2, serves="10.0.0.2:40001"),)


def test_two_that_hand_on_have_two_heirs() -> None:
    """Each heir waits for one transfer only, where there are enough."""
    drive = running(groups=5, redundancy=4)
    drive.do(*(drive.say(wire.Leave, g, grace=3.0, reason="SIGTERM", serves=SERVES) for g in (1, 3)))

    heirs = [g for g in drive.plan.groups if drive.plan.part_for(g, f"u{g}").legacies]
    assert len(heirs) == 2


def test_one_that_has_committed_the_last_step_may_go_before_the_others_have() -> None:
    """Its grace is nearly over, and it offered what it held: the others go on without it."""
    drive = running()
    drive.do(drive.done(0))

    drive.do(drive.say(wire.Leave, 0, grace=0.0, reason="SIGTERM", serves=SERVES))

    assert drive.plan.groups == (1, 2, 3)
    assert drive.state.groups[0].state is GroupState.LEFT


def test_nobody_hands_on_where_too_few_would_stay() -> None:
    """Below minGroups the job waits: the leaver works to the end of its grace, and its replacement is waited for."""
    drive = running(groups=3, min_groups=3, replace=True)
    ask(drive, 1)

    ask(drive, 1, grace=10.0, serves=SERVES)
    assert drive.plan.epoch == 1
    drive.do(AgentGone(1, "u1", "its grace is over"))

    assert (drive.plan.epoch, drive.state.job) == (1, JobState.WAITING)


# --- of several ranks -------------------------------------------------------------------------------------------

RANKS = 4


def crew() -> Drive:
    """Groups of two pods of two ranks, under plan 1."""
    drive = started(pods=2, procs=2)
    drive.do(*(report for g in range(4) for report in drive.ranks(drive.running, g, step=0)))
    drive.do(*(report for g in range(4) for report in drive.ranks(drive.committed, g, 1)))
    return drive


def offer(drive: Drive, rank: int, grace: float = 3.0, **fields: Any) -> None:
    """A rank of group 1 says where it gives what it holds."""
    said = {"grace": grace, "reason": "SIGTERM", "serves": f"10.0.0.2:4000{rank}", "rank": rank, **fields}
    drive.do(drive.say(wire.Leave, 1, **said))


def test_a_group_hands_on_when_all_its_ranks_offer() -> None:
    """An heir could not take over a part; each of its ranks is told of all addresses, and takes that of its number."""
    drive = crew()
    for rank in (2, 0, 3):
        offer(drive, rank)
    assert drive.plan.epoch == 1

    offer(drive, 1)

    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (2, 2, (0, 2, 3))
    [legacy] = [each for g in (0, 2, 3) for each in drive.plan.part_for(g, f"u{g}").legacies]
    assert legacy == wire.Legacy(group=1, epoch=1, serves=",".join(f"10.0.0.2:4000{rank}" for rank in range(RANKS)))
    assert Plan.from_json(drive.plan.to_json()) == drive.plan
    assert wire.read(drive.plan.part_for(0, "u0").line()) == drive.plan.part_for(0, "u0")


def test_what_ranks_offer_under_different_plans_is_nothing_whole() -> None:
    """Those that offered under the older one have withdrawn it, or will."""
    drive = crew()
    drive.do(drive.exited(3))
    for rank in range(RANKS):
        offer(drive, rank, epoch=2 if rank else 1)
    assert drive.plan.epoch == 2

    offer(drive, 0, epoch=1)
    assert drive.plan.epoch == 2
    offer(drive, 0, epoch=2)
    assert [len(drive.plan.part_for(g, f"u{g}").legacies) for g in (0, 2)] == [1, 0]


def test_the_other_pods_of_a_group_are_told_when_its_grace_ends() -> None:
    """SIGTERM came to one of them, and all ranks must offer in time: once, and again if the grace gets much shorter."""
    drive = crew()
    drive.do(drive.say(wire.Leave, 1, grace=30.0, reason="SIGTERM", rank=2))
    assert drive.all(SendDrain) == [SendDrain(1, "u1", 30.0)]

    drive.do(drive.say(wire.Leave, 1, grace=29.9, reason="asked by the coordinator", rank=0))
    assert len(drive.all(SendDrain)) == 1
    drive.do(drive.say(wire.Leave, 1, grace=5.0, reason="SIGTERM", rank=2))
    assert drive.all(SendDrain)[1:] == [SendDrain(1, "u1", 5.0)]

    single = running()
    ask(single, 1)
    assert single.all(SendDrain) == []
