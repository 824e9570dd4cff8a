"""A wipe-out: some shard has no live host left. The job ends, or all of it begins again from a checkpoint.

Survivors keep their agents and their places, but not their workers: the script's own variables, and what it does
around the loop over micro-batches, belong to a step that never was, and only a new process is rid of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from spare.api.exit_codes import ExitCode
from spare.api.reasons import EventReason
from spare.api.spec import OnWipeOut
from spare.control import checkpointing
from spare.control.action import DeleteGroup, SendRenew
from spare.control.rank import fresh_ranks
from spare.control.saving import Restarting
from spare.control.state import GroupState, JobState, State
from spare.control.turn import Turn
from spare.planner.placement import Placement
from spare.planner.wipe_out import WipeOut
from spare.planner.words import counted

_NAMED = 8


def wiped_out(state: State, without: Sequence[int] = ()) -> bool:
    """Whether no plan can complete a step: a shard has no live host with the training state."""
    assert state.plan is not None
    live = set(state.whole) - set(without)  # who still loads the state can compute nothing of the step in flight
    if state.config.on_wipe_out is OnWipeOut.FETCH:
        return not live  # whoever is left computes everything
    hosts = state.plan.schedule.placement.host_table
    return not all(any(host in live for host in row) for row in hosts)


def wipe_out(turn: Turn, cause: str) -> None:
    """Do what the job file says for a wipe-out. `cause`: who was lost, and how."""
    config, state = turn.config, turn.state
    text = _described(state, cause)
    lost = tuple(sorted(loss.group for loss in state.losses))
    turn.do(*(DeleteGroup(loss.group, loss.uid) for loss in state.losses))
    again = config.on_wipe_out is OnWipeOut.RESTART or (
        config.on_wipe_out is OnWipeOut.FETCH and bool(config.checkpoint)  # nobody is left to fetch
    )
    if not again:
        fail = config.on_wipe_out is OnWipeOut.FAIL
        advice = "; Restart goes back to a checkpoint, Fetch lets the survivors compute everything" if fail else ""
        verdict = f"{text}\nStep {state.step} was the last to be committed. onWipeOut: {config.on_wipe_out}{advice}."
        _clear(turn)
        turn.end(ExitCode.WIPE_OUT, EventReason.WIPE_OUT, verdict, lost)
    elif state.restarts >= config.backoff_limit:
        verdict = (
            f"{text}\nThe job was restarted {counted(state.restarts, 'time')}, as often as runPolicy.backoffLimit "
            f"({config.backoff_limit}) allows."
        )
        _clear(turn)
        turn.end(ExitCode.WIPE_OUT, EventReason.BACKOFF_LIMIT_EXCEEDED, verdict, lost)
    else:
        _begin_again(turn, text, lost)


def _clear(turn: Turn) -> None:
    turn.set(losses=(), suspicions=(), probe=None)


def _begin_again(turn: Turn, text: str, lost: tuple[int, ...]) -> None:
    state = turn.state
    signs = [loss.sign for loss in state.losses]
    step, restarts = state.step, state.restarts + 1
    renewed = tuple(g for g in state.live if turn.config.ranks == 1)
    _clear(turn)
    turn.set(
        restarting=Restarting(turn.now, min(signs, default=turn.now), lost, step, text.partition("\n")[0]),
        restarts=restarts,
        recovering=None,
        ordered=None,
        stalled=False,
        fruitless=0,
        waiting=None,
    )
    turn.move_job(JobState.WAITING)
    for group in state.live:
        here = turn.group(group)
        if group in renewed:
            turn.move(group, GroupState.STARTING, attempts=1, reason="it begins again from the checkpoint")
            turn.put(group, ranks=fresh_ranks(len(here.ranks)), started=turn.now)
        else:  # its ranks have met, and cannot meet again
            turn.do(DeleteGroup(group, here.uid))
            turn.move(group, GroupState.LOST, past=here.outlived(here.uid), reason="it begins again, all ranks anew")
            turn.put(group, retry=turn.now)
    for here in turn.state.groups:
        gone = here.state in (GroupState.LOST, GroupState.LEFT)
        turn.put(here.group, excused=here.attempts - (not gone))  # to have failed to join is nothing to the new start
        if gone and here.retry is None:  # also where nobody is replaced while the job goes on
            turn.put(here.group, retry=turn.now + turn.config.backoff(here.attempts))
    if renewed:
        turn.do(SendRenew(renewed, text.partition("\n")[0]))
    newest = checkpointing.usable(turn.state)
    source = f"checkpoint {newest}" if newest else "step 0, for no checkpoint is complete yet"
    turn.say(
        EventReason.WIPE_OUT,
        f"{text}\nAll groups begin again from {source}: restart {restarts} of {turn.config.backoff_limit} at most",
        lost,
    )


def _described(state: State, cause: str) -> str:
    """Which shards have no host, and why their hosts are gone."""
    assert state.plan is not None
    live, placement = set(state.whole), state.plan.schedule.placement
    if not live:
        return f"wipe-out: no group with the training state is left after step {state.step}: {cause}"
    shards = [i for i, hosts in enumerate(placement.host_table) if not any(h in live for h in hosts)]
    lines = [f"{WipeOut(shards)} after step {state.step}: {cause}"]
    lines += [_hosts_of(state, placement, shard) for shard in shards[:_NAMED]]
    if len(shards) > _NAMED:
        lines.append(f"and {counted(len(shards) - _NAMED, 'more shard')}")
    return "\n".join(lines)


def _hosts_of(state: State, placement: Placement, shard: int) -> str:
    hosts = ", ".join(f"{h} ({state.groups[h].reason or 'no member'})" for h in sorted(placement.hosts(shard)))
    return f"shard {shard}: its hosts were groups {hosts}"
