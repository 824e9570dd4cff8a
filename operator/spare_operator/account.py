"""The status that a job's state makes. Pure; the one place where our conditions are decided."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from spare.api.exit_codes import ExitCode
from spare.api.notation import called, groups_text
from spare.api.reasons import ConditionType, EventReason
from spare.api.status import Condition, Groups, LastReorder, Status, with_state
from spare.control.minimum import left
from spare.control.plan import Plan
from spare.control.state import GroupState, JobState, State
from spare.planner import reorder
from spare.planner.words import counted

LONGEST: Final = 4000
"""Characters of a message: a traceback's end is cut, the object stays small."""
_ENDS: Final[dict[int, EventReason]] = {
    ExitCode.COMPLETE: EventReason.COMPLETED,
    ExitCode.USER_ERROR: EventReason.USER_ERROR,
    ExitCode.WIPE_OUT: EventReason.WIPE_OUT,
    ExitCode.STALLED: EventReason.STALLED,
    ExitCode.INEXACT: EventReason.DIVERGED,
    ExitCode.POISON: EventReason.POISON,
    ExitCode.DEADLINE: EventReason.DEADLINE_EXCEEDED,
}
_PRESENT: Final = (GroupState.STARTING, GroupState.READY, GroupState.JOINING)
_AT_WORK: Final = (GroupState.ACTIVE, GroupState.DONE)


def status_of(
    state: State,
    before: Status,
    now: datetime,
    *,
    generation: int,
    wall: float,
    moved: int = 0,
    waits: tuple[str, str] | None = None,
    end: str | None = None,
) -> Status:
    """What is to be written.

    Args:
        state: the job's.
        before: the status that stands there; what we do not know better stays.
        now: UTC.
        generation: metadata.generation of the spec that the job runs by.
        wall: seconds since 1970 when the state's clock showed 0.
        moved: micro-batches that survivors exchanged for the newest plan that answers a failure.
        waits: (reason, message) for which groups are not there, where the backend knows one.
        end: the reason for which the job has ended, where somebody but its control said so.
    """
    plan = state.plan
    changes: dict[str, object] = {
        "observed_generation": generation,
        "groups": _groups(state),
        "masked": state.masked,
        "drained": state.drained,
        "restarts": state.restarts,
        "conditions": _conditions(state, before, now, generation, waits, end),
    }
    if plan is not None:
        changes |= {
            "epoch": plan.epoch,
            "digest": plan.digest,
            "step": state.step,  # whoever commits one, all do; a restart goes back
            "depth": round(plan.schedule.depth, 4),
            "hosts_left": _hosts_left(state, plan),
            "last_reorder": _last_reorder(state, before, wall, moved),
        }
    if before.start_time is None and state.job is not JobState.SUSPENDED:
        changes["start_time"] = now
    if state.job in (JobState.COMPLETE, JobState.FAILED) and before.completion_time is None:
        changes["completion_time"] = now
    return before.model_copy(update=changes)


def moved_by(before: Plan | None, after: Plan) -> int:
    """Micro-batches that survivors of one plan exchanged among themselves for the next."""
    if before is None or before.schedule.placement != after.schedule.placement:
        return 0
    return reorder(before.schedule, after.groups).moved


def _groups(state: State) -> Groups:
    kinds = [here.state for here in state.groups]
    active, joining = sum(kind in _AT_WORK for kind in kinds), sum(kind in _PRESENT for kind in kinds)
    lost, ready = len(kinds) - active - joining, sum(here.state is GroupState.READY for here in state.spares)
    wanted = len(state.spares)
    return Groups(desired=len(kinds), active=active, joining=joining, lost=lost, spare=ready, spares_desired=wanted)


def _hosts_left(state: State, plan: Plan) -> int:
    whole = set(state.whole)
    return min(sum(host in whole for host in hosts) for hosts in plan.schedule.placement.host_table)


def _last_reorder(state: State, before: Status, wall: float, moved: int) -> LastReorder | None:
    open_, closed = state.recovering, state.recoveries
    if open_ is not None:
        time, reason, seconds = open_.decided, open_.reason, None
    elif closed:
        last = closed[-1]
        time, reason = last.decided, last.reason
        seconds = None if last.committed is None else round(last.committed - last.sign, 3)
    else:
        return before.last_reorder
    at = datetime.fromtimestamp(wall + time, UTC).replace(microsecond=0)
    return LastReorder(time=at, reason=reason[:LONGEST], seconds=seconds, moved=moved)


