"""A coordinator that comes back: the job's state from what was written down (docs/protocol.md, rule 5).

Pure. Members are taken for alive until their silence has lasted `dead_after`, counted from now; agents say the rest
when they are dialled. Whatever happened meanwhile is then a failure like any other, handled once.
"""

from __future__ import annotations

import math
from dataclasses import replace

from spare.api.exit_codes import ExitCode
from spare.control import leave, spares
from spare.control.action import DeleteGroup
from spare.control.config import Config
from spare.control.decide import Decision, begin
from spare.control.leaver import Halt
from spare.control.plan import Plan
from spare.control.rank import fresh_pods, fresh_ranks
from spare.control.record import Kept, document, read_document
from spare.control.saving import Restarting
from spare.control.state import Group, GroupState, JobState, State
from spare.planner.words import counted


def resume(config: Config, recorded: str | None, now: float) -> Decision:
    """Go on with a job, or begin it where nothing was recorded.

    The backend tells of the agents that exist (AgentUp) as it does of new ones. Until its first plan a job keeps
    nothing: its groups are asked for again, and starting one that is there already changes nothing (field case F27).

    Args:
        config: Of the job.
        recorded: What was last recorded, see `spare.control.record.document`; None: nothing.
        now: The coordinator's clock.

    Raises:
        ValueError: the record is damaged, or of another job.
    """
    if recorded is None:
        return begin(config, now)
    plan, kept = read_document(recorded)
    if plan.job != config.job:
        raise ValueError(f"the recorded plan is of job {plan.job!r}; this is {config.job!r}")
    size = plan.schedule.placement.groups
    if size != config.groups:
        raise ValueError(f"the recorded plan is for {size} groups; job {config.job!r} has {config.groups}")
    if len(plan.stores) != config.ranks:
        raise ValueError(
            f"the recorded plan is for {counted(len(plan.stores), 'rank')} a group; {config.job!r} has {config.ranks}"
        )
    groups = tuple(_group(config, plan, kept, number, now) for number in range(config.groups))
    whole = len(plan.members) == config.groups and not kept.joining
    state = State(
        config,
        groups,
        began=now,
        spares=spares.not_started(config, now + config.backoff(1)),  # the backend has this long to tell of them
        job=_job(whole, kept),
        plan=plan,
        poison=plan.skipped,
        finishing=kept.finishing,
        step=kept.step,
        masked=kept.masked,
        restarts=kept.restarts,
        drained=kept.drained,
        leavers=tuple(leave.again(each, plan, config, now, each.uid in kept.left) for each in plan.leaving),
        halt=_halt(config, plan, kept, now),
        checkpoints=kept.checkpoints,
        damaged=frozenset(kept.damaged),
        restarting=None if kept.restarting is None else Restarting(now, now, (), *kept.restarting),
        digest=kept.digest,
    )
    if kept.exit_code is not None:
        return Decision(_ended(state, kept), (), f"the job has ended: {kept.verdict.splitlines()[0]}", math.inf)
    leaving = {each.uid for each in plan.leaving}
    actions = tuple(DeleteGroup(group, uid) for group, uids in kept.past for uid in uids if uid not in leaving)
    wake = min((here.retry for here in groups if here.retry is not None), default=math.inf)
    return Decision(state, actions, f"going on with plan {plan.epoch} after step {kept.step}", wake)


def going_on(recorded: str) -> str:
    """The record of a job that was suspended, as that of one whose groups all begin again where it stopped.

    Epochs go on, so nobody of before can be taken for one of after.

    Raises:
        ValueError: as `resume`.
    """
    plan, kept = read_document(recorded)
    past = dict(kept.past)
    for member in plan.members:
        past[member.group] = Group(member.group, past=past.get(member.group, ())).outlived(member.uid)
    fresh = replace(
        kept,
        exit_code=None,
        verdict="",
        end="",
        finishing=False,
        joining=(),
        attempts=(),
        past=tuple(sorted(past.items())),
        restarting=(kept.step, "it was suspended"),
    )
    return document(plan, fresh)


def _group(config: Config, plan: Plan, kept: Kept, number: int, now: float) -> Group:
    attempts, past = dict(kept.attempts).get(number, 1), dict(kept.past).get(number, ())
    member = plan.by_group.get(number)
    if member is None or (kept.restarting is not None and member.uid in past):
        # Its replacement may have been started already: the backend has this long to tell of it.
        comes_back = (config.replace or kept.restarting is not None) and kept.exit_code is None
        retry = now + config.backoff(attempts) if comes_back else None
        reason = "no member when the coordinator came back"
        fresh = Group(number, pods=fresh_pods(config.pods), ranks=fresh_ranks(config.ranks))
        return replace(fresh, state=GroupState.LOST, past=past, attempts=attempts, retry=retry, reason=reason)
    state = GroupState.JOINING if number in kept.joining else GroupState.ACTIVE
    if kept.restarting is not None:
        state = GroupState.STARTING  # its hello tells whether its workers have begun again
    pods, ranks = fresh_pods(config.pods, heard=now), fresh_ranks(config.ranks)
    if number == plan.leader:
        ranks = tuple(replace(rank, store=plan.stores[rank.rank]) for rank in ranks)
    known = Group(number, state, member.uid, past, pods, ranks, attempts=attempts)
    speed = plan.schedule.speed(number)  # one that its share was made smaller for is slow until it is seen not to be
    return known if speed == 100 else replace(known, straggler=True, lag=100 / speed)


def _halt(config: Config, plan: Plan, kept: Kept, now: float) -> Halt | None:
    """A plan that stops all was made: who has not stopped yet has this long, and who has is not lost (F23)."""
    if not plan.halt or kept.restarting is not None:
        return None
    return Halt("asked before", now + max(config.grace, config.hang_after))


def _job(whole: bool, kept: Kept) -> JobState:
    if kept.restarting is not None:
        return JobState.WAITING
    return JobState.RUNNING if whole else JobState.DEGRADED


def _ended(state: State, kept: Kept) -> State:
    """Complete and failed are final (field case F34)."""
    ends = {int(ExitCode.COMPLETE): JobState.COMPLETE, int(ExitCode.SIGTERM): JobState.SUSPENDED}
    job = ends.get(kept.exit_code, JobState.FAILED) if kept.exit_code is not None else state.job
    return replace(state, job=job, exit_code=kept.exit_code, verdict=kept.verdict, end=kept.end)
