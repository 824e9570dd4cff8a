"""Take note of what happened: signals become facts in the state. What follows from the facts is decided elsewhere.

Nothing here depends on the order in which signals of different groups come. A signal about another incarnation than the
present one changes nothing, however late it is (field cases F24, F25), but a new incarnation replaces the old one at
once (F13).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from spare.api import wire
from spare.api.exit_codes import is_masked
from spare.api.reasons import EventReason
from spare.control import checkpointing, halt, leave, poison, recovery, rejoin, spares, straggle
from spare.control.action import Connect, DeleteGroup, PushPlan, SendAssemble, SendFinish, SendRenew
from spare.control.rank import Raised, fresh_pods, fresh_ranks, unknown
from spare.control.script import error_text, exit_text, of_rank
from spare.control.signal import (
    AgentGone,
    AgentNotStarted,
    AgentUp,
    Allow,
    DrainGroup,
    Interrupted,
    LinkDown,
    Pushed,
    Refused,
    Report,
    Signal,
    StoodStill,
    Suspend,
    Tick,
)
from spare.control.state import Group, GroupState, Suspicion, UserError
from spare.control.turn import Turn

_STEPS: Final = wire.Running | wire.Committed
LAST_WORDS: Final = (
    _STEPS | wire.Alive | wire.Exited | wire.Leave | wire.Refusal | wire.Saved | wire.Unsaved | wire.Unreadable
)
"""What a group that is lost may still say: nothing to tell anybody."""


def note(turn: Turn, signal: Signal) -> None:
    """Take note of one signal."""
    match signal:
        case Tick():
            pass
        case StoodStill(seconds):
            turn.set(grace=turn.now, woke=turn.now)
            text = f"the coordinator itself stood still for {seconds:.1f} s: nobody's silence in that time counts"
            turn.say(EventReason.UNHEARD, text)
        case Interrupted(reason):
            turn.set(interrupted=turn.state.interrupted or reason)
        case Suspend(reason, grace):
            halt.asked(turn, reason, turn.now + grace)
        case Allow(restarts):
            turn.set(config=replace(turn.config, backoff_limit=restarts))
        case DrainGroup(group, reason, grace, again, uid):
            group = spares.home(turn.state, group, uid)
            if uid and turn.state.leaver(uid) is not None:
                leave.sooner(turn, uid, grace)
            elif 0 <= group < turn.config.numbers and uid in ("", turn.group(group).uid):
                if uid and turn.group(group).state in (GroupState.STARTING, GroupState.READY):
                    gone(turn, group, reason, turn.now, outside=True)  # what is going is never admitted (F03)
                else:
                    leave.drain(turn, group, reason, grace, again)
        case Pushed(epoch):
            recovery.pushed(turn, epoch)
        case Refused(group, why):
            turn.refuse(group, (str(group), "line"), why)
        case Report(message):
            message = spares.said(turn.state, message)
            if (strange := unknown(turn.config, message)) is None:
                _report(turn, message)
            else:
                _refuse(turn, message, strange)
        case AgentUp() | AgentGone() | AgentNotStarted() | LinkDown():
            if 0 <= signal.group < turn.config.numbers and 0 <= signal.pod < turn.config.pods:
                _backend(turn, spares.told(turn.state, signal))


def _backend(turn: Turn, signal: AgentUp | AgentGone | AgentNotStarted | LinkDown) -> None:
    here = turn.group(signal.group)
    match signal:
        case AgentUp(group, uid, address, zone, pod):
            if uid in here.past or (uid == here.uid and address == here.pods[pod].address):
                leave.up(turn, signal)
                return
            if uid != here.uid:
                if spares.overtook(turn, here, uid):
                    return
                _replace(turn, here, uid)
            turn.put_pod(group, pod, address=address, zone=zone, heard=turn.now, up=turn.now)
            turn.do(Connect(group, uid, address, pod))
        case AgentGone(group, uid, reason, pod):
            leave.gone(turn, uid, pod)
            if uid == here.uid and here.state is not GroupState.LOST and not halt.unheard(turn, signal):
                gone(turn, group, _of_pod(turn, pod) + reason, turn.now, signal.outside)
        case AgentNotStarted(group, reason, pod):
            if here.state is GroupState.STARTING and (not here.uid or not here.pods[pod].address):
                what = "went before it ran" if signal.outside else "could not be started"
                gone(turn, group, f"{_of_pod(turn, pod)}{what}: {reason}", turn.now, signal.outside)
        case LinkDown(group, uid, error, pod):
            if uid == here.uid and here.pods[pod].link_down is None:
                turn.put_pod(group, pod, link_down=turn.now, link_error=error)


def _of_pod(turn: Turn, pod: int) -> str:
    return f"pod {pod}: " if turn.config.pods > 1 else ""


def _replace(turn: Turn, here: Group, uid: str) -> None:
    """Another incarnation has the group's number now: the old one is lost at this moment, and never listed again."""
    if turn.state.member(here.group):
        gone(turn, here.group, f"its agent was replaced by a new one ({uid})", turn.now)
    past = turn.group(here.group).outlived(here.uid)
    pods = fresh_pods(len(here.pods), heard=turn.now, zones=tuple(pod.zone for pod in here.pods))
    started = turn.now if here.uid or here.started > turn.now else here.started  # not known: by now, at the latest
    fresh = Group(here.group, here.state, uid, past, pods, fresh_ranks(len(here.ranks)), started=started)
    fresh = replace(fresh, attempts=here.attempts, excused=here.excused, reason=here.reason)
    turn.seat(here.group, fresh)
    turn.move(here.group, GroupState.STARTING)
    rejoin.rest(turn, here)


