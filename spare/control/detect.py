"""Which members are dead though nothing says so: silence, and work that does not go on while the others wait for it."""

from __future__ import annotations

import math

from spare.api.exit_codes import ExitCode
from spare.api.notation import called
from spare.api.reasons import EventReason
from spare.control import note
from spare.control.rank import Raised
from spare.control.state import Group, GroupState, State, UserError
from spare.control.turn import Turn
from spare.planner.words import counted

_AT_WORK = ("starting", "compute", "load", "commit")
"""Phases in which a worker depends on nobody: no progress in them is its own fault."""
_WAITING = ("reduce", "barrier", "rendezvous", "failed", "done")
"""Phases in which a worker waits for the others; after the last step, for those that have still to commit it."""


def detect(turn: Turn) -> None:
    """Lose the members that are dead by their silence or their standstill. They join the losses told by others."""
    _silent_agents(turn)
    if turn.state.ended:
        return
    late_starters(turn, turn.config.start_timeout)
    _silent_workers(turn)
    _hung_workers(turn)
    _early_enders(turn)
    _stalled(turn)


def exceptions(turn: Turn) -> None:
    """Judge what ranks that have siblings raised: by now it is known whether it came of a sibling's death.

    Who has died takes its group along, and what the others then raised is no error of the script. A connection between
    them that broke loses the group though nobody is known to have died: it cannot be made again in a running script.
    Of a group that was let go meanwhile its end tells.
    """
    for at, group, rank, raised in _raised(turn.state):
        if turn.now < at:
            break
        turn.put_rank(group, rank, raised=None)
        here = turn.group(group)
        if here.state in (GroupState.LOST, GroupState.LEFT):
            continue
        if note.costs_only_itself(here, raised.ours, raised.type):
            note.gone(turn, group, f"it could not join: {raised.text.splitlines()[0]}", raised.at)
        elif raised.inside:
            note.gone(turn, group, f"rank {rank}: {raised.text.splitlines()[0]}", raised.at)
        else:
            error = UserError(group, raised.text, raised.ours, raised.type)
            turn.set(errors=(*turn.state.errors, error))


def next_exception(state: State) -> float:
    """When the next of them is to be judged; infinite if none is."""
    return min((at for at, *_ in _raised(state)), default=math.inf)


def _raised(state: State) -> list[tuple[float, int, int, Raised]]:
    """(when to judge it, group, rank, what it raised), the first to be judged first.

    A connection that broke is judged soon, but not before what a sibling had raised of its own before that: then it is
    the end of that script which broke it.
    """
    found, config = list[tuple[float, int, int, Raised]](), state.config
    for here in state.groups:
        told = [(rank.rank, rank.raised) for rank in here.ranks if rank.raised is not None]
        if not told:
            continue
        own = min((raised.at for _, raised in told if not raised.inside), default=math.inf)
        for rank, raised in told:
            echo = raised.inside and own + config.settle <= raised.at
            at = own + config.patience(False) if echo else raised.at + config.patience(raised.inside)
            found.append((at, here.group, rank, raised))
    return sorted(found, key=lambda each: (each[0], each[3].inside, each[1], each[2]))


def silence(state: State, here: Group, now: float) -> float:
    """Seconds for which nothing proves that the group's agent is there.

    A commit of the present epoch proves that every member entered its barrier: lost heartbeats are then no failure.
    What lies before `grace` says nothing, since our own network was away.
    """
    proof = -math.inf if here.state is GroupState.JOINING else state.proof  # it may not be in that reduction yet
    return now - max(here.heard, proof, state.grace)


def _silent_agents(turn: Turn) -> None:
    state, now = turn.state, turn.now
    silent = [g for g in state.live if silence(state, state.groups[g], now) > turn.config.dead_after]
    silent = _with_their_nodes(turn, silent)
    if not silent:
        if state.blind and not any(_unheard(state, g) for g in state.live):
            turn.set(blind=frozenset(), blind_since=None)
        return
    if not _own_network(turn, silent) and not turn.state.ended:
        for group in silent:
            quiet, node = silence(state, state.groups[group], now), _node(state.groups[group])
            where = f"node {node}: " if node else ""
            turn.lose(group, f"{where}its agent was silent for {quiet:.1f} s", now - quiet)


def _node(here: Group) -> str:
    """The node that its first pod is on; empty where there are none."""
    return here.zone[2] if len(here.zone) > 2 else ""


