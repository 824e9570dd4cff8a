"""A collective failed and no death is known: probes first, then an answer in any case."""

from __future__ import annotations

import pytest

from spare.api.exit_codes import ExitCode
from spare.control.action import ProbeAll, PushPlan
from spare.control.signal import AgentGone, LinkDown, Tick
from tests.control.drive import Drive, started


def answered(drive: Drive, *groups: int, after: float = 0.0) -> None:
    """These agents answer the last probe."""
    drive.do(*(drive.alive(g, nonce=drive.state.probes) for g in groups), after=after)


def test_a_suspicion_probes_all_members_at_once() -> None:
    """One probe, however many report."""
    drive = started()
    drive.do(drive.suspect(0, 2), drive.suspect(1, 2))
    drive.do(drive.suspect(3, 2))

    assert drive.all(ProbeAll) == [ProbeAll(1, (0, 1, 2, 3))]
    assert drive.plan.epoch == 1


def test_a_refuted_suspicion_is_answered_with_the_same_members() -> None:
    """A new urgent plan even though every probe succeeds: the reporters wait for it. Nobody is masked."""
    drive = started()
    drive.do(drive.suspect(0, 2))
    answered(drive, 0, 1, 2, 3)
    assert drive.plan.epoch == 1, "a death may be told a moment later"
    assert drive.decisions[-1].wake == pytest.approx(100.05)
    drive.do(Tick(), after=0.05)

    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (2, 2, (0, 1, 2, 3))
    assert drive.state.masked == 0
    assert drive.state.suspicions == ()
    assert "group 0 (reset by peer)" in drive.plan.reason


def test_a_death_told_after_the_suspicion_makes_the_plan_at_once() -> None:
    """No probe is waited for."""
    drive = started()
    drive.do(drive.suspect(0, 2))
    drive.do(drive.exited(2), after=0.001)

    assert drive.plan.groups == (0, 1, 3)
    assert [plan.epoch for plan in drive.plans] == [1, 2]


def test_a_death_told_with_the_suspicion_needs_no_probe() -> None:
    """Both in one moment, in either order."""
    for order in (1, -1):
        drive = started()
        drive.do(*[drive.suspect(0, 2), drive.exited(2)][::order])

        assert drive.plan.groups == (0, 1, 3)
        assert drive.all(ProbeAll) == []


def test_a_suspicion_that_a_plan_answered_is_not_answered_again() -> None:
    """Its epoch is older than the newest base (answered failures)."""
    drive = started()
    drive.do(drive.exited(2))
    drive.do(drive.suspect(0, 2, epoch=1), drive.suspect(1, 2, epoch=1))
    drive.do(Tick(), after=1)

    assert drive.plan.epoch == 2
    assert drive.all(ProbeAll) == []


def test_a_named_member_without_an_answer_is_waited_for_until_dead_after() -> None:
    """The facts are complete only when it answers or is lost: then one plan without it."""
    drive = started()
    drive.do(drive.suspect(0, 2), after=3)
    answered(drive, 0, 1, 3, after=0.01)
    drive.do(Tick(), after=1)
    assert drive.plan.epoch == 1
    drive.hear(0, 1, 3)
    drive.do(Tick(), after=1.1)

    assert drive.plan.groups == (0, 1, 3)
    assert [plan.epoch for plan in drive.plans] == [1, 2]
    assert drive.state.masked == 1


def test_a_named_member_that_answers_late_is_kept() -> None:
    """It was slow, not dead."""
    drive = started()
    drive.do(drive.suspect(0, 2))
    answered(drive, 0, 1, 3)
    drive.do(Tick(), after=2)
    answered(drive, 2)

    assert drive.plan.epoch == 2
    assert drive.plan.groups == (0, 1, 2, 3)


def test_an_unnamed_member_without_an_answer_holds_nobody_up_for_long() -> None:
    """One second, no more: its peers reach it, only we do not."""
    drive = started()
    drive.do(LinkDown(3, "u3", "reset"), drive.suspect(0, 2))
    answered(drive, 0, 1, 2)
    drive.do(Tick(), after=0.5)
    assert drive.plan.epoch == 1
    drive.do(Tick(), after=0.51)

    assert drive.plan.groups == (0, 1, 2, 3)


