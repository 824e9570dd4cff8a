"""What a worker does about a plan that reaches it (docs/protocol.md). Pure.

The rules are those of the protocol's model: an urgent plan (base newer than one's own epoch) is acted on at once; so is
any newer plan by who waits, and a plan under another admission epoch; every other newer plan is a boundary plan, kept
for the commit at which all members have seen it.
"""

from __future__ import annotations

from enum import Enum

from spare.api.wire import Plan


class Reaction(Enum):
    """What to do about a plan."""

    IGNORE = "it is not newer than what I know, or not for this incarnation"
    KEEP = "a boundary plan: to be acted on at the commit at which everybody has seen one"
    ACT = "regroup under it now"
    STOP = "I am no member of it: stop now"


def reaction(plan: Plan, *, uid: str, epoch: int, seen: int, admission: int | None, waiting: bool) -> Reaction:
    """What to do about `plan`.

    Args:
        plan: This group's part of it.
        uid: My agent's incarnation.
        epoch: Of the plan that I run under; 0 before the first.
        seen: Of the newest plan that I know.
        admission: Epoch that admitted me; None before the first plan.
        waiting: In a rendezvous, after the last step, or before the first plan. Not after a failure: that is answered
            by an urgent plan only.
    """
    if plan.uid != uid or plan.epoch <= seen:
        return Reaction.IGNORE
    member = plan.admission is not None
    if not member and epoch == 0:
        return Reaction.IGNORE  # I was never in: a later plan may admit me
    urgent = plan.base > epoch or waiting or (member and plan.admission != admission)
    if not urgent:
        return Reaction.KEEP
    return Reaction.ACT if member else Reaction.STOP
