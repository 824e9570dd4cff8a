"""decide(state, signals, now): the only place where a job's course is set. Pure: same arguments, same decision.

First all signals become facts, then the facts are looked at as a whole: so losses that are known at one moment make one
plan, in whatever order they were told (field case F05).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spare.api.exit_codes import ExitCode
from spare.api.reasons import EventReason
from spare.control import poison, recovery, rejoin
from spare.control.action import Action, CreateGroup, SendFinish
from spare.control.answer import answer, facts_at, first_plan
from spare.control.config import Config
from spare.control.detect import detect, silence
from spare.control.note import note
from spare.control.rank import fresh_pods, fresh_ranks
from spare.control.signal import Signal
from spare.control.state import Group, GroupState, State
from spare.control.turn import Turn


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
    groups = tuple(Group(g, pods=pods, ranks=ranks, attempts=1) for g in range(config.groups))
    actions = tuple(CreateGroup(g) for g in range(config.groups))
    state = State(config, groups, began=now)
    return Decision(state, actions, f"start {config.groups} groups", now + config.start_timeout)


def decide(state: State, signals: Sequence[Signal], now: float) -> Decision:
    """What to do about everything that was waiting at this moment, in the order in which it came."""
    if state.ended:
        return Decision(state, (), "", math.inf)
    turn = Turn(state, now)
    for signal in signals:
        note(turn, signal)
    _conclude(turn)
    after = turn.state
    return Decision(after, tuple(turn.actions), "; ".join(turn.reasons), _wake(after))


def _conclude(turn: Turn) -> None:
    state = turn.state
    if state.interrupted is not None:
        turn.end(ExitCode.INTERRUPTED, EventReason.INTERRUPTED, state.interrupted)
    elif state.errors:
        _failed(turn)
    elif state.poison and not poison.may_skip(state):
        poison.failed(turn)
    elif state.plan is None:
        _start(turn)
    elif state.finishing:
        _finish(turn)
    elif _all_done(state):
        _completed(turn)
    else:
        detect(turn)
        if turn.state.errors:
            _failed(turn)
            return
        answer(turn)
        rejoin.rejoin(turn)


def _failed(turn: Turn) -> None:
    """An error of the script is no failure to mask: the next process would end the same way."""
    errors = turn.state.errors
    first = errors[0]
    others = sorted({error.group for error in errors} - {first.group})
    text = first.text
    if others:
        head, _, rest = text.partition("\n")
        text = f"{head} [and {len(others)} more groups at the same time]" + (f"\n{rest}" if rest else "")
    if first.ours and first.type.endswith("Timeout"):
        turn.end(ExitCode.STALLED, EventReason.STALLED, text, (first.group,))
    elif first.ours and first.type == "StateDiverged":
        turn.end(ExitCode.INEXACT, EventReason.DIVERGED, text, (first.group,))
    else:
        turn.end(ExitCode.USER_ERROR, EventReason.USER_ERROR, text, (first.group,))


# --- start ------------------------------------------------------------------------------------------------------


def _start(turn: Turn) -> None:
    for here in turn.state.groups:
        _watch_start(turn, here)
    if turn.state.ended:
        return
    groups = turn.state.groups
    if all(here.state is GroupState.READY for here in groups):
        first_plan(turn)
    elif turn.now >= turn.state.began + turn.config.start_timeout:
        missing = [here for here in groups if here.state is not GroupState.READY]
        seen = "; ".join(f"group {here.group}: {_last_seen(here, turn.now)}" for here in missing[:8])
        more = f"; and {len(missing) - 8} more" if len(missing) > 8 else ""
        limit = turn.config.start_timeout
        text = f"{len(missing)} of {len(groups)} groups were not ready after {limit:.0f} s: {seen}{more}"
        turn.end(ExitCode.STALLED, EventReason.STALLED, text, tuple(here.group for here in missing))


def _watch_start(turn: Turn, here: Group) -> None:
    """Start a group again that died before the first plan: no work is lost with it, but a crash loop must end."""
    if here.retry is None:
        return
    if here.attempts >= turn.config.create_limit:
        text = f"group {here.group} died {here.attempts} times before the first plan; the last time: {here.reason}"
        turn.end(ExitCode.STALLED, EventReason.STALLED, text, (here.group,))
    elif turn.now >= here.retry:
        rejoin.start(turn, here)


def _last_seen(here: Group, now: float) -> str:
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
    turn.reasons.append(f"all {len(state.plan.members)} members have committed step {state.step}")
    _finish(turn)


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
        text = f"complete: {state.step} steps on {len(state.plan.members)} groups, {state.masked} losses masked"
        turn.end(ExitCode.COMPLETE, EventReason.COMPLETED, text)


# --- time -------------------------------------------------------------------------------------------------------


def _wake(state: State) -> float:
    """The next moment at which time alone changes the decision, apart from the ticks that look at silence."""
    if state.ended:
        return math.inf
    if state.plan is None:
        retries = [here.retry for here in state.groups if here.retry is not None]
        return min([*retries, state.began + state.config.start_timeout])
    if state.finishing:
        return math.inf  # nobody is started again: a retry that is due would wake us for ever
    retries = [here.retry for here in state.groups if here.retry is not None]
    return min([*retries, facts_at(state) if state.probe is not None else math.inf])
