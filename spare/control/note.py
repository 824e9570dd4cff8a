"""Take note of what happened: signals become facts in the state. What follows from the facts is decided elsewhere.

Nothing here depends on the order in which signals of different groups come. A signal about another incarnation than the
present one changes nothing, however late it is (field cases F24, F25), but a new incarnation replaces the old one at
once (F13).
"""

from __future__ import annotations

from dataclasses import replace

from spare.api import wire
from spare.api.exit_codes import is_masked
from spare.control import recovery, rejoin
from spare.control.action import Connect, DeleteGroup, PushPlan, SendFinish
from spare.control.signal import (
    AgentGone,
    AgentNotStarted,
    AgentUp,
    Interrupted,
    LinkDown,
    Pushed,
    Refused,
    Report,
    Signal,
    Tick,
)
from spare.control.state import Group, GroupState, Suspicion, UserError
from spare.control.turn import Turn


def note(turn: Turn, signal: Signal) -> None:
    """Take note of one signal."""
    match signal:
        case Tick():
            pass
        case Interrupted(reason):
            turn.set(interrupted=turn.state.interrupted or reason)
        case Pushed(epoch):
            recovery.pushed(turn, epoch)
        case Refused(group, why):
            turn.refuse(group, (str(group), "line"), why)
        case Report(message):
            if 0 <= message.group < turn.config.groups:
                _report(turn, message)
            else:
                _refuse(turn, message, f"the job has groups 0 to {turn.config.groups - 1}")
        case AgentUp() | AgentGone() | AgentNotStarted() | LinkDown():
            if 0 <= signal.group < turn.config.groups:
                _backend(turn, signal)


def _backend(turn: Turn, signal: AgentUp | AgentGone | AgentNotStarted | LinkDown) -> None:
    here = turn.group(signal.group)
    match signal:
        case AgentUp(group, uid, address, zone):
            if uid in here.past or (uid == here.uid and address == here.address):
                return
            if uid != here.uid:
                _replace(turn, here, uid)
            turn.put(group, address=address, zone=zone, heard=turn.now)
            turn.do(Connect(group, uid, address))
        case AgentGone(group, uid, reason):
            if uid == here.uid and here.state is not GroupState.LOST:
                gone(turn, group, reason, turn.now)
        case AgentNotStarted(group, reason):
            if here.state is GroupState.STARTING and not here.uid:
                gone(turn, group, f"could not be started: {reason}", turn.now)
        case LinkDown(group, uid, error):
            if uid == here.uid and here.link_down is None:
                turn.put(group, link_down=turn.now, link_error=error)


def _replace(turn: Turn, here: Group, uid: str) -> None:
    """Another incarnation has the group's number now: the old one is lost at this moment, and never listed again."""
    if turn.state.member(here.group):
        gone(turn, here.group, f"its agent was replaced by a new one ({uid})", turn.now)
    past = turn.group(here.group).past | ({here.uid} if here.uid else set())
    fresh = Group(here.group, here.state, uid, past, zone=here.zone, heard=turn.now, attempts=here.attempts)
    turn.set(groups=(*turn.state.groups[: here.group], fresh, *turn.state.groups[here.group + 1 :]))
    turn.move(here.group, GroupState.STARTING)


def gone(turn: Turn, group: int, cause: str, sign: float) -> None:
    """A group's present incarnation is dead, for a reason that is no error of the script."""
    here = turn.group(group)
    if turn.state.finishing:
        turn.put(group, finished=True, reason=cause)
    elif turn.state.member(group):
        turn.lose(group, cause, sign)
    elif here.state is not GroupState.LOST:
        if here.uid:
            turn.do(DeleteGroup(group, here.uid))
        past = here.past | ({here.uid} if here.uid else set())
        turn.move(group, GroupState.LOST, reason=cause, past=past)
        turn.start_again(group)


def _report(turn: Turn, message: wire.Up) -> None:
    here = turn.group(message.group)
    if message.uid in here.past and isinstance(message, wire.Alive | wire.Exited | wire.Refusal):
        turn.set(refused=turn.state.refused + 1)  # last words of a group that is lost: nothing to tell anybody
        return
    if message.uid in here.past:
        _refuse(turn, message, f"incarnation {message.uid!r} is no more; {_present(here)}")
        return
    if message.uid != here.uid:
        if not isinstance(message, wire.Hello):
            _refuse(turn, message, f"it is of incarnation {message.uid!r}; {_present(here)}")
            return
        address = here.address
        _replace(turn, here, message.uid)
        turn.put(message.group, address=address)
    turn.put(message.group, heard=turn.now, link_down=None, link_error="")
    match message:
        case wire.Hello():
            _hello(turn, message)
        case wire.Alive():
            _alive(turn, message)
        case wire.Refusal():
            _refuse(turn, message, f"it refused {message.what!r}: {message.reason}")
        case wire.Exited():
            _exited(turn, message)
        case wire.Errored():
            _errored(turn, message)
        case wire.Running() | wire.Committed() | wire.Suspect() | wire.Done():
            if turn.state.member(message.group):
                _member(turn, message)
            else:
                _refuse(turn, message, "only members of the newest plan may say this")


def _refuse(turn: Turn, message: wire.Up, why: str) -> None:
    text = f"{message.kind!r} of group {message.group} (epoch {message.epoch}): {why}"
    turn.refuse(message.group, (message.uid, message.kind), text)


def _present(here: Group) -> str:
    return f"the present one is {here.uid!r}" if here.uid and here.uid not in here.past else "none is present"


