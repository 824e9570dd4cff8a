"""Signals that only say that all goes on as before: with a thousand groups there are thousands of them in a second.

To look at the job as a whole costs time in proportion to its groups, so it is left to the next tick (half a heartbeat
away at most) when nothing but such signals came and nothing is open. What they say is noted at once all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from spare.api import wire
from spare.control.signal import Report, Signal
from spare.control.state import State
from spare.control.turn import Turn


def goes_on_as_before(turn: Turn, signals: Sequence[Signal]) -> bool:
    """Whether the signals that were noted in this turn call for no look at the whole."""
    return not turn.moved and not turn.actions and all(map(_is_routine, signals)) and not _open(turn.state)


def _is_routine(signal: Signal) -> bool:
    if not isinstance(signal, Report):
        return False
    message = signal.message
    if isinstance(message, wire.Alive):
        return message.worker == "running" and message.nonce is None
    return isinstance(message, wire.Committed)


def _open(state: State) -> bool:
    """Whether something waits to be decided, or to be seen."""
    told = state.losses or state.suspicions or state.errors or state.poison or state.interrupted or state.leavers
    asked = state.probe is not None or state.recovering is not None or state.halt is not None
    return bool(told) or asked or state.starting or state.finishing or state.waiting is not None or bool(state.blind)
