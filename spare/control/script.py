"""How the end of a training script is told: by its exit code or by what it raised, and where that was."""

from __future__ import annotations

from spare.api import wire
from spare.control.turn import Turn
from spare.planner.words import counted


def of_rank(turn: Turn, rank: int) -> str:
    """ " of rank 1", where groups have several."""
    return f" of rank {rank}" if turn.config.ranks > 1 else ""


def _rank(turn: Turn, rank: int) -> str:
    return f", rank {rank}" if turn.config.ranks > 1 else ""


def exit_text(turn: Turn, message: wire.Exited) -> str:
    """Why it is an error that this script has ended, with its last words."""
    tail = f"; its last words:\n{message.tail}" if message.tail else ""
    who = f"the script of group {message.group}{_rank(turn, message.rank)}"
    if turn.state.finishing:
        return f"{who} exited with code {message.code} after the last step{tail}"
    if message.code == 0 and turn.state.starting:
        return f"{who} ended before the first step: does it open a Session and iterate its steps?"
    if message.code == 0:
        step = turn.group(message.group).step
        return f"{who} ended after {counted(step, 'step')}, before the last one was committed by all groups"
    return f"{who} exited with code {message.code}{tail}"


def error_text(turn: Turn, message: wire.Errored) -> str:
    """What it raised, where, and the traceback."""
    where = f"group {message.group}{_rank(turn, message.rank)}, step {message.step}"
    if message.micro is not None:
        where += f", micro-batch {message.micro[1]} of shard {message.micro[0]}"
    text = f"{message.text} ({where})"
    if message.ours and message.type == "CheckpointMismatch":
        return text  # the reason is that word; no line of code is wrong
    return f"{message.type}: {text}\n{message.traceback.rstrip()}".rstrip("\n")