def _conditions(
    state: State, before: Status, now: datetime, generation: int, waits: tuple[str, str] | None, end: str | None
) -> tuple[Condition, ...]:
    kind, reason, message, degraded = _judged(state, before, waits, end)
    return with_state(
        before.conditions,
        kind,
        reason=reason,
        message=message[:LONGEST],
        now=now,
        generation=generation,
        degraded=degraded,
    )


Held = Mapping[tuple[int, int], tuple[EventReason, str]]
"""By group (or spare) and pod: why it is not there."""


def spares_wait(held: Held, count: int) -> tuple[EventReason, str] | None:
    """The same of spares' pods: for people, and no matter of the job's conditions."""
    found = sorted((at, why) for at, why in held.items() if at[0] >= count)
    if not found:
        return None
    (number, _), (reason, text) = found[0]
    return reason, f"spare {number - count}: {text}"


def waits_of(held: Held, count: int) -> tuple[EventReason, str] | None:
    """(reason, message) of what keeps the groups' pods from being there, a quota first; None if nothing does."""
    held = {at: why for at, why in held.items() if at[0] < count}
    if not held:
        return None
    reasons = {reason for reason, _ in held.values()}
    reason = EventReason.QUOTA_EXCEEDED if EventReason.QUOTA_EXCEEDED in reasons else min(reasons)
    stuck = sorted((at, text) for at, (why, text) in held.items() if why == reason)
    groups = sorted({group for (group, _), _ in stuck})
    who = called(groups) if len(groups) == 1 else f"{len(groups)} groups ({groups_text(groups)})"
    return reason, f"{who}: {stuck[0][1]}"


def starts_fail(state: State) -> tuple[EventReason, str] | None:
    """(reason, message) of groups whose pods run and end before they take part; None where none has. What a member was
    lost by is told as its loss: only what becomes of the starts that follow it is told here."""
    usual, found = 0 if state.plan is None else 1, list[tuple[int, int, str]]()
    for here in state.groups:
        ended = here.attempts - (here.state is GroupState.STARTING)
        if here.state in (GroupState.STARTING, GroupState.LOST) and ended > usual:
            found.append((here.group, ended, here.reason.partition("\n")[0]))
    if not found:
        return None
    (first, count, why), more = found[0], len(found) - 1
    others = f", and {counted(more, 'more group')} like it" if more else ""
    return EventReason.PODS_NOT_STARTING, f"{called([first])}: start {count} has ended: {why}{others}"


def _judged(
    state: State, before: Status, waits: tuple[str, str] | None, end: str | None
) -> tuple[ConditionType | None, str, str, bool]:
    """(what holds, reason, message, degraded)."""
    if state.job is JobState.SUSPENDED:
        return None, EventReason.SUSPENDED, state.verdict, False
    if state.ended:
        kind = ConditionType.COMPLETE if state.job is JobState.COMPLETE else ConditionType.FAILED
        told = end or state.end or _ENDS.get(state.exit_code or 0, EventReason.INTERRUPTED)
        return kind, told, state.verdict, False
    plan = state.plan
    if plan is None or state.restarting is not None or not _trains(state, before, plan):
        reason, message = waits or (EventReason.POD_CREATED, _starting(state))
        return None, reason, message, False
    if state.waiting is not None:
        text = f"{left(len(state.live), state.config.min_groups)}: waiting for replacements"
        reason, message = waits or (EventReason.BELOW_MIN_GROUPS, text)
        return None, reason, message, False
    if state.job is JobState.DEGRADED:
        message = plan.reason if waits is None else f"{plan.reason}; {waits[0]}: {waits[1]}"
        return ConditionType.RUNNING, EventReason.GROUP_LOST, message, True
    return ConditionType.RUNNING, EventReason.STARTED, plan.reason, False


def _trains(state: State, before: Status, plan: Plan) -> bool:
    """Whether the first plan has reached a group; once it has, an operator that comes back need not see it again."""
    return (before.step is not None and before.step > 0) or any(state.groups[g].running > 0 for g in plan.groups)


def _starting(state: State) -> str:
    ready = sum(here.state is GroupState.READY for here in state.groups)
    return f"ready: {ready} of {counted(len(state.groups), 'group')}"
