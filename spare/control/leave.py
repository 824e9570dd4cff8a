"""Groups that were asked to go: who is let go when, and what is heard of them until they have gone (docs/protocol.md).

A group is let go by a boundary plan, so nothing is computed again. It is let go only while two other members have the
training state for sure and every shard keeps a host; else it stays, and does its work. When its grace is nearly over,
the agent says where it gives what it holds of the step in flight, and an urgent plan goes on without it: an heir takes
that over before it says what it holds itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from spare.api import wire
from spare.api.notation import called
from spare.api.reasons import EventReason
from spare.control import checkpointing
from spare.control.action import Connect, DeleteGroup, LetGo, PushPlan, SendDrain
from spare.control.config import Config
from spare.control.leaver import Leaver
from spare.control.plan import Leaving, Plan
from spare.control.restart import wiped_out
from spare.control.signal import AgentUp
from spare.control.state import Group, GroupState, Loss, State
from spare.control.turn import Turn
from spare.planner.words import counted

_SOONER = 0.5
"""Seconds by which a grace must be shorter than was known for the other pods of a group to be told."""
_WAITING: Final = ("reduce", "barrier")
_OTHERS = 2
"""Members with the training state that must stay: one more loss before the plan takes effect is then no wipe-out."""


# --- what is heard ----------------------------------------------------------------------------------------------


def drain(turn: Turn, group: int, reason: str, grace: float | None, again: bool) -> None:
    """Somebody asks for a group to leave."""
    state = turn.state
    if not state.member(group):
        return  # not there
    here = state.groups[group]
    if state.leaver(here.uid) is not None:
        sooner(turn, here.uid, grace)
        return
    turn.do(SendDrain(group, here.uid, grace))
    _enter(turn, here, reason, turn.config.grace if grace is None else grace, again)


def sooner(turn: Turn, uid: str, grace: float | None) -> None:
    """One that was asked has less time than was known; it may have been let go since."""
    known = turn.state.leaver(uid)
    if known is None or grace is None or turn.now + grace >= known.until - _SOONER:
        return
    turn.do(SendDrain(known.group, uid, grace))
    _put(turn, replace(known, until=turn.now + grace))


def asked(turn: Turn, message: wire.Leave) -> None:
    """An agent wants to go, or says how long it still may wait."""
    state = turn.state
    before = state.leaver(message.uid)
    if before is None and state.member(message.group):
        _enter(turn, state.groups[message.group], message.reason, message.grace, turn.config.replace)
    known = turn.state.leaver(message.uid)
    if known is None:
        return
    until = min(known.until, turn.now + message.grace)
    if turn.config.pods > 1 and (before is None or until < before.until - _SOONER):
        turn.do(SendDrain(known.group, known.uid, message.grace))  # one of its pods was asked: the others must know
    _put(turn, replace(_offering(known, message, turn.config.ranks), until=until, heard=turn.now))


def _offering(known: Leaver, message: wire.Leave, ranks: int) -> Leaver:
    """The leaver, one of whose ranks may give what it holds now: under an older plan others did, and have withdrawn."""
    if not message.serves or message.epoch < known.offered:
        return known
    serves = known.serves if known.serves and message.epoch == known.offered else ("",) * ranks
    serves = (*serves[: message.rank], message.serves, *serves[message.rank + 1 :])
    return replace(known, serves=serves, offered=message.epoch)


def _enter(turn: Turn, here: Group, reason: str, grace: float, again: bool) -> None:
    until = turn.now + grace
    leaver = Leaver(here.group, here.uid, turn.now, until, reason, turn.now, again and turn.config.replace)
    turn.set(leavers=(*turn.state.leavers, leaver))
    text = f"group {here.group} is asked to leave ({reason}); it has {grace:.0f} s"
    rest, least = set(turn.state.whole) - {here.group}, max(_OTHERS, turn.config.min_groups or 0)
    if len(rest) < least:
        others = f"{counted(len(rest), 'other')} {'has' if len(rest) == 1 else 'have'}"
        text += f", and stays that long if need be: {others} the training state, of {least} at least"
    elif not hosted(turn.state, rest):
        text += ", and stays that long if need be: no other has some of its shards"
    turn.say(EventReason.LEAVING, text, (here.group,))


def heard(turn: Turn, message: wire.Up) -> bool:
    """Take a report of an incarnation that was let go; whether it was of such a one. Its suspicions do not count."""
    leaver = turn.state.leaver(message.uid)
    if leaver is None or leaver.released is None:
        return False
    leaver = replace(leaver, heard=turn.now)
    _put(turn, leaver)
    plan = turn.state.plan
    match message:
        case wire.Leave():
            asked(turn, message)
        case wire.Saved() | wire.Unsaved():
            checkpointing.noted(turn, message)  # it was the writer
        case wire.Left():
            _said(turn, leaver, message.rank, message.step)
        case wire.Exited():
            if message.signal is None and message.code == 0:
                _said(turn, leaver, message.rank, turn.state.step)
            elif not (leaver.left or _in_effect(turn.state, leaver)):
                _lost(turn, leaver, "its worker ended")
        case wire.Hello() if plan is not None and message.epoch < plan.epoch:
            turn.do(PushPlan(plan, ((leaver.group, leaver.uid),)))  # its line broke: it may not know yet
    return True


def _said(turn: Turn, leaver: Leaver, rank: int, step: int) -> None:
    """One of its ranks has said its last words."""
    leaver = replace(leaver, words=leaver.words | {rank})
    _put(turn, leaver)
    if len(leaver.words) == turn.config.ranks:
        _left(turn, leaver, step)


def _left(turn: Turn, leaver: Leaver, step: int) -> None:
    if leaver.left:
        return
    _put(turn, replace(leaver, left=True))
    turn.set(drained=turn.state.drained + 1)
    text = f"group {leaver.group} has left after step {step} ({leaver.reason})"
    turn.say(EventReason.DRAINED, text, (leaver.group,))


def gone(turn: Turn, uid: str, pod: int) -> None:
    """An agent of one that was let go has ended, which it is free to do once its plan has taken effect.

    Before that it is a loss, but not at once: its last words may be on their way.
    """
    leaver = turn.state.leaver(uid)
    if leaver is None or leaver.released is None:
        return
    leaver = replace(leaver, ended=leaver.ended | {pod})
    if len(leaver.ended) == turn.config.pods and leaver.gone is None:
        leaver = replace(leaver, gone=turn.now)
    _put(turn, leaver)


def again(known: Leaving, plan: Plan, config: Config, now: float, left: bool) -> Leaver:
    """One that a recorded plan let go, when the coordinator comes back: whether it is still there will be told.

    `left`: it is known to have left, and counted.
    """
    until, handed = now + config.grace, known.heir >= 0
    leaver = Leaver(known.group, known.uid, now, until, "asked before", now, released=plan.epoch, handed=handed)
    return replace(leaver, left=left)


def up(turn: Turn, there: AgentUp) -> None:
    """The backend knows of an incarnation that is a member no more: be connected if it was let go and may be there."""
    leaver = turn.state.leaver(there.uid)
    if leaver is not None and leaver.released is not None:
        turn.do(Connect(there.group, there.uid, there.address, there.pod), LetGo(there.group, there.uid))


# --- what time brings -------------------------------------------------------------------------------------------


def watch(turn: Turn) -> None:
    """Those that were let go and whom something holds: dead before their plan took effect, they are a loss."""
    for leaver in turn.state.leavers:
        state, now = turn.state, turn.now
        if leaver.released is None:
            if not state.member(leaver.group) or state.groups[leaver.group].uid != leaver.uid:
                turn.set(leavers=tuple(each for each in state.leavers if each.uid != leaver.uid))  # lost meanwhile
            continue
        over = now > leaver.until + turn.config.dead_after
        if leaver.left or _in_effect(state, leaver):
            if leaver.gone is not None or over:
                _left(turn, leaver, state.step)
                _forget(turn, leaver)
            continue
        quiet = now - max(leaver.heard, state.proof, state.grace)
        if leaver.gone is not None:
            if state.suspicions or now > leaver.gone + turn.config.probe_wait:
                _lost(turn, leaver, "ended before it was let go")
        elif quiet > turn.config.dead_after:
            _lost(turn, leaver, f"its agent was silent for {quiet:.1f} s while it left")
        elif over:
            _lost(turn, leaver, "its grace is over")


def _in_effect(state: State, leaver: Leaver) -> bool:
    """Whether the others are known to run under the plan that let it go: then its end concerns nobody."""
    released = leaver.released
    return released is not None and all(state.groups[g].running >= released for g in state.live)


def _lost(turn: Turn, leaver: Leaver, cause: str) -> None:
    """What it held of the step in flight is lost with it."""
    turn.set(losses=(*turn.state.losses, Loss(leaver.group, leaver.uid, f"{cause}, while it left", turn.now)))
    turn.set(leavers=tuple(each for each in turn.state.leavers if each.uid != leaver.uid))


def _forget(turn: Turn, leaver: Leaver) -> None:
    turn.set(leavers=tuple(each for each in turn.state.leavers if each.uid != leaver.uid))
    turn.do(DeleteGroup(leaver.group, leaver.uid))


def _put(turn: Turn, leaver: Leaver) -> None:
    turn.set(leavers=tuple(leaver if each.uid == leaver.uid else each for each in turn.state.leavers))


# --- who is let go ----------------------------------------------------------------------------------------------


def may_go(state: State, now: float) -> tuple[Leaver, ...]:
    """Those whom a boundary plan may let go now: the first to be killed first, ties to the lowest group.

    Not in the moment in which they are asked: with a node many are, and make one plan, or a halt if all are.
    """
    staying, going = set(state.whole), list[Leaver]()
    for leaver in sorted(_waiting(state), key=lambda each: (each.until, each.group)):
        if now < leaver.asked + state.config.settle:
            continue
        rest = staying - {leaver.group}
        least = max(_OTHERS, state.config.min_groups or 0)
        if len(rest) >= least and hosted(state, rest):
            staying, going = rest, [*going, leaver]
    return tuple(going)


def due(state: State, now: float) -> float:
    """When the next of those that wait may be let go, as far as time alone decides it."""
    moments = [each.asked + state.config.settle for each in _waiting(state)]
    return min((moment for moment in moments if moment > now), default=float("inf"))


def must_go(state: State) -> tuple[Leaver, ...]:
    """Those whose grace is nearly over, and without whom the others can go on at all."""
    staying, going = set(state.whole), list[Leaver]()
    for leaver in _waiting(state):
        if offers(state, leaver) and hosted(state, staying - {leaver.group}):
            staying, going = staying - {leaver.group}, [*going, leaver]
    return tuple(going)


def giving(state: State) -> bool:
    """Whether one that a boundary plan let go cannot wait for it any longer, and offers what it holds."""
    return any(offers(state, each) and not each.handed and not each.left and each.released for each in state.leavers)


def offers(state: State, leaver: Leaver) -> bool:
    """Whether it offers what an heir may take over: only the first urgent plan after the offer may name one, for after
    it others have been given what is missing (`first` in the protocol's model)."""
    return leaver.gives and state.plan is not None and state.plan.base <= leaver.offered


def _waiting(state: State) -> list[Leaver]:
    return [each for each in state.leavers if each.released is None and state.member(each.group)]


def hosted(state: State, live: Collection[int]) -> bool:
    """Whether every shard has a host among `live`, members that have the training state, or can be fetched."""
    return not wiped_out(state, sorted(set(state.whole) - set(live)))


# --- plans without them -----------------------------------------------------------------------------------------


def parting(state: State, going: Sequence[Leaver], urgent: bool, loads: Sequence[int]) -> tuple[Leaving, ...]:
    """What a plan says of all who leave: those that it lets go, and those let go before that may still be there.

    An urgent plan names an heir for each that offers what it holds, each in its turn: one that waits for the others and
    can take over at once, rather than the one that they wait for; of those the least loaded.
    """
    gone = {each.group for each in going}

    def first(group: int) -> tuple[bool, bool, int, int]:
        here = state.groups[group]
        return here.silent, here.phase not in _WAITING, loads[group], group

    heirs = sorted((g for g in state.whole if g not in gone), key=first)
    found: list[Leaving] = []
    for leaver in (each for each in state.leavers if each in going or (each.released is not None and not each.left)):
        gives = urgent and offers(state, leaver) and not leaver.handed and bool(heirs)
        heir = heirs[len(found) % len(heirs)] if gives else -1
        where = (",".join(leaver.serves), leaver.offered) if gives else ("", 0)
        found.append(Leaving(leaver.group, leaver.uid, heir, *where))
    return tuple(found)


def released(turn: Turn, going: Sequence[Leaver], plan: Plan) -> None:
    """Groups that `plan` lets go: their numbers are free from now on."""
    for leaver in going:
        here = turn.group(leaver.group)
        turn.move(
            leaver.group, GroupState.LEFT, reason=f"left ({leaver.reason})", past=here.outlived(leaver.uid), uid=""
        )
        turn.do(LetGo(leaver.group, leaver.uid))
        if leaver.again:
            turn.put(leaver.group, retry=turn.now)
    named = {each.uid for each in plan.leaving if each.heir >= 0}
    turn.set(
        leavers=tuple(
            replace(
                each, released=plan.epoch if each in going else each.released, handed=each.handed or each.uid in named
            )
            for each in turn.state.leavers
        )
    )


def names(going: Sequence[Leaver]) -> str:
    """ "group 1 leaves (SIGTERM)", for a plan's reason."""
    why = ", ".join(sorted({each.reason for each in going}))
    return f"{called([each.group for each in going])} {'leaves' if len(going) == 1 else 'leave'} ({why})"


def targets(plan: Plan) -> tuple[tuple[int, str], ...]:
    """(group, uid) of everybody who must hear of a plan: its members, and who leaves."""
    return tuple((m.group, m.uid) for m in plan.members) + tuple((each.group, each.uid) for each in plan.leaving)
