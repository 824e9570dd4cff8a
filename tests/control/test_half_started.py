"""Starts of groups of several pods that a coordinator's end has cut in two."""

from __future__ import annotations

from spare.control.action import DeleteGroup, TakeOver
from spare.control.signal import AgentUp
from tests.control.test_spares import SPARE, back, begun


def test_a_half_made_start_is_overtaken_though_nobody_saw_it_begin() -> None:
    """A coordinator that has come back is told of one of its pods; the other finds no room, and a spare is ready."""
    drive = begun(pods=2)
    drive.do(drive.exited(2))
    again, there = back(drive), (0, 1, 3, SPARE)
    again.do(AgentUp(2, "half", "10.0.0.99:7000"))
    again.ready(*there)
    assert again.all(TakeOver) == []

    for _ in range(6):
        again.hear(*there, after=1.0)
    assert again.all(TakeOver) == [TakeOver(2, SPARE, "u4")]
    assert DeleteGroup(2, "half") in again.all(DeleteGroup)