def gone(turn: Turn, group: int, cause: str, sign: float, outside: bool = False) -> None:
    """A group's present incarnation is dead, for a reason that is no error of the script.

    `outside`: it was ended by others. A group may wait for days for the rest of its job, and its node is drained
    meanwhile: however often that happens, it is no crash loop.
    """
    here = turn.group(group)
    if group >= turn.config.groups:
        spares.lost(turn, here, cause)
    elif turn.state.finishing or here.halted is not None:
        turn.put_ranks(group, finished=True)
        turn.put(group, reason=cause)
    elif turn.state.member(group):
        turn.lose(group, cause, sign)
    elif here.state is not GroupState.LOST:
        if here.uid:
            turn.do(DeleteGroup(group, here.uid))
        past = here.outlived(here.uid)
        turn.move(group, GroupState.LOST, reason=cause, past=past, excused=here.excused + outside)
        turn.start_again(group)


def _report(turn: Turn, message: wire.Up) -> None:
    if leave.heard(turn, message):
        return
    here = turn.group(message.group)
    if message.uid in here.past and isinstance(message, wire.Exited) and turn.config.ranks == 1:
        poison.crashed(turn, message)  # its death was noticed before its agent told of it
    if message.uid in here.past and _last_words(message):
        turn.set(refused=turn.state.refused + 1)  # last words of a group that is lost: nothing to tell anybody
        return
    if message.uid in here.past:
        _refuse(turn, message, f"incarnation {message.uid!r} is no more; {_present(here)}")
        return
    if message.uid != here.uid:
        if not isinstance(message, wire.Hello):
            _refuse(turn, message, f"it is of incarnation {message.uid!r}; {_present(here)}")
            return
        address = here.pods[message.pod].address
        _replace(turn, here, message.uid)
        turn.put_pod(message.group, message.pod, address=address, up=turn.now)
    turn.put_pod(message.group, message.pod, heard=turn.now, link_down=None, link_error="")
    if turn.state.restarting is not None and message.epoch > 0 and not isinstance(message, wire.Exited | wire.Saved):
        if isinstance(message, wire.Hello):
            turn.do(SendRenew((message.group,), turn.state.restarting.reason))  # it was away when the order was given
        return  # of a worker that is to begin again
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
        case wire.Saved() | wire.Unsaved() | wire.Unreadable():
            checkpointing.noted(turn, message)
        case wire.Leave():
            leave.asked(turn, message)
        case wire.Left():
            gone(turn, message.group, "it left of its own accord", turn.now)
        case wire.Running() | wire.Committed() | wire.Suspect() | wire.Done() | wire.Halted():
            if turn.state.member(message.group):
                _member(turn, message)
            else:
                _refuse(turn, message, "only members of the newest plan may say this")


def _last_words(message: wire.Up) -> bool:
    """Whether this is what a group says that has just been lost, or the other ranks of one of whose ranks has died."""
    if isinstance(message, wire.Errored):
        return message.inside
    return isinstance(message, LAST_WORDS) or (isinstance(message, wire.Suspect) and message.rank > 0)


def _refuse(turn: Turn, message: wire.Up, why: str) -> None:
    text = f"{message.kind!r} of {turn.name(message.group)} (epoch {message.epoch}): {why}"
    turn.refuse(message.group, (message.uid, message.kind), text)


