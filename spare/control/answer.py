"""Answer failures: one new urgent plan for all that is known, or the end of the job where no plan can help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from spare.api.exit_codes import ExitCode
from spare.api.notation import called
from spare.api.reasons import EventReason
from spare.control import halt, leave, poison, recovery
from spare.control.action import DeleteGroup, ProbeAll, PushPlan
from spare.control.checkpointing import writer_of
from spare.control.leaver import Leaver
from spare.control.minimum import too_few
from spare.control.plan import Plan
from spare.control.restart import wipe_out, wiped_out
from spare.control.sharing import reordered
from spare.control.state import Group, GroupState, JobState, Loss, Probe, State, Suspicion
from spare.control.turn import Turn

_IN_VAIN = 4
"""Failures running, with nobody to blame for them, after which those that join are."""
_SHOWN = 3
"""Reports of one failure that a sentence quotes."""


def answer(turn: Turn) -> None:
    """Make the plan that what is known calls for, if it does."""
    state = turn.state
    if state.losses or poison.unanswered(state) or leave.must_go(state) or leave.giving(state):
        _replan(turn, 0)  # the dead are known: waiting for what else may be wrong would stall the survivors
    elif state.suspicions:
        _suspected(turn)


def _suspected(turn: Turn) -> None:
    """A failure without a known death: ask everybody first, then answer it in any case."""
    state = turn.state
    if state.probe is None:
        nonce = state.probes + 1
        turn.set(probes=nonce, probe=Probe(nonce, turn.now))
        who = ", ".join(f"group {s.group}: {s.error}" for s in state.suspicions[:_SHOWN])
        more = f", and {len(state.suspicions) - _SHOWN} more" if len(state.suspicions) > _SHOWN else ""
        text = f"a collective of epoch {state.suspicions[0].epoch} failed ({who}{more})"
        turn.say(EventReason.SUSPECTED, text, _named(state))
        turn.do(ProbeAll(nonce, state.live))
    elif turn.now >= facts_at(state):
        _fruitless(turn)


def facts_at(state: State) -> float:
    """When the answer to the suspicions may be given, as far as is known now.

    Not before a death that is not yet told has had its time; not while a member is in doubt that may turn out to be
    dead (it is lost by its silence then, and that makes the plan); else as soon as all have answered.
    """
    probe = state.probe
    assert probe is not None
    earliest = probe.at + min(state.config.settle, state.config.probe_wait)
    unanswered = [g for g in state.live if not probe.answered_by(state.groups[g])]
    named = _named(state)
    if any(_in_doubt(state.groups[g], g in unanswered and g in named) for g in state.live):
        return float("inf")
    return max(earliest, probe.at + state.config.probe_wait) if unanswered else earliest


def _in_doubt(here: Group, missing: bool) -> bool:
    return missing or here.silent or here.exited is not None


def _named(state: State) -> tuple[int, ...]:
    """Members that some report could not reach, ascending."""
    return tuple(sorted({g for s in state.suspicions for g in s.unreachable if state.member(g)}))


def _fruitless(turn: Turn) -> None:
    """Everybody is there: the same members again, but the second time running without whom most could not reach."""
    state, count = turn.state, turn.state.fruitless + 1
    if count > turn.config.fruitless_limit:
        last = "; ".join(f"group {s.group}: {s.error}" for s in state.suspicions)
        text = f"{count} failures running at step {state.step} with every group alive; the last: {last}"
        turn.end(ExitCode.STALLED, EventReason.STALLED, text)
        return
    first = min(s.at for s in state.suspicions)
    if joiners := _hindering(state, count):
        for group, cause in joiners:
            turn.lose(group, cause, first)
        count = 0
    elif count >= 2:
        votes = Counter(g for s in state.suspicions for g in s.unreachable if state.member(g))
        if votes:
            group, most = max(votes.items(), key=lambda vote: (vote[1], vote[0]))
            if not wiped_out(state, [group]):
                cause = f"unreachable for {most} of {len(state.suspicions)} that reported, the second time running"
                turn.lose(group, cause, first)
                count = 0
    _replan(turn, count)


def _hindering(state: State, count: int) -> list[tuple[int, str]]:
    """Joiners that hinder the others, each with the cause: it has nothing yet that the job needs, so it goes first.

    Who did not come to meet the members, at once; who cannot reach one of them, when nobody else complains of that one,
    the second time running. All of them, where nobody can be named and it fails again and again.
    """
    joining = {g for g in state.live if state.groups[g].state is GroupState.JOINING}
    members = [s for s in state.suspicions if s.group not in joining]
    named = {g for s in members for g in s.unreachable}
    found = [(g, "it could not join: the others waited for it in vain") for g in sorted(joining & named)]
    if not found and count >= 2:
        for s in state.suspicions:
            if s.group in joining and s.unreachable and not s.unreachable & named:
                found.append((s.group, f"it could not join, the second time running: {s.error}"))
    if not found and count >= _IN_VAIN:
        found = [(g, f"it could not join: {count} failures running, as long as it was to") for g in sorted(joining)]
    return found


def _replan(turn: Turn, fruitless: int) -> None:
    """The next urgent plan: without the dead and without who can wait no longer, else with the same members."""
    state = turn.state
    old, losses, suspicions = state.plan, state.losses, state.suspicions
    assert old is not None
    stop = bool(halt.stopped(state))  # the others can commit that step, too, and must not go beyond it
    if not state.live and stop:
        turn.set(losses=(), suspicions=(), probe=None)
        turn.do(*(DeleteGroup(loss.group, loss.uid) for loss in losses))
        return
    if wiped_out(state) and not stop:
        if not halt.cut_short(turn, f"wipe-out while the job was to stop: {_cause(losses, ())}"):
            wipe_out(turn, _cause(losses, ()))
        return
    going = () if stop else leave.must_go(state)
    if too_few(turn, _cause(losses, suspicions, going), going):
        return
    gone = {each.group for each in going}
    leader = _leader(state, gone)
    if leader is None:
        return  # this coordinator has just come back; where they can be met the members will say at once
    live = tuple(g for g in state.live if g not in gone)
    cause = _cause(losses, suspicions, going or tuple(each for each in state.leavers if leave.offers(state, each)))
    able = [g for g in state.whole if g not in gone]
    change = None if wiped_out(state, sorted(gone)) else reordered(turn.config, old.schedule, live, able)
    schedule = change.schedule if change else old.schedule  # of no use to who stops
    what = change.reason if change and change.left else "the same groups meet again"
    if change and change.left and {loss.group for loss in losses} >= set(change.left):
        what = change.reason.partition(": ")[2]  # who is lost the cause says already
    reason = f"{cause}: {what}"
    if poison.unanswered(state):
        reason += f"; {poison.names(poison.unanswered(state))} left out of the sum"
    epoch = old.epoch + 1
    plan = Plan(
        job=old.job,
        epoch=epoch,
        base=epoch,
        members=tuple(m for m in old.members if m.group in live),
        leader=leader,
        stores=state.groups[leader].stores,
        schedule=schedule,
        reason=reason,
        origin=old.origin,
        skipped=poison.to_skip(state),
        writer=writer_of(state, live),
        checkpoint=old.checkpoint,
        leaving=leave.parting(state, going, True, schedule.loads),
        halt=stop,
    )
    _adopt(turn, plan, fruitless)
    leave.released(turn, going, plan)
    removed = tuple((loss.group, loss.uid) for loss in losses)
    turn.do(PushPlan(plan, leave.targets(plan) + removed))
    turn.do(*(DeleteGroup(group, uid) for group, uid in removed))
    lost = tuple(sorted(loss.group for loss in losses))
    if losses:
        turn.say(EventReason.GROUP_LOST, cause, lost)
    turn.say(EventReason.REORDERED, f"plan {epoch}: {reason}", lost)
    signs = [loss.sign for loss in losses] + [s.at for s in suspicions]
    recovery.opened(turn, lost or tuple(sorted(gone)), min(signs, default=turn.now), reason)


def _leader(state: State, gone: Collection[int]) -> int | None:
    """The lowest member with state that nobody could not reach; the lowest of all if there is none. None: of nobody it
    is known where to meet."""
    known = [g for g in state.whole if state.groups[g].stores and g not in gone]
    reached = [g for g in known if g not in _named(state)]
    return min(reached or known, default=None)


def _adopt(turn: Turn, plan: Plan, fruitless: int) -> None:
    """Make a plan the present one: what it answers is forgotten, who was done is at work again."""
    lost = sum(loss.joined for loss in turn.state.losses)
    turn.set(
        plan=plan,
        losses=(),
        suspicions=(),
        probe=None,
        fruitless=fruitless,
        masked=turn.state.masked + lost,
        stalled=False,
        waiting=None,
    )
    for group in plan.groups:
        joining = turn.group(group).state is GroupState.JOINING
        turn.move(group, GroupState.JOINING if joining else GroupState.ACTIVE)
        turn.put_ranks(group, done=None)
    if len(plan.members) < turn.config.groups:
        turn.move_job(JobState.DEGRADED)
    elif turn.state.job is JobState.WAITING:
        turn.move_job(JobState.RUNNING)


def _cause(losses: Sequence[Loss], suspicions: Sequence[Suspicion], going: Sequence[Leaver] = ()) -> str:
    """What happened, one clause for each cause: "group 2 lost (worker killed by signal 9)"."""
    if going and not losses:
        return f"{leave.names(going)} before the step's end"
    if not losses and not suspicions:
        return "a micro-batch was found to be poison"
    if not losses:
        errors = sorted({s.error for s in suspicions})
        by = called({s.group for s in suspicions})
        return f"a collective failed, reported by {by} ({'; '.join(errors[:_SHOWN])})"
    by_cause: dict[str, list[int]] = {}
    for loss in sorted(losses, key=lambda loss: loss.group):
        by_cause.setdefault(loss.cause, []).append(loss.group)
    return ", ".join(f"{called(groups)} lost ({cause})" for cause, groups in by_cause.items())