def _with_their_nodes(turn: Turn, silent: list[int]) -> list[int]:
    """The silent ones, and who was on the same node and has missed its heartbeats as well: a node's death is one loss,
    though its agents spoke last at different moments of a heartbeat (field case F05)."""
    state, late = turn.state, 1.5 * turn.config.heartbeat
    nodes = {_node(state.groups[g]) for g in silent} - {""}
    return [
        g
        for g in state.live
        if g in silent or (_node(state.groups[g]) in nodes and silence(state, state.groups[g], turn.now) > late)
    ]


def late_starters(turn: Turn, limit: float) -> None:
    """Start groups again whose agents are there, and whose workers are stopped or will not get ready; and those whose
    agents were there once, and are not heard any more while others are."""
    for here in (*turn.state.groups, *turn.state.spares):
        if here.state not in (GroupState.STARTING, GroupState.READY) or not here.uid:
            continue
        starting, outside = here.state is GroupState.STARTING, False
        waited, quiet = turn.now - here.started, _quiet_start(turn.state, here, turn.now)
        if starting and here.silent and here.silent_for > turn.config.dead_after:
            why = f"its worker has been stopped for {here.silent_for:.1f} s, before it was ready"
        elif starting and waited > limit:
            why = f"its worker was not ready {waited:.0f} s after its start (spec.detection.startTimeout)"
        elif starting and (waited := _unready_for(turn, here)) > turn.config.ready_timeout:
            why = f"its worker was not ready {waited:.0f} s after its agent ran (spec.detection.startTimeout)"
        elif quiet > 2 * turn.config.dead_after:
            why, outside = f"its agent was silent for {quiet:.1f} s, before there was a plan for it", True
        else:
            continue
        of = (here.group,) if here.group < turn.config.groups else ()
        turn.say(EventReason.PODS_NOT_STARTING, f"{turn.name(here.group)} is started again: {why}", of)
        note.gone(turn, here.group, why, turn.now, outside)


def _unready_for(turn: Turn, here: Group) -> float:
    """Seconds for which all agents of a group have been there, and a worker of it is not ready, where starts have no
    deadline of their own. 0 while an agent is missing: it may have to wait for a node, a quota or an image."""
    ups = [pod.up for pod in here.pods if pod.up is not None]
    if len(ups) < len(here.pods) or math.isfinite(turn.config.start_timeout):
        return 0.0
    return turn.now - max([*ups, *([here.started] if math.isfinite(here.started) else [])])


def _quiet_start(state: State, here: Group, now: float) -> float:
    """Seconds since an agent without a plan was heard; 0 where it has never said anything (its image may be on its
    way still), and where nobody else is heard either, for then it may be our own network."""
    spoke = any(rank.pid or rank.worker != "none" for rank in here.ranks)
    spoke = spoke or (state.plan is not None and state.plan.has(here.group, here.uid))
    others = (other.heard for other in (*state.groups, *state.spares) if other.group != here.group)
    if not spoke or now - max(others, default=-math.inf) > state.config.dead_after:
        return 0.0
    return now - max(here.heard, state.grace)


def _unheard(state: State, group: int) -> bool:
    return state.groups[group].heard <= state.grace


def _own_network(turn: Turn, silent: list[int]) -> bool:
    """Whether so many agents are silent at once that it is our own network that is away, and not they.

    Not for ever: who is still silent one more deadline later, while others are heard, is lost after all. A group that
    waits to be admitted is such another: all members may have died while no coordinator was there.
    """
    state = turn.state
    since = turn.now if state.blind_since is None else state.blind_since
    down = {g for g in state.live if g in silent or state.groups[g].link_down is not None}
    if len(down) < 2 or 2 * len(down) <= len(state.live):
        return False
    if set(silent) <= state.blind and (len(down) < len(state.live) or _others_heard(turn)):
        return False
    if not state.blind:
        text = (
            f"{len(down)} of {len(state.live)} agents are not heard at once: taken for our own network, nobody is lost"
        )
        turn.say(EventReason.UNHEARD, text, tuple(sorted(down)))
    turn.set(grace=turn.now, blind=frozenset(down), blind_since=since)
    if turn.now - since > turn.config.unheard_limit:
        quiet = f"no agent has been heard for {turn.now - since:.0f} s, at step {state.step}"
        text = f"{quiet}: whether they live cannot be known from here"
        turn.end(ExitCode.STALLED, EventReason.STALLED, text, tuple(sorted(down)))
    return True