def _present(here: Group) -> str:
    return f"the present one is {here.uid!r}" if here.uid and here.uid not in here.past else "none is present"


def _hello(turn: Turn, hello: wire.Hello) -> None:
    group, state = hello.group, turn.state
    known = turn.group(group).ranks[hello.rank]
    turn.put_rank(
        group,
        hello.rank,
        pid=hello.pid or known.pid,
        store=hello.store or known.store,
        epoch=hello.epoch,
        step=hello.step,
        phase=hello.phase,
    )
    _assemble(turn, hello)
    checkpointing.found(turn, hello.checkpoints)
    if turn.group(group).stores and turn.group(group).state is GroupState.STARTING:
        turn.move(group, GroupState.READY)
        spares.ready(turn, group)
    if state.plan is not None and state.member(group):
        turn.set(step=max(state.step, hello.step))
        if state.ordered is not None and state.ordered.group == group:
            turn.set(ordered=None)  # it may be another process, or the order may have been lost with the line
        if hello.epoch < state.plan.epoch:  # it was away when the plan was pushed, or its line broke
            turn.do(PushPlan(state.plan, ((group, hello.uid),)))
        if state.finishing:
            turn.do(SendFinish((group,)))


def _assemble(turn: Turn, hello: wire.Hello) -> None:
    """Where the ranks of a group of several pods meet, its pod 0 knows: all its agents are told, once all of them run.

    Workers begin with that word. One pod may get its node or its room in a quota long after another, and ranks that
    have begun wait for each other no longer than collectives do.
    """
    group = hello.group
    if hello.home and hello.master:
        turn.put(group, home=hello.home, master=hello.master)
    here, by_agent = turn.group(group), bool(hello.home) or not hello.pid
    if here.home and by_agent and all(pod.address for pod in here.pods):
        turn.do(SendAssemble(group, tuple(pod.pod for pod in here.pods), here.home, here.master))


def _alive(turn: Turn, alive: wire.Alive) -> None:
    group, rank, state = alive.group, alive.rank, turn.state
    here = turn.group(group).ranks[rank]
    # The agent repeats what its worker's last heartbeat said: a commit may have overtaken it. Of a worker that can beat
    # no more it is then known only for how long nothing came from it.
    fresh = (alive.epoch, alive.step) >= (here.epoch, here.step)
    # Its machine may have stood still with ours: what an agent counted meanwhile is nobody's fault.
    silent, still = (min(seconds, turn.now - state.woke) for seconds in (alive.silent_for, alive.still))
    turn.put_rank(
        group,
        rank,
        epoch=max(alive.epoch, here.epoch),
        step=max(alive.step, here.step),
        phase=alive.phase if fresh else here.phase,
        still=still if fresh else silent,
        worker=alive.worker,
        silent_for=silent,
        exited=(here.exited if here.exited is not None else turn.now) if alive.worker == "exited" else None,
    )
    if state.probe is not None and alive.nonce == state.probe.nonce:
        turn.set(probe=replace(state.probe, answered=state.probe.answered | {(alive.uid, alive.pod)}))


def _member(turn: Turn, message: wire.Running | wire.Committed | wire.Suspect | wire.Done | wire.Halted) -> None:
    """What only a member may say."""
    state, group, rank = turn.state, message.group, message.rank
    assert state.plan is not None
    here = turn.group(group).ranks[rank]
    still = here.still if isinstance(message, wire.Suspect) else 0.0  # the others are progress, told before a heartbeat
    # What phase its last heartbeat told of is over where the step is another now, or the plan.
    phase = "compute" if isinstance(message, wire.Running) or message.step > here.step else here.phase
    epoch, step = max(message.epoch, here.epoch), max(message.step, here.step)
    turn.put_rank(group, rank, epoch=epoch, step=step, phase=phase, still=still)
    match message:
        case wire.Running():
            turn.put_rank(group, rank, running=max(message.epoch, here.running))
            if turn.group(group).running >= message.epoch:
                recovery.running(turn, group, message.epoch, message.step)
        case wire.Committed():
            turn.put_rank(group, rank, committed=message.step)
            straggle.paced(turn, message)
            rejoin.joined(turn, group)
            _committed(turn, message)
        case wire.Suspect():
            if message.epoch >= state.plan.base:  # a plan with base > its epoch has answered it already
                _suspect(turn, message)
        case wire.Halted():
            halt.noted(turn, message)
        case wire.Done():
            if message.epoch >= state.plan.base:
                turn.put_rank(group, rank, done=(message.epoch, message.digest))
                if turn.group(group).done is None:
                    return
                turn.move(group, GroupState.DONE)
                turn.set(step=max(state.step, message.step))
                if message.loss is not None:
                    turn.set(loss=message.loss)
                recovery.committed(turn, message.epoch)


