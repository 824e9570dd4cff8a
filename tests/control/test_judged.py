"""The judge looks at every plan before it is told: a defect of the planner costs no sample (protocol, rule 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spare.api.exit_codes import ExitCode
from spare.control.action import Announce
from spare.control.sharing import reordered
from spare.control.signal import DrainGroup, Tick
from spare.planner import Reorder, Schedule
from tests.control.drive import started


def forgets_one(schedule: Schedule) -> Schedule:
    """One micro-batch of shard 0 is given to nobody."""
    first = list(schedule.counts[0])
    first[first.index(max(first))] -= 1
    return replace(schedule, counts=(tuple(first), *schedule.counts[1:]))


def gives_to_the_dead(schedule: Schedule) -> Schedule:
    """All groups are given work as before, those that are no members among them."""
    return replace(schedule, live=tuple(range(schedule.placement.groups)))


@pytest.mark.parametrize(
    ("defect", "said"), [(forgets_one, "shard 0"), (gives_to_the_dead, "work is given to (0, 1, 2, 3)")]
)
def test_a_plan_that_breaks_a_rule_is_told_to_nobody(
    defect: Callable[[Schedule], Schedule], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ends as inexact, names plan and rule, and no group hears of that plan."""

    def wrong(*arguments: Any) -> Reorder:
        change = reordered(*arguments)
        return replace(change, schedule=defect(change.schedule))

    monkeypatch.setattr("spare.control.answer.reordered", wrong)
    drive = started()
    drive.do(drive.exited(2), Tick())

    assert [plan.epoch for plan in drive.plans] == [1]
    assert drive.plan.epoch == 1
    assert drive.end is not None
    assert drive.end.code == ExitCode.INEXACT
    assert drive.end.verdict.startswith("plan 2 would break the rules: ")
    assert said in drive.end.verdict
    assert drive.all(Announce)[-1].reason == "InvalidPlan"


def test_the_same_holds_for_boundary_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is wrong with the job when one is made, so nothing else would stop it."""
    drive = started()
    drive.do(*(drive.running(g) for g in range(4)))

    def wrong(*arguments: Any) -> Reorder:
        change = reordered(*arguments)
        return replace(change, schedule=forgets_one(change.schedule))

    monkeypatch.setattr("spare.control.boundary.reordered", wrong)
    drive.do(DrainGroup(1, "maintenance", 20.0, again=False))
    drive.do(Tick(), after=1.0)

    assert [plan.epoch for plan in drive.plans] == [1]
    assert drive.end is not None
    assert "shard 0" in drive.end.verdict
