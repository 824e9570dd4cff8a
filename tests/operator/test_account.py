"""The conditions of every state that a job can get into (field case F33)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spare.api import wire
from spare.api.reasons import EventReason
from spare.api.status import Status
from spare.control.config import Config
from spare.control.decide import begin, decide
from spare.control.signal import AgentGone, AgentUp, DrainGroup, Interrupted, Report, Signal, Suspend, Tick
from spare_operator.account import spares_wait, starts_fail, status_of, waits_of

CONFIG = Config("team/job/1", 4, 3, 8)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
EXCLUSIVE = ("Running", "Suspended", "Complete", "Failed")


def said(group: int, what: str) -> Signal:
    head: dict[str, Any] = {"job": CONFIG.job, "uid": f"u{group}", "epoch": 1, "group": group}
    match what:
        case "hello":
            return Report(wire.Hello(**head, store=f"127.0.0.1:{5000 + group}", pid=1))
        case "running":
            return Report(wire.Running(**head, step=0))
        case "committed":
            return Report(wire.Committed(**head, step=3))
        case "done":
            return Report(wire.Done(**head, step=3, digest="d"))
        case "exited":
            return Report(wire.Exited(**head, code=0))
        case "errored":
            return Report(wire.Errored(**head, step=1, type="ValueError", text="no"))
        case "up":
            return AgentUp(group, f"u{group}", f"127.0.0.1:{4000 + group}")
        case "drain":
            return DrainGroup(group, "a node goes")
        case _:
            return AgentGone(group, f"u{group}", "deleted")


KINDS = ["up", "hello", "running", "committed", "done", "exited", "gone"]
RARE = ["errored", "drain"]
SIGNALS = st.builds(said, st.integers(0, 3), st.sampled_from(KINDS * 4 + RARE))
OTHERS = st.sampled_from([Tick(), Suspend("suspend", 60.0), Interrupted("ended")])
WAITS = st.sampled_from([None, (EventReason.QUOTA_EXCEEDED, "no room"), (EventReason.PODS_NOT_STARTING, "no image")])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.lists(st.one_of(*[SIGNALS] * 6, OTHERS), max_size=6), WAITS), max_size=14), st.booleans())
def test_conditions_never_contradict_each_other_f33(
    turns: list[tuple[list[Signal], tuple[EventReason, str] | None]], start: bool
) -> None:
    """F33: at most one of four is true, Degraded only with Running, times move with the status only, ends are final."""
    state, status = begin(CONFIG, 0.0).state, Status()
    ready: list[Signal] = [said(g, what) for what in ("up", "hello", "running") for g in range(4)]
    for number, (signals, waits) in enumerate(([(ready[:8], None), (ready[8:], None)] if start else []) + turns):
        state = decide(state, signals, float(number)).state
        now = NOW + timedelta(seconds=number)
        after = status_of(state, status, now, generation=1, wall=1e9, waits=waits)
        true = {c.type for c in after.conditions if c.status == "True"}

        assert len(true & set(EXCLUSIVE)) <= 1
        assert "Degraded" not in true or "Running" in true
        before = {c.type: c for c in status.conditions}
        for condition in after.conditions:
            old = before.get(condition.type)
            moved = old is None or old.status != condition.status
            assert condition.last_transition_time == (now if moved else old.last_transition_time)  # type: ignore[union-attr]
        if status.final:
            assert after.conditions == status.conditions
        assert Status.model_validate(after.plain()) == after
        status = after


def test_one_view_is_one_status_f04() -> None:
    """F04: the same state later makes the same status."""
    state = begin(CONFIG, 0.0).state
    first = status_of(state, Status(), NOW, generation=1, wall=0.0)

    assert status_of(state, first, NOW + timedelta(hours=1), generation=1, wall=0.0) == first


def test_what_keeps_groups_waiting_is_told_in_one_sentence() -> None:
    """The quota first, which explains the rest; how many groups, and one of them in full."""
    stuck = (EventReason.PODS_NOT_STARTING, "pod x: ErrImagePull: no such image")
    full = (EventReason.QUOTA_EXCEEDED, "exceeded quota")

    assert waits_of({}, 4) is None
    assert waits_of({(3, 0): stuck}, 4) == (stuck[0], f"group 3: {stuck[1]}")
    assert waits_of({(3, 0): stuck, (1, 0): full, (2, 1): full}, 4) == (full[0], f"2 groups (1-2): {full[1]}")
    assert waits_of({(4, 0): full, (3, 0): stuck}, 4) == (stuck[0], f"group 3: {stuck[1]}")
    assert spares_wait({(5, 0): full, (3, 0): stuck}, 4) == (full[0], f"spare 1: {full[1]}")
    assert spares_wait({(3, 0): stuck}, 4) is None


def test_starts_that_end_again_and_again_are_told_of() -> None:
    """Before the first plan from the first of them on; of a replacement from the second, for a loss is told as one."""
    state = begin(CONFIG, 0.0).state
    assert starts_fail(state) is None
    state = decide(state, [said(1, "up"), AgentGone(1, "u1", "its pod ended: OOMKilled, exit code 137")], 5.0).state
    text = "group 1: start 1 has ended: its pod ended: OOMKilled, exit code 137"
    assert starts_fail(state) == (EventReason.PODS_NOT_STARTING, text)
    state = decide(state, [Tick()], 10.0).state
    assert starts_fail(state) == (EventReason.PODS_NOT_STARTING, text)
    state = decide(state, [AgentUp(1, "v1", "127.0.0.1:4001")], 11.0).state
    assert starts_fail(state) == (EventReason.PODS_NOT_STARTING, text)
    head: dict[str, Any] = {"job": CONFIG.job, "uid": "v1", "epoch": 0, "group": 1}
    state = decide(state, [Report(wire.Hello(**head, store="127.0.0.1:5001", pid=1))], 12.0).state
    assert starts_fail(state) is None
