"""Lost groups come back: a new incarnation is started, and a boundary plan admits it (design, section 7).

A boundary plan takes effect at a commit, so the survivors lose nothing by it. It is made only while nothing is open: no
failure unanswered or still being recovered from, and every member running under the present plan.
"""

from __future__ import annotations

from spare.api import wire
from spare.api.reasons import EventReason
from spare.control import poison
from spare.control.action import CreateGroup, PushPlan
from spare.control.checkpointing import writer_of
from spare.control.plan import Member, Plan
from spare.control.rank import fresh_pods, fresh_ranks
from spare.control.sharing import reordered
from spare.control.state import Group, GroupState, JobState, State
from spare.control.turn import Turn


def rejoin(turn: Turn) -> None:
    """Start what is due, and admit who is ready."""
    if turn.state.ended:
        return
    for here in turn.state.groups:
        if here.retry is not None and turn.now >= here.retry:
            start(turn, here)
    ready = _ready(turn.state)
    if ready and _quiet(turn.state):
        _admit(turn, ready)


def start(turn: Turn, here: Group) -> None:
    """Start another incarnation of a group."""
    config = turn.config
    zones = tuple(pod.zone for pod in here.pods)
    turn.move(here.group, GroupState.STARTING, uid="", home="", master="", retry=None, attempts=here.attempts + 1)
    turn.put(here.group, pods=fresh_pods(config.pods, zones=zones), ranks=fresh_ranks(config.ranks))
    turn.do(CreateGroup(here.group))
    turn.reasons.append(f"group {here.group} is started again: {here.reason}")


def joined(turn: Turn, group: int) -> None:
    """A member has committed a step: if it was joining, and all its ranks have, it has the state now."""
    if turn.group(group).state is not GroupState.JOINING or not turn.group(group).committed:
        return
    turn.move(group, GroupState.ACTIVE, attempts=1, reason="")
    state = turn.state
    plan = state.plan
    assert plan is not None
    turn.say(EventReason.GROUP_REJOINED, f"group {group} is back, in epoch {plan.epoch}", (group,))
    if len(state.whole) == turn.config.groups:
        turn.move_job(JobState.RUNNING)


def _ready(state: State) -> tuple[int, ...]:
    return tuple(here.group for here in state.groups if here.state is GroupState.READY)


def _quiet(state: State) -> bool:
    """Whether a boundary plan may be made now."""
    plan = state.plan
    if plan is None or state.losses or state.suspicions or state.probe is not None or state.recovering is not None:
        return False
    members = [state.groups[g] for g in state.live]
    return all(here.running >= plan.epoch and here.state is not GroupState.DONE for here in members)


def _admit(turn: Turn, ready: tuple[int, ...]) -> None:
    state = turn.state
    old = state.plan
    assert old is not None
    epoch = old.epoch + 1
    change = reordered(turn.config, old.schedule, sorted({*state.live, *ready}), state.whole)
    fresh = [Member(g, state.groups[g].uid, epoch) for g in ready]
    members = sorted([*(m for m in old.members if m.group in state.live), *fresh], key=lambda m: m.group)
    who = wire.groups_text(ready)
    reason = f"{'group' if len(ready) == 1 else 'groups'} {who} back: {change.reason}"
    plan = Plan(
        job=old.job,
        epoch=epoch,
        base=old.base,
        members=tuple(members),
        leader=min(state.whole),
        stores=state.groups[min(state.whole)].stores,
        schedule=change.schedule,
        reason=reason,
        origin=old.origin,
        skipped=poison.to_skip(state),
        writer=writer_of(state, state.live),
        checkpoint=old.checkpoint,
    )
    turn.set(plan=plan, stalled=False)
    for group in ready:
        turn.move(group, GroupState.JOINING)
    turn.do(PushPlan(plan, tuple((m.group, m.uid) for m in plan.members)))
    turn.say(EventReason.REORDERED, f"plan {epoch} (at the next commit): {reason}", ready)
