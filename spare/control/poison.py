"""Poison: a micro-batch that kills one group after another must not wander through the job (docs/decisions/0011).

Two groups whose workers died of something that they did themselves, with the same micro-batch in hand, are taken for
killed by it; one such death alone is a loss like any other. What counts as such a death: `exit_codes.blame`.
"""

from __future__ import annotations

from collections.abc import Iterable

from spare.api import wire
from spare.api.exit_codes import Blame, ExitCode, blame
from spare.api.reasons import EventReason
from spare.control.crash import Crash
from spare.control.state import State
from spare.control.turn import Turn

Micro = tuple[int, int, int]
"""(step, shard, index)."""

_KEPT = 64
"""Crashes that are remembered: the second on a micro-batch comes within its step, so these are plenty."""


def crashed(turn: Turn, message: wire.Exited) -> bool:
    """Take note of a worker's end; whether it counts against the micro-batch that it had in hand.

    A script that leaves by itself in the midst of a micro-batch is given the benefit of the doubt once: the second such
    exit counts only on the same micro-batch, else it is an error of the script.
    """
    state, micro = turn.state, message.micro
    whom = blame(message.code, message.signal)
    if micro is None or state.plan is None or state.finishing or whom is Blame.INFRASTRUCTURE:
        return False
    by_itself = whom is Blame.SCRIPT
    if by_itself and any(crash.by_itself and crash.micro != micro for crash in state.crashes):
        return False
    how = f"killed by signal {message.signal}" if message.signal is not None else f"exited with code {message.code}"
    before = [c for c in state.crashes if c.micro == micro and c.group != message.group]
    crash = Crash(message.group, message.uid, micro, how, by_itself)
    if crash not in state.crashes:
        turn.set(crashes=(*state.crashes, crash)[-_KEPT:])
    if before and micro not in state.poison:
        turn.set(poison=tuple(sorted({*state.poison, micro})))
        if may_skip(turn.state):  # else it is what the job ends by
            turn.say(EventReason.POISON, _sentence(micro, [*before, crash]), (before[0].group, message.group))
    return True


def _sentence(micro: Micro, crashes: Iterable[Crash]) -> str:
    who = ", ".join(f"group {crash.group} ({crash.how})" for crash in crashes)
    return f"{named(micro)} killed one group after another: {who}"


def named(micro: Micro) -> str:
    """A micro-batch, for people."""
    step, shard, index = micro
    return f"micro-batch {index} of shard {shard} in step {step}"


def names(micros: Iterable[Micro]) -> str:
    """Several, for people."""
    return ", ".join(named(micro) for micro in micros)


def in_hand(message: wire.Exited) -> str:
    """What a worker was at when it died, as a part of a sentence."""
    return f" at {named(message.micro)}" if message.micro is not None else ""


def may_skip(state: State) -> bool:
    """Whether poison is left out of the sum. Never all of a step: nothing would be left to average."""
    config = state.config
    most = max((sum(micro[0] == step for micro in state.poison) for step, _, _ in state.poison), default=0)
    return config.skip_poison and most < config.groups * config.micro_batches


def to_skip(state: State) -> tuple[Micro, ...]:
    """What the next plan leaves out: poison of steps that somebody may still have to compute."""
    return tuple(micro for micro in state.poison if micro[0] >= state.step - 1)


def unanswered(state: State) -> tuple[Micro, ...]:
    """Poison of the step in flight that the present plan does not leave out: whoever gets it next would die of it."""
    known = set(state.plan.skipped) if state.plan is not None else set()
    return tuple(micro for micro in to_skip(state) if micro not in known and micro[0] >= state.step)


def failed(turn: Turn) -> None:
    """End the job by its poison."""
    state = turn.state
    micro = state.poison[-1]
    crashes = [crash for crash in state.crashes if crash.micro == micro]
    text = _sentence(micro, crashes)
    if state.config.skip_poison:
        text += "; it was the last of its step, and nothing would be left to average"
    turn.end(ExitCode.POISON, EventReason.POISON, text, tuple(crash.group for crash in crashes))
