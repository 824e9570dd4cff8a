"""Checkpoints: which group writes them, how often, which ones there are, and which one to begin with.

The writer has a standing order, so that it goes on while the coordinator is away. What is measured comes from its
reports: how long training stood still for a save and how long it took; from the job's own course: how often groups are
lost, and how long a start or restart takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from spare.api import wire
from spare.api.checkpoint import Name, tag_of
from spare.api.reasons import EventReason
from spare.control.action import SendSave
from spare.control.plan import Plan
from spare.control.saving import LastSaved, Ordered
from spare.control.state import State
from spare.control.turn import Turn
from spare.planner.theory import (
    GROUP_BETWEEN_FAILURES,
    MEAN_TIME_BETWEEN_FAILURES,
    RESTART_SECONDS,
    checkpoint_period,
    masked_mean,
)

KNOWN: Final = 16
"""How many of the newest are remembered."""
LEAST: Final = 1.0
"""Shortest period, seconds: as in the job file."""
WRITING: Final = 2.0
"""The period is at least this many times as long as a save takes: at most half of the time is spent writing."""
NOTICEABLE: Final = 0.2
"""Relative change of the period that is worth a new order."""


# --- what there is ------------------------------------------------------------------------------------------------


def found(turn: Turn, names: Iterable[str]) -> None:
    """A worker has found these complete. Once a job has begun, those of others are no history of its own: one that was
    begun on the same path since goes on from there, and this one does not."""
    ours = tag_of(turn.config.job)
    known(turn, [name for name in names if turn.state.plan is None or Name.parse(name).tag == ours])


def known(turn: Turn, names: Iterable[str]) -> None:
    """These are complete, and the job may go on from them."""
    fresh = set(names) - set(turn.state.checkpoints)
    if fresh and turn.config.checkpoint:
        every = sorted({*turn.state.checkpoints, *fresh}, key=Name.parse, reverse=True)
        turn.set(checkpoints=tuple(every[:KNOWN]))


def usable(state: State) -> str | None:
    """The newest that nobody found damaged; None: begin with step 0."""
    return next((name for name in state.checkpoints if name not in state.damaged), None)


def committed(turn: Turn) -> None:
    """A step is committed: if it is the first of a start, it is known now how long one takes."""
    began = turn.state.starting_since
    if began is not None:
        turn.set(start_took=turn.now - began, starting_since=None)


def noted(turn: Turn, message: wire.Saved | wire.Unsaved | wire.Unreadable) -> None:
    """What a worker says of a checkpoint."""
    match message:
        case wire.Saved():
            news = message.name not in turn.state.checkpoints
            known(turn, (message.name,))
            last = LastSaved(message.name, turn.now, message.staged, message.seconds, message.size)
            if turn.state.saved is None or Name.parse(message.name) > Name.parse(turn.state.saved.name):
                turn.set(saved=last)
            if not news:
                return  # its agent says it again to whoever attaches
            text = (
                f"step {last.step} is saved as {message.name} by group {message.group}: {_size(message.size)} in "
                f"{message.seconds:.2f} s, for {message.staged:.3f} s of which training stood still"
            )
            turn.say(EventReason.CHECKPOINTED, text, (message.group,))
        case wire.Unsaved():
            turn.say(
                EventReason.CHECKPOINT_FAILED,
                f"group {message.group} could not save step {message.step}: {message.error}; training goes on, and it "
                "is tried again when the next one is due",
                (message.group,),
            )
        case wire.Unreadable():
            plan = turn.state.plan
            if plan is None or plan.checkpoint != message.name or message.name in turn.state.damaged:
                return
            turn.set(damaged=turn.state.damaged | {message.name})
            turn.say(
                EventReason.CHECKPOINT_UNREADABLE,
                f"group {message.group} cannot begin with {message.name}: {message.error}",
                (message.group,),
            )


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size} bytes"


# --- who writes, how often ----------------------------------------------------------------------------------------


def writer_of(state: State, members: Collection[int]) -> int:
    """The group that writes under a plan of these members: the same as before while it can; else the highest that has
    the state, for the lowest leads and gives its state to who joins. -1: nobody."""
    if not state.config.checkpoint:
        return -1
    able = [g for g in members if g in state.whole] or list(members)
    before = state.plan.writer if state.plan else -1
    return before if before in able else max(able)


def arrange(turn: Turn) -> None:
    """Give the writer its order, if it has not got it or the period has changed."""
    state = turn.state
    plan = state.plan
    if plan is None or plan.writer < 0 or not state.member(plan.writer):
        return
    period = period_of(state, turn.now)
    has = state.ordered
    here = state.groups[plan.writer]
    same = has is not None and (has.group, has.uid, has.origin) == (plan.writer, here.uid, plan.origin)
    if same and has is not None and abs(period - has.period) <= NOTICEABLE * has.period:
        return
    since = 0.0 if state.saved is None or not _of_history(state, plan) else period - (turn.now - state.saved.at)
    turn.set(ordered=Ordered(plan.writer, here.uid, plan.origin, period))
    turn.do(SendSave(plan.writer, max(0.0, since), period))


def _of_history(state: State, plan: Plan) -> bool:
    return state.saved is not None and Name.parse(state.saved.name).origin == plan.origin


def period_of(state: State, now: float) -> float:
    """Seconds from the beginning of one checkpoint to that of the next.

    `auto`: Tc* of the paper, with Ts the time for which training stands still for one save, Tf the mean time to a
    wipe-out from the losses observed so far, and Tr the time that the last start or restart took; not shorter than
    twice the time that a save takes beside the training. Before anything is measured: an hour, with the first save due
    at once, so that it is.
    """
    if state.config.checkpoint_period is not None:
        return state.config.checkpoint_period
    if state.saved is None:
        return RESTART_SECONDS
    restart = state.start_took if state.start_took is not None else max(0.0, now - state.began)
    best = checkpoint_period(state.saved.staged, time_to_wipe_out(state, now), restart)
    return max(best, WRITING * state.saved.seconds, LEAST)


def time_to_wipe_out(state: State, now: float) -> float:
    """Tf = mu(N, r) * m, with m the mean time between losses: what is assumed of a job that has not run yet counts as
    one loss in that time, and what is seen is added to it."""
    config = state.config
    assumed = max(MEAN_TIME_BETWEEN_FAILURES, GROUP_BETWEEN_FAILURES / config.groups)
    mean = (assumed + max(0.0, now - state.began)) / (1 + state.losses_seen)
    return masked_mean(config.groups, config.redundancy) * mean
