"""What a worker waits for between plans, and what ends the wait."""

from __future__ import annotations

import threading

import pytest

from spare_runtime.errors import PlanTimeout
from spare_runtime.membership import Membership
from tests.runtime.plans import UID, plan


def test_a_plan_ends_the_wait() -> None:
    """It is the one to run under from now on."""
    membership = Membership(UID)
    membership.on_plan(plan(epoch=1))

    found = membership.next_plan(1.0, "to begin with")
    assert found is not None
    membership.act_on(found)
    assert found.epoch == membership.epoch == 1


def test_no_plan_ends_it_with_what_it_waited_for() -> None:
    """By name, after its deadline."""
    with pytest.raises(PlanTimeout, match="waited 0 s for a plan newer than epoch 0, to begin with"):
        Membership(UID).next_plan(0.0, "to begin with")


def test_the_end_of_the_job_ends_it() -> None:
    """Found by the simulation: the others were done and gone while one still met a joiner, and waited for an hour."""
    membership = Membership(UID)
    first = plan(epoch=1)
    membership.on_plan(first)
    membership.act_on(first)
    membership.failed()
    threading.Timer(0.05, membership.on_finish).start()

    assert membership.next_plan(60.0, "after the exchange") is None


def test_the_end_of_the_job_frees_who_still_meets_others() -> None:
    """Nobody comes to a meeting after it."""

    class Meeting:
        interrupted = 0

        def interrupt(self) -> None:
            self.interrupted += 1

    membership, meetings = Membership(UID), [Meeting(), Meeting()]
    membership.meet(meetings[0])  # type: ignore[arg-type]
    membership.on_finish()
    membership.meet(meetings[1])  # type: ignore[arg-type]

    assert [meeting.interrupted for meeting in meetings] == [1, 1]
