"""The start: of a new job, of one that goes on from a checkpoint of another, and of all groups again after a wipe-out.

One plan begins all of them, once every group is ready, or after a while as many as `minGroups` asks for (field case
F20: however far apart they come up). Its epoch is the origin of what follows; it names the checkpoint to begin with.
"""

from __future__ import annotations

import math

from spare.api import wire
from spare.api.checkpoint import Name
from spare.api.exit_codes import ExitCode
from spare.api.reasons import EventReason
from spare.api.spec import OnWipeOut
from spare.control import checkpointing, recovery, rejoin
from spare.control.action import PushPlan
from spare.control.plan import Member, Plan
from spare.control.sharing import reordered
from spare.control.state import Group, GroupState, JobState, State
from spare.control.turn import Turn
from spare.planner.placement import place
from spare.planner.schedule import Schedule, healthy
from spare.planner.shards import healthy_shards
from spare.planner.wipe_out import uncovered
from spare.planner.words import counted


def unreadable(state: State) -> bool:
    """Whether the present plan began with a checkpoint that somebody cannot read, and nothing is committed since."""
    plan = state.plan
    if plan is None or plan.checkpoint not in state.damaged:
        return False
    return state.step == Name.parse(plan.checkpoint).step


def since(state: State) -> float:
    """When the start that is under way began."""
    return state.began if state.restarting is None else state.restarting.at


def start(turn: Turn) -> None:
    """Wait until the groups are ready, and begin."""
    for here in turn.state.groups:
        _watch(turn, here)
    state, config = turn.state, turn.config
    if state.ended:
        return
    ready = tuple(here.group for here in state.groups if here.state is GroupState.READY)
    waited = turn.now - since(state)
    if len(ready) == config.groups or (waited >= config.start_wait and _enough(state, ready)):
        begin_with(turn, ready)
    elif waited >= config.start_timeout:
        missing = [here for here in state.groups if here.state is not GroupState.READY]
        seen = "; ".join(f"group {here.group}: {last_seen(here, turn.now)}" for here in missing[:8])
        more = f"; and {len(missing) - 8} more" if len(missing) > 8 else ""
        limit = config.start_timeout
        were = "was" if len(missing) == 1 else "were"
        text = f"{len(missing)} of {counted(config.groups, 'group')} {were} not ready after {limit:.0f} s: {seen}{more}"
        turn.end(ExitCode.STALLED, EventReason.STALLED, text, tuple(here.group for here in missing))


def _enough(state: State, ready: tuple[int, ...]) -> bool:
    """Whether these groups are as many as `minGroups` asks for, and can compute a step."""
    config = state.config
    if config.min_groups is None or len(ready) < max(1, config.min_groups):
        return False
    return config.on_wipe_out is OnWipeOut.FETCH or not uncovered(_placed(state).placement, frozenset(ready))


def _watch(turn: Turn, here: Group) -> None:
    """Start a group again that died before the plan: no work is lost with it, but a crash loop must end."""
    if here.retry is None:
        return
    config = turn.config
    if here.failed >= config.create_limit and not _spared(turn.state, here):
        when = f"died {here.failed} times before {_which_plan(turn.state)}"
        text = f"group {here.group} {when}; the last time: {here.reason}"
        turn.end(ExitCode.STALLED, EventReason.STALLED, text, (here.group,))
    elif turn.now >= here.retry:
        rejoin.start(turn, here)


def _which_plan(state: State) -> str:
    return "the first plan" if state.plan is None else "the plan with which all begin again"


def _spared(state: State, here: Group) -> bool:
    """Whether the job can begin without the groups that do not come up, this one among them."""
    config = state.config
    hopeless = {g.group for g in state.groups if g.failed >= config.create_limit and g.retry is not None}
    return config.min_groups is not None and config.groups - len(hopeless | {here.group}) >= config.min_groups


def _placed(state: State) -> Schedule:
    config = state.config
    zones = [here.zone for here in state.groups]
    placement = place(config.groups, config.redundancy, config.strategy, zones if any(zones) else None)
    return (healthy_shards if config.whole_shards else healthy)(placement, config.micro_batches)


