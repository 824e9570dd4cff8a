"""Fewer groups than `minGroups`: the survivors wait for replacements instead of going on.

Their last reduction has failed, so they hold what they have of the step in flight and wait for a plan. It is given as
soon as enough groups are there, survivors and replacements together; the replacements join at the next commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from spare.api.exit_codes import ExitCode
from spare.api.reasons import EventReason
from spare.control import spares
from spare.control.action import DeleteGroup
from spare.control.leaver import Leaver
from spare.control.saving import Waiting
from spare.control.state import GroupState, JobState
from spare.control.turn import Turn
from spare.planner.words import counted


def too_few(turn: Turn, cause: str, going: Sequence[Leaver] = ()) -> bool:
    """Whether to wait. Not while the job is to stop: nobody would come, and what is left can finish its step.

    Args:
        cause: Who was lost, and how.
        going: Members that the next plan would let go.
    """
    state, config = turn.state, turn.config
    if config.min_groups is None or state.halt is not None:
        return False
    ready = sum(here.state is GroupState.READY for here in state.groups) + spares.seats(turn)
    here = len(state.live) - len(going)
    if here + ready >= config.min_groups:
        return False
    deleted = state.waiting.deleted if state.waiting else frozenset()
    fresh = [loss for loss in state.losses if loss.uid not in deleted]
    turn.do(*(DeleteGroup(loss.group, loss.uid) for loss in fresh))
    since = state.waiting.since if state.waiting else turn.now
    turn.set(waiting=Waiting(since, deleted | {loss.uid for loss in fresh}))
    text = f"{cause}: {left(here, config.min_groups)}"
    if not config.replace:
        turn.end(ExitCode.STALLED, EventReason.BELOW_MIN_GROUPS, f"{text}; lost groups are not replaced")
    elif turn.now - since > config.wait_limit:
        text = f"{text}; waited {turn.now - since:.0f} s for {config.min_groups - here} more; ready: {ready}"
        turn.end(ExitCode.STALLED, EventReason.BELOW_MIN_GROUPS, text)
    elif fresh:
        turn.move_job(JobState.WAITING)
        lost = tuple(sorted(loss.group for loss in fresh))
        turn.say(EventReason.BELOW_MIN_GROUPS, f"{text}; waiting for {config.min_groups - here} more", lost)
    return True


def left(groups: int, least: int | None) -> str:
    """How many are left, and how many there must be."""
    return f"{counted(groups, 'group')} {'is' if groups == 1 else 'are'} left, and minGroups is {least}"
