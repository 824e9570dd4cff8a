"""How long an answered failure took, part by part. Bookkeeping only: nothing is decided from it."""

from __future__ import annotations

from dataclasses import replace

from spare.control.recovered import Recovered, Recovering
from spare.control.saving import Restarting
from spare.control.turn import Turn


def opened(turn: Turn, groups: tuple[int, ...], sign: float, reason: str) -> None:
    """A failure has just been answered by the present plan. One in the midst of another's recovery joins it."""
    state = turn.state
    assert state.plan is not None
    earlier = state.recovering
    if earlier is not None:
        groups = tuple(sorted({*groups, *earlier.groups}))
        sign = min(sign, earlier.sign)
        reason = f"{earlier.reason}; then {reason}"
    step = earlier.step if earlier else state.step
    given_up = earlier.given_up if earlier else None
    turn.set(recovering=Recovering(groups, step, state.plan.epoch, sign, turn.now, reason, given_up=given_up))


def reopened(turn: Turn, again: Restarting) -> None:
    """All groups have just begun again after a wipe-out: what it costs counts from the loss that caused it."""
    plan = turn.state.plan
    assert plan is not None
    found = Recovering(again.groups, again.step, plan.epoch, again.sign, turn.now, again.reason, given_up=again.at)
    turn.set(recovering=found)


def pushed(turn: Turn, epoch: int) -> None:
    """Everybody has been told the plan of `epoch`."""
    now = turn.state.recovering
    if now is not None and now.epoch == epoch and now.pushed is None:
        turn.set(recovering=replace(now, pushed=turn.now))


def running(turn: Turn, group: int, epoch: int, step: int) -> None:
    """A member says that it goes on under the plan of `epoch` with this step; not every commit before it was told."""
    now = turn.state.recovering
    if now is not None and now.epoch == epoch and group not in dict(now.running):
        step = now.step if now.running else max(now.step, step)
        turn.set(recovering=replace(now, running=(*now.running, (group, turn.now)), step=step))
        _close_if_seen(turn)


def committed(turn: Turn, epoch: int) -> None:
    """A member has committed a step, or the last one, under the plan of `epoch`."""
    now = turn.state.recovering
    if now is not None and now.epoch == epoch and now.committed is None:
        turn.set(recovering=replace(now, committed=turn.now))
        _close_if_seen(turn)


def _close_if_seen(turn: Turn) -> None:
    now = turn.state.recovering
    if now is not None and now.committed is not None and _all_running(turn, now):
        closed(turn)


def closed(turn: Turn) -> None:
    """Nothing more of it will be seen (all is, or the job goes on): keep what there is."""
    now = turn.state.recovering
    if now is None:
        return
    last = max((at for _, at in now.running), default=None) if _all_running(turn, now) else None
    turn.moved = True  # what waited for this (who is ready to join) is to be looked at now
    moments = (now.sign, now.decided, now.pushed, last, now.committed)
    whole = Recovered(now.groups, now.step, now.epoch, *moments, now.reason, now.given_up)
    turn.set(recovering=None, recoveries=(*turn.state.recoveries, whole))


def _all_running(turn: Turn, now: Recovering) -> bool:
    plan = turn.state.plan
    return plan is not None and set(plan.groups) <= {group for group, _ in now.running}
