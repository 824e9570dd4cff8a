"""decide(state, signals, now): the only place where a job's course is set. Pure: same arguments, same decision.

First all signals become facts, then the facts are looked at as a whole: so losses that are known at one moment make one
plan, in whatever order they were told (field case F05).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spare.api.checkpoint import Name
from spare.api.exit_codes import ExitCode
from spare.api.reasons import EventReason
from spare.control import boundary, checkpointing, halt, leave, poison, recovery, rejoin, routine, spares, straggle
from spare.control.action import Action, CreateGroup, SendFinish
from spare.control.answer import answer, facts_at
from spare.control.config import Config
from spare.control.detect import detect, exceptions, late_starters, next_exception, silence
from spare.control.note import note
from spare.control.rank import fresh_pods, fresh_ranks
from spare.control.signal import Signal
from spare.control.start import begin_with, since, start, unreadable
from spare.control.state import Group, State
from spare.control.turn import Turn
from spare.planner import check
from spare.planner.words import counted


@dataclass(frozen=True)
class Decision:
    """What comes of some signals."""

    state: State
    actions: tuple[Action, ...]
    reason: str
    """Why, for people; empty when nothing was decided."""
    wake: float
    """When to decide again though nothing has happened (with a Tick); infinite if never."""


def begin(config: Config, now: float) -> Decision:
    """A new job: every group is to be started."""
    pods, ranks = fresh_pods(config.pods), fresh_ranks(config.ranks)
    groups = tuple(Group(g, pods=pods, ranks=ranks, attempts=1, started=now) for g in range(config.groups))
    actions = tuple(CreateGroup(g) for g in range(config.groups))
    state = State(config, groups, began=now, spares=spares.not_started(config, now))
    return Decision(state, actions, f"start {counted(config.groups, 'group')}", now + config.start_timeout)


def decide(state: State, signals: Sequence[Signal], now: float) -> Decision:
    """What to do about everything that was waiting at this moment, in the order in which it came."""
    if state.ended:
        return Decision(state, (), "", math.inf)
    turn = Turn(state, now)
    for signal in signals:
        note(turn, signal)
    noted = turn.state
    if routine.goes_on_as_before(turn, signals):  # then it moves no moment, either
        return Decision(noted, (), "; ".join(turn.reasons), noted.wake)
    _conclude(turn)
    if turn.state.plan is not state.plan and (broken := _broken_rules(turn.state)):
        turn = Turn(noted, now)  # nothing that follows from such a plan is done
        text = f"plan {turn.state.plan.epoch + 1 if turn.state.plan else 1} would break the rules: {'; '.join(broken)}"
        turn.end(ExitCode.INEXACT, EventReason.INVALID_PLAN, text)
    turn.set(wake=_wake(turn.state, now))
    return Decision(turn.state, tuple(turn.actions), "; ".join(turn.reasons), turn.state.wake)


def _broken_rules(state: State) -> tuple[str, ...]:
    """What the judge has against the newest plan. It shares no code with the planner: a defect there is found before
    anybody is told of the plan, and costs no sample (docs/protocol.md, rule 1)."""
    plan = state.plan
    assert plan is not None
    if plan.schedule.live != plan.groups:
        return (f"the members are groups {plan.groups}, and the work is given to {plan.schedule.live}",)
    return check(plan.schedule.to_json())


def _conclude(turn: Turn) -> None:
    exceptions(turn)
    state = turn.state
    if state.interrupted is not None:
        turn.end(ExitCode.INTERRUPTED, EventReason.INTERRUPTED, state.interrupted)
    elif turn.now >= _deadline(state) and not state.finishing:
        limit = turn.config.deadline
        text = f"the job has run for {turn.now - state.began:.0f} s; spec.runPolicy.activeDeadlineSeconds is {limit:g}"
        turn.end(ExitCode.DEADLINE, EventReason.DEADLINE_EXCEEDED, f"{text}. Step {state.step} was the last committed")
    elif state.errors:
        _failed(turn)
    elif state.poison and not poison.may_skip(state):
        poison.failed(turn)
    elif state.starting:
        halt.conclude(turn)
        if not turn.state.ended:
            late_starters(turn, math.inf)  # for all together there is one deadline
            spares.keep(turn)
            start(turn)
    elif state.finishing:
        _finish(turn)
    elif _all_done(state):
        _completed(turn)
    else:
        leave.watch(turn)
        detect(turn)
        if turn.state.errors:
            _failed(turn)
            return
        if not turn.state.losses and unreadable(turn.state):
            begin_with(turn, turn.state.live)
        answer(turn)
        spares.keep(turn)
        rejoin.rejoin(turn)
        straggle.straggle(turn)
        boundary.boundary(turn)
        halt.conclude(turn)
    if not turn.state.ended and not turn.state.starting:
        checkpointing.arrange(turn)


def _deadline(state: State) -> float:
    limit = state.config.deadline
    return math.inf if limit is None else state.began + limit


def _failed(turn: Turn) -> None:
    """An error of the script is no failure to mask: the next process would end the same way."""
    errors = turn.state.errors
    first = errors[0]
    others = sorted({error.group for error in errors} - {first.group})
    text = first.text
    if others:
        head, _, rest = text.partition("\n")
        text = f"{head} [and {counted(len(others), 'more group')} at the same time]" + (f"\n{rest}" if rest else "")
    if first.ours and first.type.endswith("Timeout"):
        turn.end(ExitCode.STALLED, EventReason.STALLED, text, (first.group,))
    elif first.ours and first.type == "CheckpointMismatch":
        turn.end(ExitCode.USER_ERROR, EventReason.CHECKPOINT_MISMATCH, text, (first.group,))
    elif first.ours and first.type == "StateDiverged":
        turn.end(ExitCode.INEXACT, EventReason.DIVERGED, text, (first.group,))
    else:
        turn.end(ExitCode.USER_ERROR, EventReason.USER_ERROR, text, (first.group,))


# --- end --------------------------------------------------------------------------------------------------------


def _all_done(state: State) -> bool:
    """Whether every member of the plan has said so, those that died after it included: they hold the same step."""
    plan = state.plan
    if plan is None:
        return False
    return all(state.groups[m.group].uid == m.uid and state.groups[m.group].done is not None for m in plan.members)


def _completed(turn: Turn) -> None:
    state = turn.state
    assert state.plan is not None
    digests: dict[str, list[int]] = {}
    for group in state.plan.groups:
        done = state.groups[group].done
        assert done is not None
        digests.setdefault(done[1], []).append(group)
    if len(digests) > 1:
        parts = "; ".join(f"groups {', '.join(map(str, who))}: {digest[:16]}" for digest, who in digests.items())
        text = f"the parameters differ after the last step, {state.step}: {parts}"
        turn.end(ExitCode.INEXACT, EventReason.DIVERGED, text, state.plan.groups)
        return
    recovery.closed(turn)
    turn.set(finishing=True, digest=next(iter(digests)), suspicions=(), losses=(), probe=None)
    for loss in state.losses:
        turn.put_ranks(loss.group, finished=True)
    turn.do(SendFinish(turn.state.live))
    turn.reasons.append(f"every member has committed step {state.step}: {counted(len(state.plan.members), 'group')}")
    _finish(turn)


def _newest(state: State) -> str:
    return "nor anything before" if state.saved is None else f"the newest checkpoint is {state.saved.name}"


def _finish(turn: Turn) -> None:
    """Wait until every member's script has ended by itself, or can no longer be heard of; then the job is complete."""
    state = turn.state
    for group in state.live:
        here = state.groups[group]
        quiet = silence(state, here, turn.now)
        if not here.finished and quiet > turn.config.dead_after:
            turn.put_ranks(group, finished=True)
            turn.put(group, reason=f"not heard for {quiet:.1f} s after the last step")
        elif not here.finished and here.silent_for > turn.config.dead_after:
            turn.put_ranks(group, finished=True)
            turn.put(group, reason=f"its worker is silent for {here.silent_for:.1f} s after the last step")
    state = turn.state
    if all(state.groups[g].finished for g in state.live):
        assert state.plan is not None
        done, on = counted(state.step, "step"), counted(len(state.plan.members), "group")
        text = f"complete: {done} on {on}, {counted(state.masked, 'loss')} masked"
        if state.plan.checkpoint and Name.parse(state.plan.checkpoint).step == state.step:
            text += f"; all of them were in checkpoint {state.plan.checkpoint} already, and nothing was left to do"
        elif turn.config.checkpoint is not None and (state.saved is None or state.saved.step < state.step):
            text += f"; its end could not be saved, {_newest(state)}"
        turn.end(ExitCode.COMPLETE, EventReason.COMPLETED, text)


# --- time -------------------------------------------------------------------------------------------------------


def _wake(state: State, now: float) -> float:
    """The next moment at which time alone changes the decision, apart from the ticks that look at silence."""
    if state.ended:
        return math.inf
    if state.finishing:
        return next_exception(state)  # nobody is started again: a retry that is due would wake us for ever
    # While the job halts nobody is started again, and a retry that is due would wake us for ever here, too.
    moments = [] if state.halt is not None else [here.retry for here in state.groups if here.retry is not None]
    # What is due already waits for something else, which is looked at with the ticks.
    moments += [here.retry for here in state.spares if here.retry is not None and here.retry > now]
    moments.append(next_exception(state))
    if state.starting:
        deadlines = [since(state) + wait for wait in (state.config.start_wait, state.config.start_timeout)]
        return min([*moments, *(at for at in deadlines if at > now), _deadline(state)])
    let_go = leave.due(state, now)
    return min([*moments, _deadline(state), facts_at(state) if state.probe is not None else math.inf, let_go])