def _silent_workers(turn: Turn) -> None:
    state, now = turn.state, turn.now
    for group in state.live:
        here = state.groups[group]
        if min(here.silent_for, now - state.proof) > turn.config.dead_after:
            turn.lose(group, f"its worker was silent for {here.silent_for:.1f} s", now - here.silent_for)
        elif here.exited is not None and now - here.exited > turn.config.probe_wait:
            turn.lose(group, "its worker exited, nothing says how", here.exited)


def _hung_workers(turn: Turn) -> None:
    """Who made no progress while others wait for it.

    Native code that keeps Python's lock lets no heartbeat out. The phase that the last one told of, maybe the barrier
    of the step before, is then evidence neither of being at work nor of waiting.
    """
    state, limit = turn.state, turn.config.hang_after
    beating = [state.groups[g] for g in state.live if _unsaid(state.groups[g]) <= 2 * turn.config.heartbeat]
    waiting = [here for here in beating if here.phase in _WAITING]
    for group in state.live:
        here = state.groups[group]
        at_work = here.phase in _AT_WORK or _unsaid(here) > limit
        if at_work and here.still > limit and _waited_for(here, waiting, limit):
            cause = f"its worker made no progress for {here.still:.1f} s in {here.phase!r} while the others waited"
            turn.lose(group, cause, turn.now - here.still)


def _unsaid(here: Group) -> float:
    """Seconds for which one of its workers has said nothing, stopped or not, by its agent's newest word."""
    return max(rank.silent_for for rank in here.ranks)


def _waited_for(here: Group, waiting: list[Group], limit: float) -> bool:
    """Whether somebody has waited longer than `limit` for this group: in a collective of its step, or to meet it.

    Time counts from when the other began to wait: after a stall of all, the first to go on must not condemn the rest.
    """
    for other in waiting:
        if other.still <= limit:
            continue
        if other.phase in ("reduce", "barrier"):
            if other.step >= here.step and other.epoch == here.epoch:  # further: this one has still to commit
                return True
        elif other.phase == "done":
            if other.step > here.step:  # who has committed the last step, too, may have a checkpoint to write
                return True
        elif other.epoch >= here.epoch:
            return True
    return False


def _others_heard(turn: Turn) -> bool:
    """Whether the agent of a group that is no member, or of a spare, has been heard lately."""
    every = (*turn.state.groups, *turn.state.spares)
    ready = [here for here in every if here.state is GroupState.READY and here.link_down is None]
    return any(turn.now - here.heard <= turn.config.dead_after for here in ready)


def _early_enders(turn: Turn) -> None:
    """A script that has left its loop while others already reduce the next step will never join them: its own error."""
    state = turn.state
    done = [state.groups[g] for g in state.live if state.groups[g].done is not None]
    if not done:
        return
    first = min(done, key=lambda here: (here.step, here.group))
    later = [g for g in state.live if state.groups[g].phase in ("reduce", "barrier") and g != first.group]
    later = [g for g in later if state.groups[g].done is None and state.groups[g].step >= first.step]
    if later:
        text = (
            f"group {first.group} ended after {counted(first.step, 'step')}, while {called(later)} "
            f"{'is' if len(later) == 1 else 'are'} in step {first.step}: every group must run the same number of steps"
        )
        turn.set(errors=(*state.errors, UserError(first.group, text)))


def _stalled(turn: Turn) -> None:
    """If all stand still alike nobody is to blame: say so once, lose nobody."""
    state = turn.state
    still = min((state.groups[g].still for g in state.live), default=-math.inf)
    if state.losses:
        still = -math.inf  # somebody is to blame, and the others wait for a plan, or with minGroups for replacements
    elif state.recovering is not None and state.recovering.committed is None:
        still = min(still, turn.now - state.recovering.decided)
    if still <= turn.config.hang_after:
        if state.stalled:
            turn.set(stalled=False)
    elif not state.stalled:
        turn.set(stalled=True)
        phases = sorted({state.groups[g].phase for g in state.live})
        text = f"no group made progress for {still:.1f} s, at step {state.step} in {', '.join(phases)}; nobody is lost"
        turn.say(EventReason.STALLED, text)