def begin_with(turn: Turn, groups: tuple[int, ...]) -> None:
    """The plan with which these groups begin: a new job, or all of it anew."""
    state, config = turn.state, turn.config
    checkpoint = checkpointing.usable(state)
    if checkpoint is None and state.damaged:
        which = ", ".join(sorted(state.damaged))
        text = f"no checkpoint can be read by all ({which}), and step 0 would be begun over them"
        text += f"; each pod must see the same folder at {config.checkpoint}"
        turn.end(ExitCode.STALLED, EventReason.CHECKPOINT_UNREADABLE, text)
        return
    schedule = _placed(state)
    if len(groups) < config.groups:
        schedule = reordered(config, schedule, groups, groups).schedule
    step = Name.parse(checkpoint).step if checkpoint else 0
    after = max([state.plan.epoch if state.plan else 0, *(Name.parse(name).origin for name in state.checkpoints)])
    epoch, leader = after + 1, groups[0]
    plan = Plan(
        job=config.job,
        epoch=epoch,
        base=epoch,
        members=tuple(Member(g, state.groups[g].uid, epoch) for g in groups),
        leader=leader,
        stores=state.groups[leader].stores,
        schedule=schedule,
        reason=f"start: {counted(len(groups), 'group')}, {counted(config.redundancy, 'host')} a shard",
        origin=epoch,
        skipped=tuple(micro for micro in state.poison if micro[0] >= step),
        writer=max(groups) if config.checkpoint else -1,
        checkpoint=checkpoint or "",
    )
    _adopt(turn, plan, step)
    turn.do(PushPlan(plan, tuple((m.group, m.uid) for m in plan.members)))


def _adopt(turn: Turn, plan: Plan, step: int) -> None:
    again = turn.state.restarting
    turn.set(
        plan=plan,
        restarting=None,
        losses=(),
        suspicions=(),
        probe=None,
        fruitless=0,
        stalled=False,
        step=step,
        loss=None if again is not None else turn.state.loss,  # that of a step which is taken back
        ordered=None,
        starting_since=since(turn.state) if again is None else again.at,
    )
    for group in plan.groups:
        turn.move(group, GroupState.ACTIVE, reason="")
        turn.put_ranks(group, done=None)
    whole = len(plan.members) == turn.config.groups
    turn.move_job(JobState.RUNNING if whole else JobState.DEGRADED)
    text = f"plan {plan.epoch}: {plan.reason}"
    if not whole:
        text += f", without {wire.groups_text(set(range(turn.config.groups)) - set(plan.groups))}: {_depth(plan)}"
    if again is not None:
        where = f"checkpoint {plan.checkpoint}" if plan.checkpoint else "step 0"
        turn.say(EventReason.RESTARTED, f"all groups begin again from {where}, after step {again.step}: {text}")
        recovery.reopened(turn, again)
        return
    if plan.checkpoint:  # for a second time where the first could not be read
        turn.say(EventReason.CONTINUED, f"goes on from step {step}, checkpoint {plan.checkpoint}", plan.groups)
    turn.say(EventReason.STARTED, text, plan.groups)


def _depth(plan: Plan) -> str:
    return f"depth {plan.schedule.depth:.3f}"


def last_seen(here: Group, now: float) -> str:
    """What is known of a group that is not ready."""
    if here.state is GroupState.LOST or (here.reason and not here.uid):
        return f"start {here.attempts}, {here.reason}"
    if not here.uid:
        return "the backend has not started its agent"
    rank = next(rank for rank in here.ranks if not rank.store)
    pod = here.pods[rank.rank * len(here.pods) // len(here.ranks)]
    of, its = (f"pod {pod.pod}: ", f"worker of rank {rank.rank}") if len(here.ranks) > 1 else ("", "its worker")
    if not pod.address:
        return f"{of}the backend has not started its agent"
    if pod.link_down is not None:
        return f"{of}no connection to its agent at {pod.address} for {now - pod.link_down:.1f} s ({pod.link_error})"
    if math.isinf(pod.heard):
        return f"{of}its agent at {pod.address} has not said anything"
    where = f"{of}its agent runs at {pod.address}"
    return f"{where}, {its} is not ready (worker {rank.worker}, phase {rank.phase})"
