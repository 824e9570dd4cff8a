"""Warm spares: groups' processes that have started, imported and connected, and wait for the place of a lost group.

A spare is a group without a place. It has a number of its own, from spec.groups on, until it takes over that of a lost
group: from then on it is that group's incarnation, ready to be admitted like any other replacement, by the next
boundary plan. Its agent learns of it by that plan and may say its old number until then, so what counts here is the
incarnation. A spare that dies is no loss: nobody depends on it.
"""

from __future__ import annotations

from dataclasses import replace

from spare.api import wire
from spare.api.reasons import EventReason
from spare.control import rejoin
from spare.control.action import DeleteGroup, TakeOver
from spare.control.config import Config
from spare.control.rank import fresh_pods, fresh_ranks
from spare.control.signal import AgentGone, AgentNotStarted, AgentUp, LinkDown
from spare.control.state import Group, GroupState, State
from spare.control.turn import Turn

_FIT = 2.0
"""Heartbeats within which a spare must have been heard to be given a place: a dead one would cost a second plan."""
_SLOW = 60.0
"""Seconds after which a start of a group that does not come about keeps no spare from being started any more: the spare
would take its place."""
_Told = AgentUp | AgentGone | AgentNotStarted | LinkDown


def not_started(config: Config, retry: float) -> tuple[Group, ...]:
    """The spares of a job that are still to be started, from `retry` on."""
    return tuple(_row(config, number, retry) for number in range(config.groups, config.numbers))


def _row(config: Config, number: int, retry: float) -> Group:
    pods, ranks = fresh_pods(config.pods), fresh_ranks(config.ranks)
    return Group(number, GroupState.LOST, pods=pods, ranks=ranks, retry=retry, reason="not started yet")


# --- which one is meant -------------------------------------------------------------------------------------------


def home(state: State, number: int, uid: str) -> int:
    """The number that an incarnation has now, or had last, which was started as spare `number`."""
    if number < len(state.groups) or not uid:
        return number
    return next((here.group for here in state.groups if uid == here.uid or uid in here.past), number)


def said(state: State, message: wire.Up) -> wire.Up:
    """What an incarnation says, as said by the group whose place it has taken."""
    number = home(state, message.group, message.uid)
    return message if number == message.group else message.model_copy(update={"group": number})


def told(state: State, signal: _Told) -> _Told:
    """What a backend tells of an incarnation, as told of the group whose place it has taken."""
    uid = "" if isinstance(signal, AgentNotStarted) else signal.uid
    number = home(state, signal.group, uid)
    return signal if number == signal.group else replace(signal, group=number)


def overtook(turn: Turn, here: Group, uid: str) -> bool:
    """Whether this is a start of the group that came too late: a spare has taken the place. It is ended."""
    if here.spare is None or here.state in (GroupState.STARTING, GroupState.LOST, GroupState.LEFT):
        return False
    turn.put(here.group, past=here.outlived(uid))
    turn.do(DeleteGroup(here.group, uid))
    return True


# --- what becomes of them -----------------------------------------------------------------------------------------


def ready(turn: Turn, number: int) -> None:
    """One has just become ready to take a plan."""
    if number >= turn.config.groups:
        turn.say(EventReason.SPARE_READY, f"{turn.name(number)} ready")


def ending(message: wire.Exited) -> str:
    """How its worker ended."""
    return f"signal {message.signal}" if message.signal is not None else f"code {message.code}"


def lost(turn: Turn, here: Group, cause: str) -> None:
    """A spare is dead. Another is started, after a pause that grows while they do not last."""
    if here.state is GroupState.LOST:
        return
    config = turn.config
    lasted = here.state is GroupState.READY and turn.now - here.started > config.create_backoff_most
    attempts = 0 if lasted else here.attempts
    pause = config.backoff(attempts)
    if here.uid:
        turn.do(DeleteGroup(here.group, here.uid))
    past = here.outlived(here.uid)
    fresh = _row(config, here.group, turn.now + pause)
    turn.seat(here.group, replace(fresh, past=past, attempts=attempts, reason=cause))
    text = f"{turn.name(here.group)} is lost ({cause}); another is started in {pause:.1f} s"
    turn.say(EventReason.SPARE_LOST, text)