def _hello(turn: Turn, hello: wire.Hello) -> None:
    group, state = hello.group, turn.state
    turn.put(
        group,
        pid=hello.pid or turn.group(group).pid,
        store=hello.store or turn.group(group).store,
        epoch=hello.epoch,
        step=hello.step,
        phase=hello.phase,
    )
    if hello.store and turn.group(group).state is GroupState.STARTING:
        turn.move(group, GroupState.READY)
    if state.plan is not None and state.member(group):
        turn.set(step=max(state.step, hello.step))
        if hello.epoch < state.plan.epoch:  # it was away when the plan was pushed, or its line broke
            turn.do(PushPlan(state.plan, ((group, hello.uid),)))
        if state.finishing:
            turn.do(SendFinish((group,)))


def _alive(turn: Turn, alive: wire.Alive) -> None:
    group, state = alive.group, turn.state
    here, exited = turn.group(group), turn.group(group).exited
    # The agent repeats what its worker last said: a commit may have overtaken it.
    fresh = (alive.epoch, alive.step) >= (here.epoch, here.step)
    turn.put(
        group,
        epoch=max(alive.epoch, here.epoch),
        step=max(alive.step, here.step),
        phase=alive.phase if fresh else here.phase,
        still=alive.still if fresh else 0.0,
        worker=alive.worker,
        silent_for=alive.silent_for,
        exited=(exited if exited is not None else turn.now) if alive.worker == "exited" else None,
    )
    if state.probe is not None and alive.nonce == state.probe.nonce:
        turn.set(probe=replace(state.probe, answered=state.probe.answered | {alive.uid}))


def _member(turn: Turn, message: wire.Running | wire.Committed | wire.Suspect | wire.Done) -> None:
    """What only a member may say."""
    state, group = turn.state, message.group
    assert state.plan is not None
    here = turn.group(group)
    still = here.still if isinstance(message, wire.Suspect) else 0.0  # the others are progress, told before a heartbeat
    turn.put(group, epoch=max(message.epoch, here.epoch), step=max(message.step, here.step), still=still)
    match message:
        case wire.Running():
            turn.put(group, running=max(message.epoch, turn.group(group).running))
            recovery.running(turn, group, message.epoch)
        case wire.Committed():
            turn.put(group, phase="compute", still=0.0)
            rejoin.joined(turn, group)
            _committed(turn, message)
        case wire.Suspect():
            # A plan with base > its epoch has answered it already.
            known = any(s.group == group and s.epoch == message.epoch for s in state.suspicions)
            if message.epoch >= state.plan.base and not known:
                named = frozenset(message.unreachable) - {group}
                suspicion = Suspicion(group, message.epoch, message.error, named, turn.now)
                turn.set(suspicions=(*state.suspicions, suspicion))
        case wire.Done():
            if message.epoch >= state.plan.base:
                turn.move(group, GroupState.DONE, done=(message.epoch, message.digest))
                turn.set(step=max(state.step, message.step))
                if message.loss is not None:
                    turn.set(loss=message.loss)
                recovery.committed(turn, message.epoch)


def _committed(turn: Turn, message: wire.Committed) -> None:
    state = turn.state
    assert state.plan is not None
    if message.step > state.step:
        turn.set(step=message.step, loss=message.loss if message.loss is not None else state.loss)
        if message.epoch >= state.plan.base:  # under a boundary plan that is not acted on yet, steps go on as before
            now = state.recovering
            if now is not None and now.committed is not None:
                recovery.closed(turn)  # a second step without all reports of the first: what is missing stays unseen
            turn.set(proof=turn.now, fruitless=0, stalled=False)
    recovery.committed(turn, message.epoch)


def _exited(turn: Turn, message: wire.Exited) -> None:
    """The worker has ended: by a signal, a loss; by itself, the script's own doing."""
    group, state = message.group, turn.state
    if any(error.group == group for error in state.errors):
        return  # it told why before
    known = state.plan is None or state.finishing or state.member(group)
    by_signal = message.signal is not None
    if by_signal or (message.code is not None and is_masked(message.code)):
        how = f"killed by signal {message.signal}" if by_signal else f"exited with code {message.code}"
        gone(turn, group, f"worker {how}", turn.now)
    elif state.finishing and message.code == 0:
        turn.put(group, finished=True)
    elif known:
        turn.set(errors=(*state.errors, UserError(group, _exit_text(turn, message))))
    else:
        gone(turn, group, f"worker exited with code {message.code}", turn.now)


def _exit_text(turn: Turn, message: wire.Exited) -> str:
    group, tail = message.group, f"; its last words:\n{message.tail}" if message.tail else ""
    if turn.state.finishing:
        return f"the script of group {group} exited with code {message.code} after the last step{tail}"
    if message.code == 0 and turn.state.plan is None:
        return f"the script of group {group} ended before the first step: does it open a Session and iterate its steps?"
    if message.code == 0:
        step = turn.group(group).step
        return f"the script of group {group} ended at step {step}, before the last one was committed by all groups"
    return f"the script of group {group} exited with code {message.code}{tail}"


def _errored(turn: Turn, message: wire.Errored) -> None:
    state, group = turn.state, message.group
    if not (state.plan is None or state.finishing or state.member(group)):
        _refuse(turn, message, "only members of the newest plan may say this")
        return
    if any(error.group == group for error in state.errors):
        return
    where = f"group {group}, step {message.step}"
    if message.micro is not None:
        where += f", micro-batch {message.micro[1]} of shard {message.micro[0]}"
    text = f"{message.type}: {message.text} ({where})"
    if message.traceback:
        text += f"\n{message.traceback.rstrip()}"
    turn.set(errors=(*state.errors, UserError(group, text, message.ours, message.type)))
