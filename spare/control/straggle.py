"""Groups that are much slower than the others, step after step: told, and by `onStraggler: Rebalance` given less to do.

A group's pace is the time that it takes for a micro-batch, as its workers measure it: time in which it computes, so
that who waits for the slow one does not look slow. It does not depend on how much a group has to do, so giving it less
does not hide that it is slow, and its recovery is seen. Nothing is done before a group has been slow, or well again,
for `slow_after`: what comes and goes faster than a plan does moves nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median_low

from spare.api import wire
from spare.api.reasons import EventReason
from spare.control.state import Group, GroupState, State
from spare.control.turn import Turn

_NEW = 0.3
"""Weight of the newest step in a pace: one slow step is forgotten after a few."""
_MOST = 3.0
"""Times its pace that one step may count: a pause of a minute is no sign of being slow."""
_PACED = 5
"""Steps after which a pace says something: the first ones compile and load."""
_GRAIN = 5
"""Speeds are whole multiples of this many per cent, rounded down."""


def paced(turn: Turn, message: wire.Committed) -> None:
    """Take note of how long a rank computed for its micro-batches of a step."""
    if message.computed < 1 or not message.seconds > 0:
        return
    rank = turn.group(message.group).ranks[message.rank]
    now = message.seconds / message.computed
    pace = now if not rank.paced else rank.pace + _NEW * (min(now, _MOST * rank.pace) - rank.pace)
    turn.put_rank(message.group, message.rank, pace=pace, paced=rank.paced + 1)


def straggle(turn: Turn) -> None:
    """Judge the paces, about once a heartbeat; tell who has become slow or well."""
    state, config = turn.state, turn.config
    if state.ended or turn.now < state.judged + config.heartbeat:
        return
    turn.set(judged=turn.now)
    members = [state.groups[g] for g in state.live if _known(state.groups[g])]
    if len(members) < 2:
        return
    middle = median_low(here.pace for here in members)
    for here in members:
        _judge(turn, here, here.pace / middle)


def _known(here: Group) -> bool:
    return here.state is GroupState.ACTIVE and min(rank.paced for rank in here.ranks) >= _PACED


def _judge(turn: Turn, here: Group, lag: float) -> None:
    config, now, group = turn.config, turn.now, here.group
    slow_since = (here.slow_since if here.slow_since is not None else now) if lag >= config.slow_factor else None
    well_since = (here.well_since if here.well_since is not None else now) if lag <= config.well_factor else None
    turn.put(group, lag=lag, slow_since=slow_since, well_since=well_since)
    if not here.straggler and slow_since is not None and now - slow_since >= config.slow_after:
        turn.put(group, straggler=True)
        text = f"group {group} takes {lag:.1f} times as long as the median for a micro-batch"
        text += f" ({1000 * here.pace:.1f} ms), for {now - slow_since:.0f} s"
        turn.say(EventReason.STRAGGLER, text, (group,))
    elif here.straggler and well_since is not None and now - well_since >= config.slow_after:
        turn.put(group, straggler=False)
        turn.say(EventReason.STRAGGLER, f"group {group} is about as fast as the others again", (group,))


def speeds(state: State) -> dict[int, int]:
    """Speeds of the stragglers among the members, in per cent of a healthy group's, below 100.

    Who is on its way to being well keeps the speed that is planned until it is.
    """
    assert state.plan is not None
    found = {}
    for here in (state.groups[g] for g in state.live if state.groups[g].straggler):
        planned = state.plan.schedule.speed(here.group)
        now = max(state.config.slowest, int(100 / here.lag) // _GRAIN * _GRAIN)
        found[here.group] = planned if here.slow_since is None and planned != 100 else min(now, 100 - _GRAIN)
    return found


def rebalancing(turn: Turn) -> Mapping[int, int] | None:
    """The speeds that shares are to be made for now; None while those that are planned are good enough."""
    state, config = turn.state, turn.config
    if not config.rebalance or state.plan is None:
        return None
    schedule, wanted = state.plan.schedule, speeds(state)
    planned = {g: schedule.speed(g) for g in state.live if schedule.speed(g) != 100}
    if wanted.keys() == planned.keys():
        if all(abs(wanted[g] - planned[g]) < config.speed_drift * planned[g] for g in wanted):
            turn.set(drifting=None)
            return None
        since = turn.now if state.drifting is None else state.drifting
        turn.set(drifting=since)
        if turn.now < since + config.slow_after:
            return None
    turn.set(drifting=None)
    return wanted