def test_an_agent_that_is_gone_needs_no_answer() -> None:
    """The backend knows of its death."""
    drive = started()
    drive.do(drive.suspect(0, 2))
    drive.do(AgentGone(2, "u2", "killed by signal 9"))

    assert drive.plan.groups == (0, 1, 3)


def test_the_second_time_running_the_one_named_by_most_is_removed() -> None:
    """First the same members again; when that fails too, without whom most could not reach."""
    drive = started()
    drive.do(drive.suspect(0, 2))
    answered(drive, 0, 1, 2, 3)
    drive.do(Tick(), after=0.06)
    drive.do(drive.suspect(0, 2), drive.suspect(1, 2), drive.suspect(2, 0))
    answered(drive, 0, 1, 2, 3)
    drive.do(Tick(), after=0.06)

    assert drive.plan.epoch == 3
    assert drive.plan.groups == (0, 1, 3)
    assert drive.state.masked == 1
    assert "unreachable for 2 of 3 that reported, the second time running" in drive.plan.reason


def test_ties_remove_the_highest_number() -> None:
    """Two groups that cannot reach each other: one of them has to go, the same one always."""
    drive = started()
    for _ in range(2):
        drive.do(drive.suspect(1, 3), drive.suspect(3, 1))
        answered(drive, 0, 1, 2, 3)
        drive.do(Tick(), after=0.06)

    assert drive.plan.groups == (0, 1, 2)


def test_a_commit_between_two_failures_ends_the_row() -> None:
    """A link error at step 10 and another one at step 5,000 do not make a broken group."""
    drive = started()
    for step in (1, 2):
        drive.do(drive.suspect(0, 2))
        answered(drive, 0, 1, 2, 3)
        drive.do(Tick(), after=0.06)
        drive.do(drive.committed(0, step))

    assert drive.plan.epoch == 3
    assert drive.plan.groups == (0, 1, 2, 3)


def test_the_leader_is_none_that_a_report_names() -> None:
    """Lowest first; who cannot be reached is no meeting place."""
    drive = started()
    drive.do(drive.suspect(2, 0), drive.suspect(3, 0))
    answered(drive, 0, 1, 2, 3)
    drive.do(Tick(), after=0.06)

    assert drive.plan.leader == 1
    assert drive.plan.part_for(3, "u3").stores == ("10.0.0.2:29500",)


def test_the_lowest_leads_if_all_are_named() -> None:
    """Somebody must."""
    drive = started()
    drive.do(*(drive.suspect(g, *(h for h in range(4) if h != g)) for g in range(4)))
    answered(drive, 0, 1, 2, 3)
    drive.do(Tick(), after=0.06)

    assert drive.plan.leader == 0


def test_failures_without_end_and_without_a_name_end_the_job() -> None:
    """Nobody to remove, nothing committed: it gets nowhere, and says what failed."""
    drive = started()
    for _ in range(20):
        drive.do(drive.suspect(0, error="rendezvous failed"))
        answered(drive, 0, 1, 2, 3)
        drive.do(Tick(), after=0.06)

    assert drive.end is not None
    assert drive.end.code == ExitCode.STALLED
    assert "rendezvous failed" in drive.end.verdict


def test_a_removal_that_would_wipe_out_is_not_made() -> None:
    """Better the same members again than the end of the job."""
    drive = started(groups=2, redundancy=1)
    for _ in range(2):
        drive.do(drive.suspect(0, 1), drive.suspect(1, 0))
        answered(drive, 0, 1)
        drive.do(Tick(), after=0.06)

    assert drive.end is None
    assert drive.plan.groups == (0, 1)


def test_every_answer_goes_to_all_members() -> None:
    """A plan is pushed once to each."""
    drive = started()
    drive.do(drive.suspect(0, 2))
    answered(drive, 0, 1, 2, 3)
    drive.do(Tick(), after=0.06)

    assert drive.all(PushPlan)[-1].to == tuple((g, f"u{g}") for g in range(4))