def keep(turn: Turn) -> None:
    """Find the dead, give places to those that are ready, and start what is missing."""
    if not turn.state.spares or turn.state.ended or turn.state.halt is not None:
        return
    for here in turn.state.spares:
        _watch(turn, here)
    for here in turn.state.groups:
        if _due(turn, here) and (fit := _fit(turn)):
            _take(turn, here, fit[0])
    _fill(turn)


def _watch(turn: Turn, here: Group) -> None:
    """See whether a ready one is dead though nothing says so. Of one that is starting others do (`late_starters`)."""
    if here.state is not GroupState.READY:
        return
    state, limit, now = turn.state, turn.config.dead_after, turn.now
    quiet = now - max(here.heard, state.grace)
    if here.silent_for > limit:
        lost(turn, here, f"its worker was silent for {here.silent_for:.1f} s")
    elif here.exited is not None and now - here.exited > turn.config.probe_wait:
        lost(turn, here, "its worker exited, nothing says how")
    elif quiet > limit and not state.blind:
        lost(turn, here, f"its agent was silent for {quiet:.1f} s")


# --- places -------------------------------------------------------------------------------------------------------


def seats(turn: Turn) -> int:
    """How many lost groups' places will be taken by spares at once."""
    return min(len(_fit(turn)), sum(_due(turn, here) for here in turn.state.groups))


def _due(turn: Turn, here: Group) -> bool:
    """Whether a spare may take the group's place now.

    At once when it is lost or has left; after its pause where it was lost without having committed anything since the
    last time: else one that cannot join costs the others a regroup each time. And in place of a start that hangs.
    """
    if here.state in (GroupState.LOST, GroupState.LEFT):
        return here.retry is not None and (here.attempts <= 1 or turn.now >= here.retry)
    hangs = here.state is GroupState.STARTING and turn.now - here.started > turn.config.dead_after
    return hangs and any(not pod.address for pod in here.pods)


def _fit(turn: Turn) -> list[Group]:
    """The spares that can be given a place now, ascending."""
    patience, grace = _FIT * turn.config.heartbeat, turn.state.grace
    return [
        here
        for here in turn.state.spares
        if here.state is GroupState.READY
        and here.link_down is None
        and here.exited is None
        and not here.silent
        and turn.now - max(here.heard, grace) <= patience
    ]


def _take(turn: Turn, here: Group, spare: Group) -> None:
    """Let a spare be the group's incarnation."""
    group, config = here.group, turn.config
    if here.uid and here.state is GroupState.STARTING:
        turn.do(DeleteGroup(group, here.uid))
    past = here.outlived(here.uid)
    turn.move(group, GroupState.READY)
    which = spare.group - config.groups
    now_of = replace(spare, group=group, past=past, reason=here.reason, spare=which)
    turn.seat(group, replace(now_of, attempts=here.attempts + 1, excused=here.excused))
    turn.seat(spare.group, _row(config, spare.group, turn.now + config.backoff(0)))
    turn.set(taken=turn.state.taken + 1)
    turn.do(TakeOver(group, spare.group, spare.uid))
    text = f"group {group} taken by {turn.name(spare.group)}, which joins at the next boundary"
    turn.say(EventReason.SPARE_USED, text, (group,))


def _fill(turn: Turn) -> None:
    """Start what is missing: after the first plan, and after every group that is to be started (field case F46)."""
    state = turn.state
    if state.plan is None or any(_comes_first(turn, here) for here in state.groups):
        return
    for here in state.spares:
        if here.retry is not None and turn.now >= here.retry:
            rejoin.start(turn, here)


def _comes_first(turn: Turn, here: Group) -> bool:
    """Whether a group's own start is to be seen to before that of a spare. One that fails or hangs is not."""
    if here.state in (GroupState.LOST, GroupState.LEFT):
        return here.retry is not None and here.attempts <= 1
    young = here.attempts <= 2 and turn.now - here.started <= _SLOW
    return here.state is GroupState.STARTING and young and any(not pod.address for pod in here.pods)
