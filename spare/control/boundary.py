"""Boundary plans: they take effect at a commit, so nobody loses anything by them (docs/protocol.md).

One such plan admits who is ready, lets go who was asked to leave, and gives slow groups less; or it halts the job. It
is made only while nothing is open: no failure unanswered, and every member running under the present plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spare.api.notation import called
from spare.api.reasons import EventReason
from spare.control import halt, leave, poison, straggle
from spare.control.action import PushPlan
from spare.control.checkpointing import writer_of
from spare.control.leaver import Leaver
from spare.control.plan import Member, Plan
from spare.control.sharing import reordered
from spare.control.state import GroupState, JobState, State
from spare.control.turn import Turn


def boundary(turn: Turn) -> None:
    """Make the boundary plan that is due, if one is."""
    if turn.state.ended or turn.state.starting:
        return  # a wipe-out a moment ago: the next plan is that of the restart
    halt.called_for(turn)
    state = turn.state
    if not _quiet(state) or not state.live:
        return  # of those who have stopped already nobody needs a plan
    if state.halt is not None:
        assert state.plan is not None
        if not state.plan.halt:
            _plan(turn, (), (), stop=True)
        return
    ready = _ready(state) if state.recovering is None else ()
    going = leave.may_go(state, turn.now)
    speeds = straggle.rebalancing(turn) if state.recovering is None else None
    if ready or going or speeds is not None:
        _plan(turn, ready, going, speeds=speeds)


def _ready(state: State) -> tuple[int, ...]:
    return tuple(here.group for here in state.groups if here.state is GroupState.READY)


def _quiet(state: State) -> bool:
    """Whether a boundary plan may be made now."""
    plan = state.plan
    if plan is None or state.losses or state.suspicions or state.probe is not None:
        return False
    members = [state.groups[g] for g in state.live]  # none where all have stopped: there is nobody to plan for
    return bool(members) and all(here.running >= plan.epoch and here.state is not GroupState.DONE for here in members)


def _plan(
    turn: Turn,
    ready: Sequence[int],
    going: Sequence[Leaver],
    stop: bool = False,
    speeds: Mapping[int, int] | None = None,
) -> None:
    state = turn.state
    old = state.plan
    assert old is not None
    epoch = old.epoch + 1
    gone = {leaver.group for leaver in going}
    able = [g for g in state.whole if g not in gone]
    change = reordered(turn.config, old.schedule, sorted(({*state.live} - gone) | {*ready}), able, speeds)
    fresh = [Member(g, state.groups[g].uid, epoch) for g in ready]
    leader = min(able)
    staying = [m for m in old.members if m.group in state.live and m.group not in gone]
    what = change.reason.partition(": ")[2] if ready or going else change.reason
    who = [leave.names(going)] if going else []
    who += [f"{called(ready)} back"] if ready else []
    reason = "all groups stop" if stop else ": ".join(filter(None, [", ".join(who), what]))
    plan = Plan(
        job=old.job,
        epoch=epoch,
        base=old.base,
        members=tuple(sorted([*staying, *fresh], key=lambda m: m.group)),
        leader=leader,
        stores=state.groups[leader].stores,
        schedule=change.schedule,
        reason=reason,
        origin=old.origin,
        skipped=poison.to_skip(state),
        writer=writer_of(state, [m.group for m in staying]),
        checkpoint=old.checkpoint,
        leaving=leave.parting(state, going, False, change.schedule.loads),
        halt=stop,
    )
    turn.set(plan=plan, stalled=False)
    for group in ready:
        turn.move(group, GroupState.JOINING)
    leave.released(turn, going, plan)
    turn.do(PushPlan(plan, leave.targets(plan)))
    # One that is as fast as the others again is in no `speeds`, and the plan is about it all the same.
    paced = {g for g in change.schedule.live if change.schedule.speed(g) != old.schedule.speed(g)}
    about = tuple(sorted({*ready, *gone, *paced}))
    turn.say(EventReason.REORDERED, f"plan {epoch} (at the next commit): {reason}", about)
    if len(plan.members) < turn.config.groups:
        turn.move_job(JobState.DEGRADED)
