"""Conditions never contradict each other, and the end is the end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spare.api.reasons import ConditionType
from spare.api.status import FINAL, ORDER, Condition, Groups, Status, state_of, with_state

START = datetime(2026, 1, 1, tzinfo=UTC)
STATES = [None, ConditionType.RUNNING, ConditionType.SUSPENDED, ConditionType.COMPLETE, ConditionType.FAILED]
FOREIGN = Condition(type="QuotaReserved", status="True", reason="Queued", last_transition_time=START)


def at(seconds: int) -> datetime:
    """A time, seconds after the start."""
    return START + timedelta(seconds=seconds)


@given(st.lists(st.tuples(st.sampled_from(STATES), st.booleans()), max_size=12))
def test_conditions_never_contradict_each_other(history: list[tuple[ConditionType | None, bool]]) -> None:
    """Over any history: at most one state true, Degraded with Running only, times that move with status only (F33)."""
    conditions: tuple[Condition, ...] = (FOREIGN,)
    for second, (state, degraded) in enumerate(history, start=1):
        before = {each.type: each for each in conditions}
        ended = state_of(conditions) in FINAL

        conditions = with_state(
            conditions,
            state,
            degraded=degraded and state is ConditionType.RUNNING,
            reason="Tried",
            message=f"at {second}",
            now=at(second),
            generation=second,
        )

        true = {each.type for each in conditions if each.status == "True"} - {FOREIGN.type}
        assert len(true - {"Degraded"}) <= 1
        assert "Degraded" not in true or "Running" in true
        for each in conditions:
            moved = each.type not in before or before[each.type].status != each.status
            assert each.last_transition_time == (at(second) if moved else before[each.type].last_transition_time)
        assert not ended or list(before.values()) == list(conditions)
        assert FOREIGN in conditions


def test_the_column_state_shows_degraded_rather_than_running() -> None:
    """The API server shows the first true condition of the list: it is in the order of what is worth saying."""
    conditions = with_state(
        (FOREIGN,), ConditionType.RUNNING, degraded=True, reason="GroupLost", message="", now=START, generation=1
    )

    assert [each.type for each in conditions] == ["Degraded", "Running", "QuotaReserved"]
    assert state_of(conditions) is ConditionType.DEGRADED
    assert set(ORDER) == set(ConditionType)


@pytest.mark.parametrize("state", [None, ConditionType.SUSPENDED, ConditionType.DEGRADED])
def test_degraded_without_running_is_refused(state: ConditionType | None) -> None:
    """A caller who asks for it has a defect."""
    with pytest.raises(ValueError, match="Degraded goes with Running only"):
        with_state((), state, degraded=True, reason="X", message="", now=START, generation=1)


def test_a_status_reads_back_as_it_was_written() -> None:
    """Times to the second, absent for unknown, fields of newer versions passed over."""
    status = Status(
        conditions=with_state((), None, reason="Starting", message="0 of 8", now=START, generation=2),
        groups=Groups(desired=8, joining=8),
        epoch=3,
        depth=1.375,
        start_time=at(90),
    )

    plain = status.plain()

    assert Status.model_validate({**plain, "fromTheFuture": 1}) == status
    assert plain["startTime"] == "2026-01-01T00:01:30Z"
    assert "completionTime" not in plain
    assert "hostsLeft" not in plain
    assert plain["conditions"][0]["status"] == "False"
    assert (status.state, status.final) == (None, False)