def _suspect(turn: Turn, message: wire.Suspect) -> None:
    """One suspicion of each group and epoch, with everybody whom one of its ranks could not reach."""
    suspicions, group = turn.state.suspicions, message.group
    named = frozenset(message.unreachable) - {group}
    for place, known in enumerate(suspicions):
        if (known.group, known.epoch) == (group, message.epoch):
            more = replace(known, unreachable=known.unreachable | named)
            turn.set(suspicions=(*suspicions[:place], more, *suspicions[place + 1 :]))
            return
    turn.set(suspicions=(*suspicions, Suspicion(group, message.epoch, message.error, named, turn.now)))


def _committed(turn: Turn, message: wire.Committed) -> None:
    state = turn.state
    assert state.plan is not None
    step = turn.group(message.group).committed  # not every rank reports every step: as far as all of them have
    if not step:
        return
    if step > state.step:
        turn.set(step=step, loss=message.loss if message.loss is not None else state.loss)
        if message.epoch >= state.plan.base:  # under a boundary plan that is not acted on yet, steps go on as before
            now = state.recovering
            if now is not None and now.committed is not None:
                recovery.closed(turn)  # a second step without all reports of the first: what is missing stays unseen
            turn.set(proof=turn.now, fruitless=0, stalled=False)
    checkpointing.committed(turn)
    recovery.committed(turn, message.epoch)


def _exited(turn: Turn, message: wire.Exited) -> None:
    """The worker has ended: by a signal, a loss; by itself, the script's own doing."""
    group, state = message.group, turn.state
    if group >= turn.config.groups:
        gone(turn, group, f"its worker ended ({spares.ending(message)})", turn.now)
        return
    if any(error.group == group for error in state.errors) or turn.group(group).ranks[message.rank].raised is not None:
        return  # it told why before
    known = state.starting or state.finishing or state.member(group)
    by_signal = message.signal is not None
    crashed = poison.crashed(turn, message)
    anew = state.restarting is not None and message.epoch > 0  # it was to begin again in any case
    if anew or by_signal or crashed or (message.code is not None and is_masked(message.code)):
        how = f"killed by signal {message.signal}" if by_signal else f"exited with code {message.code}"
        if by_signal and message.tail == wire.OUT_OF_MEMORY:
            how += f" ({message.tail})"
        gone(turn, group, f"worker{of_rank(turn, message.rank)} {how}{poison.in_hand(message)}", turn.now)
    elif (state.finishing or turn.group(group).ranks[message.rank].halted) and message.code == 0:
        turn.put_rank(group, message.rank, finished=True)
    elif known:
        turn.set(errors=(*state.errors, UserError(group, exit_text(turn, message))))
    else:
        gone(turn, group, f"worker{of_rank(turn, message.rank)} exited with code {message.code}", turn.now)


def costs_only_itself(here: Group, ours: bool, kind: str) -> bool:
    """Whether an error of the runtime is no more than a failed attempt to join, which is made again after a pause.

    A joiner has nothing that the job needs. What speaks of the job's state, and not of where the joiner is, ends the
    job whoever finds it.
    """
    return here.state is GroupState.JOINING and ours and kind not in ("StateDiverged", "CheckpointMismatch")


def _errored(turn: Turn, message: wire.Errored) -> None:
    state, group = turn.state, message.group
    if group >= turn.config.groups:
        return  # its end follows, and nobody depends on it
    if not (state.starting or state.finishing or state.member(group)):
        _refuse(turn, message, "only members of the newest plan may say this")
        return
    if message.ours and message.type == "StateLost" and state.member(group):  # lost, not a wrong script
        gone(turn, group, f"it cannot go on: {message.text}", turn.now)
        return
    if costs_only_itself(turn.group(group), message.ours, message.type) and turn.config.ranks == 1:
        gone(turn, group, f"it could not join: {message.type}: {message.text}", turn.now)
        return
    if any(error.group == group for error in state.errors):
        return
    text = error_text(turn, message)
    if turn.config.ranks == 1:
        turn.set(errors=(*state.errors, UserError(group, text, message.ours, message.type)))
    elif turn.group(group).ranks[message.rank].raised is None:
        raised = Raised(turn.now, text, message.type, message.ours, message.inside)
        turn.put_rank(group, message.rank, raised=raised)
