"""Who is slow, for how long, and what is done about it: virtual time, made-up paces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from spare.control.action import Announce
from spare.control.signal import AgentGone, Tick
from spare.planner import check
from tests.control.drive import Drive, started
from tests.control.test_resume import attach, back


def step(drive: Drive, paces: Mapping[int, float], default: float = 0.1, seconds: float = 1.0) -> None:
    """One step in which each group computes what the plan says, at its pace."""
    now, load = drive.state.step + 1, drive.plan.schedule.load
    reports = [
        drive.committed(g, now, computed=load(g), seconds=load(g) * paces.get(g, default)) for g in drive.plan.groups
    ]
    running = [drive.running(g) for g in drive.plan.groups]
    drive.do(*running, *reports, Tick(), after=seconds)


def steps(drive: Drive, count: int, paces: Mapping[int, float], **more: Any) -> None:
    """Several."""
    for _ in range(count):
        step(drive, paces, **more)


def told(drive: Drive) -> list[str]:
    """Events about stragglers."""
    return [a.text for a in drive.all(Announce) if a.reason == "Straggler"]


def test_a_slow_group_is_told_once_after_a_while() -> None:
    """Not before `slow_after`, and by default nothing else is done."""
    drive = started(slow_after=30.0)
    steps(drive, 25, {2: 0.3})
    assert told(drive) == []
    steps(drive, 30, {2: 0.3})

    [text] = told(drive)
    assert text.startswith("group 2 takes 3.0 times as long as the median for a micro-batch (300.0 ms), for 3")
    assert drive.plan.epoch == 1


def test_rebalance_gives_it_less_at_a_commit_and_an_even_share_once_it_is_well() -> None:
    """A boundary plan each time, valid by the judge, and no more plans in between."""
    drive = started(slow_after=10.0, rebalance=True)
    steps(drive, 40, {2: 0.2})
    plan = drive.plan

    assert (plan.epoch, plan.base) == (2, 1)
    assert check(plan.schedule) == ()
    assert plan.schedule.speed(2) == 50
    assert plan.schedule.load(2) == plan.schedule.cap // 2 < 8
    assert "group 2 computes at 50 % of the speed" in plan.reason
    steps(drive, 40, {})
    assert drive.plan.epoch == 3
    assert drive.plan.schedule.loads == (8, 8, 8, 8)
    assert drive.plan.schedule.speeds == ()
    assert told(drive)[-1] == "group 2 is about as fast as the others again"
    assert [a.groups for a in drive.all(Announce) if a.reason == "Reordered"] == [(2,), (2,)]


def test_one_slow_step_moves_nobody() -> None:
    """A pause, a checkpoint, a collection of garbage."""
    drive = started(slow_after=10.0, rebalance=True)
    for _ in range(20):
        step(drive, {2: 2.0})
        steps(drive, 9, {})

    assert drive.plan.epoch == 1
    assert told(drive) == []


def test_a_speed_that_wavers_does_not_make_plans() -> None:
    """Between slow and well nothing changes; a straggler's speed must differ by a quarter, and not too often."""
    drive = started(slow_after=10.0, rebalance=True)
    steps(drive, 30, {2: 0.2})
    assert drive.plan.epoch == 2
    for pace in (0.18, 0.22, 0.14, 0.17, 0.21) * 4:
        steps(drive, 5, {2: pace})
    assert drive.plan.epoch == 2
    steps(drive, 30, {2: 0.8})

    assert drive.plan.epoch == 3
    assert drive.plan.schedule.speed(2) in (10, 15)


def test_waiting_is_not_computing() -> None:
    """All steps take as long as the slow group's; the others computed less of that time, and are not slow."""
    drive = started(slow_after=5.0)
    steps(drive, 30, {2: 0.5}, seconds=4.0)

    assert all(text.startswith("group 2 ") for text in told(drive))


def test_half_of_the_groups_slow_are_slow_against_the_others() -> None:
    """With two groups the faster one is the measure."""
    drive = started(groups=2, redundancy=2, slow_after=5.0)
    steps(drive, 30, {1: 0.3})

    assert len(told(drive)) == 1
    assert told(drive)[0].startswith("group 1 ")


def test_a_group_that_is_lost_takes_its_pace_along() -> None:
    """The others keep their speeds in the plan without it; its replacement is healthy until it was seen not to be."""
    drive = started(slow_after=10.0, rebalance=True, replace=True)
    steps(drive, 30, {2: 0.2, 1: 0.1})
    drive.do(AgentGone(2, "u2", "node lost"))
    assert drive.plan.schedule.speeds == ()
    drive.do(Tick(), after=1.0)
    drive.uids[2] = "u2b"
    steps(drive, 2, {})
    drive.ready(2)
    steps(drive, 3, {})

    assert 2 in drive.plan.groups
    assert drive.plan.schedule.speed(2) == 100
    assert not drive.state.groups[2].straggler


@pytest.mark.parametrize("reports", [{"computed": 0, "seconds": 3.0}, {"computed": 4, "seconds": 0.0}])
def test_who_computed_nothing_has_no_pace(reports: dict[str, Any]) -> None:
    """A joiner's first step; an older worker that does not tell."""
    drive = started()
    drive.do(drive.committed(1, 1, **reports))

    assert drive.state.groups[1].pace == 0.0


def test_a_job_that_is_too_long_is_failed() -> None:
    """`activeDeadlineSeconds` counts from the start, and wakes the control by itself."""
    drive = started(deadline=600.0)
    assert drive.decisions[-1].wake <= 700.0
    steps(drive, 3, {}, seconds=100.0)
    assert drive.end is None
    drive.do(Tick(), after=300.0)

    assert drive.end is not None
    assert drive.end.code == 7
    assert drive.end.verdict == (
        "the job has run for 600 s; spec.runPolicy.activeDeadlineSeconds is 600. Step 3 was the last committed"
    )


def test_a_job_that_has_committed_everything_is_let_finish() -> None:
    """Its scripts have only to end."""
    drive = started(deadline=600.0)
    drive.finish()
    drive.do(Tick(), after=700.0)

    assert drive.end is None or drive.end.code == 0


def test_a_job_that_never_starts_has_its_deadline_too() -> None:
    """Whichever comes first."""
    drive = Drive(started(deadline=60.0).config)
    decision = drive.do(Tick(), after=61.0)

    assert decision.state.exit_code == 7


def test_a_coordinator_that_comes_back_leaves_shares_as_they_are() -> None:
    """It has not seen the paces, and the plan says who was slow: nothing is evened out to be undone again (F29)."""
    drive = started(slow_after=10.0, rebalance=True)
    steps(drive, 40, {2: 0.2})
    assert drive.plan.schedule.speed(2) == 50

    again = back(drive)
    attach(again, 0, 1, 2, 3, step=drive.state.step)
    steps(again, 40, {2: 0.2})
    assert again.plan.digest == drive.plan.digest
    steps(again, 40, {})

    assert again.plan.schedule.speeds == ()
