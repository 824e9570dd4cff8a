"""Everybody stops after the same step: because the job is suspended, or because every group is asked to leave at once.

A boundary plan with a `halt` says so: at the commit at which it takes effect each member saves and ends. That is no
wipe-out and no loss (field case F23), and the job goes on from there when it is started again.
"""

from __future__ import annotations

from typing import Final

from spare.api import wire
from spare.api.exit_codes import ExitCode
from spare.api.notation import called
from spare.api.reasons import EventReason
from spare.control import checkpointing, leave
from spare.control.leaver import Halt
from spare.control.signal import AgentGone
from spare.control.state import Group, State, Suspicion
from spare.control.turn import Turn

_UNHEARD: Final = (-1, False)
"""In place of (steps, saved): it has stopped, and nobody heard after which step."""


def asked(turn: Turn, reason: str, until: float) -> None:
    """The job is to stop."""
    if turn.state.halt is None:
        turn.set(halt=Halt(reason, until))
        turn.say(EventReason.HALTING, f"the job stops after the step in flight: {reason}")


def called_for(turn: Turn) -> None:
    """Stop when nobody stays, and when one that cannot wait any longer would be the last host of a shard.

    Where nothing is saved a stop loses all that was done. Then as many go as may, and the others stay for as long as
    they can: replacements may come within the grace, and get the state from them.
    """
    state = turn.state
    if state.halt is not None or not state.live:
        return
    leavers = {each.group: each for each in state.leavers if each.released is None and state.member(each.group)}
    kept = state.config.checkpoint is not None or not state.config.replace
    if kept and set(leavers) == set(state.live):
        reasons = ", ".join(sorted({each.reason for each in leavers.values()}))
        asked(turn, f"every group is asked to leave ({reasons})", max(each.until for each in leavers.values()))
        return
    for each in leavers.values():
        if each.serves and not leave.hosted(state, set(state.whole) - {each.group}):
            why = f"group {each.group} must leave ({each.reason}), and without it some shard has no host"
            asked(turn, why, each.until)
            return


def noted(turn: Turn, message: wire.Halted) -> None:
    """A member has stopped; without a plan that says so none does."""
    if turn.state.halt is None and not (turn.state.plan is not None and turn.state.plan.halt):
        turn.refuse(message.group, (message.uid, message.kind), f"'halted' of group {message.group}: no plan says so")
        return
    step = max(message.step, turn.group(message.group).ranks[message.rank].step)
    turn.put_rank(message.group, message.rank, halted=(message.step, message.saved), step=step)
    turn.set(step=max(turn.state.step, message.step))
    state, plan = turn.state, turn.state.plan
    if plan is not None and not plan.halt and state.live and turn.group(message.group).halted is not None:
        # An urgent plan was made before this was known: the others wait for this one in a meeting that cannot be.
        text = "it stopped, as it was told, before it knew this plan"
        turn.set(suspicions=(*state.suspicions, Suspicion(message.group, plan.epoch, text, frozenset(), turn.now)))


def unheard(turn: Turn, gone: AgentGone) -> bool:
    """Whether a member that is gone has stopped as its plan says, though no coordinator was there to hear it (F23).

    Its agent ends with 0 as soon as its workers have stopped, whoever hears of it.
    """
    state, config, plan = turn.state, turn.config, turn.state.plan
    if plan is None or not plan.halt or state.finishing or gone.in_order is False or not state.member(gone.group):
        return False
    for rank in turn.group(gone.group).ranks[gone.pod * config.procs : (gone.pod + 1) * config.procs]:
        turn.put_rank(gone.group, rank.rank, halted=rank.halted or _UNHEARD, finished=True)
    turn.put(gone.group, reason=gone.reason)
    return True


def stopped(state: State) -> tuple[Group, ...]:
    """The members that have stopped."""
    plan = state.plan
    members = [(m, state.groups[m.group]) for m in plan.members] if plan else []
    return tuple(here for m, here in members if here.uid == m.uid and here.halted is not None)


def conclude(turn: Turn) -> None:
    """End the job once everybody has stopped, or when that takes too long."""
    state, halt = turn.state, turn.state.halt
    if halt is None:
        return
    if state.starting:
        turn.end(ExitCode.SIGTERM, EventReason.SUSPENDED, f"suspended while the groups start: {halt.reason}")
        return
    here = stopped(state)
    late = turn.now > halt.until
    if here and not state.live and (late or all(each.finished for each in here)):
        _end(turn, here, halt)
    elif late:
        left = called(state.live)
        text = f"{halt.reason}: {left} had not stopped when the time for it was over, at step {state.step}"
        if not cut_short(turn, text):
            turn.end(ExitCode.STALLED, EventReason.STALLED, text, state.live)


def cut_short(turn: Turn, why: str) -> bool:
    """A job that was to stop cannot finish its step. It ends where it has a place to go on from (F23); whether it has.

    A step may be longer than the grace of pods that must all go at once.
    """
    if turn.state.halt is None or turn.config.checkpoint is None:
        return False
    turn.end(ExitCode.SIGTERM, EventReason.SUSPENDED, f"{why}; {_from_newest(turn)}")
    return True


def _from_newest(turn: Turn) -> str:
    newest = checkpointing.usable(turn.state)
    return "goes on from the newest complete checkpoint" + (f"; {newest} is known" if newest else "")


def _end(turn: Turn, here: tuple[Group, ...], halt: Halt) -> None:
    heard = [each.halted for each in here if each.halted is not None and each.halted[0] >= 0]
    steps = sorted({step for step, _ in heard})
    if len(steps) > 1:
        text = f"groups stopped after different steps: {', '.join(map(str, steps))}"
        turn.end(ExitCode.INEXACT, EventReason.DIVERGED, text)
        return
    step = steps[0] if steps else turn.state.step
    on = _from_where(turn, step, bool(heard) and all(saved for _, saved in heard), bool(heard))
    turn.end(ExitCode.SIGTERM, EventReason.SUSPENDED, f"suspended after step {step} ({halt.reason}); {on}")


def _from_where(turn: Turn, step: int, saved: bool, heard: bool) -> str:
    if saved:
        return f"goes on from step {step}"
    if turn.config.checkpoint is None:
        return "nothing was saved, for spec.checkpoint.path is not set"
    why = "that step could not be saved by all" if heard else "nobody was there to hear after which step"
    return f"{why}: {_from_newest(turn)}"
