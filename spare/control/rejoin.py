"""Groups that were lost or have left come back: a new incarnation is started; a boundary plan admits it later."""

from __future__ import annotations

from spare.api.reasons import EventReason
from spare.control.action import CreateGroup, DeleteGroup
from spare.control.rank import fresh_pods, fresh_ranks
from spare.control.state import Group, GroupState, JobState
from spare.control.turn import Turn


def rejoin(turn: Turn) -> None:
    """Start what is due."""
    if turn.state.ended or turn.state.halt is not None:
        return
    for here in turn.state.groups:
        if here.retry is not None and turn.now >= here.retry:
            start(turn, here)


def start(turn: Turn, here: Group) -> None:
    """Start another incarnation of a group."""
    config = turn.config
    zones = tuple(pod.zone for pod in here.pods)
    fresh = {"uid": "", "home": "", "master": "", "retry": None, "spare": None}
    turn.move(here.group, GroupState.STARTING, attempts=here.attempts + 1, **fresh)
    turn.put(here.group, started=turn.now, pods=fresh_pods(config.pods, zones=zones), ranks=fresh_ranks(config.ranks))
    # Of a loss that no plan has answered yet something may be there still: beside it nothing would be started.
    turn.do(*(DeleteGroup(loss.group, loss.uid) for loss in turn.state.losses if loss.group == here.group))
    turn.do(CreateGroup(here.group))
    turn.reasons.append(f"{turn.name(here.group)} is started again: {here.reason}")


def rest(turn: Turn, before: Group) -> None:
    """An incarnation of a group that was to be started has shown itself: what is missing of its pods is asked for.

    Its start was cut short by a pod that could not be made, or by a coordinator's end. `before`: as it was until now.
    To ask for what is there already changes nothing (field case F27).
    """
    if turn.config.pods > 1 and before.state in (GroupState.LOST, GroupState.LEFT):
        turn.do(CreateGroup(before.group))


def joined(turn: Turn, group: int) -> None:
    """A member has committed a step: its start is over. If it was joining, and all its ranks have, it has the state."""
    here = turn.group(group)
    if here.state is GroupState.ACTIVE and here.committed and here.attempts > 1:
        turn.put(group, attempts=1, excused=0)
    if here.state is not GroupState.JOINING or not here.committed:
        return
    turn.move(group, GroupState.ACTIVE, attempts=1, excused=0, reason="")
    state = turn.state
    plan = state.plan
    assert plan is not None
    spare = turn.group(group).spare
    by = f", as what was spare {spare}" if spare is not None else ""
    turn.say(EventReason.GROUP_REJOINED, f"group {group} is back{by}, in epoch {plan.epoch}", (group,))
    if len(state.whole) == turn.config.groups:
        turn.move_job(JobState.RUNNING)
