"""Whatever happens in whatever order: no two plans with one number, no dead or unknown member, one end."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spare.api import wire
from spare.control.action import CreateGroup, EndJob, PushPlan
from spare.control.config import Config
from spare.control.decide import Decision, begin, decide
from spare.control.plan import Plan
from spare.control.signal import (
    AgentGone,
    AgentNotStarted,
    AgentUp,
    DrainGroup,
    Interrupted,
    LinkDown,
    Pushed,
    Refused,
    Report,
    Signal,
    Suspend,
    Tick,
)
from spare.control.state import GroupState, JobState
from spare.control.turn import changed
from spare.planner import check
from tests.control.drive import started

JOB = "job/1"
GROUPS = 5
COMMITTED = (GroupState.ACTIVE, GroupState.DONE)
CONFIG = Config(JOB, groups=GROUPS, replace=False, redundancy=3, micro_batches=4, hang_after=20.0, start_timeout=50.0)

groups = st.integers(0, GROUPS - 1)
epochs = st.integers(0, 6)
steps = st.integers(0, 12)
uids = st.sampled_from("abc")
phases = st.sampled_from(["starting", "rendezvous", "compute", "reduce", "barrier", "load", "failed", "done"])
named = st.lists(groups, max_size=3, unique=True).map(tuple)


def report(kind: type[wire.Up], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Signal]:
    """Reports of a kind, of any group, incarnation and epoch."""

    def build(group: int, uid: str, epoch: int, values: dict[str, Any]) -> Signal:
        return Report(
            kind.model_validate({"job": JOB, "group": group, "uid": f"{uid}{group}", "epoch": epoch, **values})
        )

    return st.builds(build, groups, uids, epochs, st.fixed_dictionaries(fields))


def of_backend(kind: Any, *more: Any) -> st.SearchStrategy[Signal]:
    """Signals of a kind about any incarnation of any group."""
    return st.builds(lambda group, uid: kind(group, f"{uid}{group}", *more), groups, uids)


signals: st.SearchStrategy[Signal] = st.one_of(
    of_backend(AgentUp, "10.0.0.1:7000"),
    of_backend(AgentGone, "gone"),
    of_backend(LinkDown, "reset"),
    st.builds(AgentNotStarted, groups, st.just("quota")),
    st.builds(Pushed, epochs),
    st.builds(Refused, groups, st.just("no message")),
    st.just(Tick()),
    report(wire.Hello, store=st.sampled_from([None, "10.0.0.1:29500"]), step=steps),
    report(wire.Hello, store=st.just("10.0.0.1:29500"), step=steps),
    report(
        wire.Alive,
        worker=st.sampled_from(["none", "running", "silent", "exited"]),
        silent_for=st.sampled_from([0.0, 9.0]),
        nonce=st.none() | st.integers(1, 4),
        phase=phases,
        step=steps,
        still=st.sampled_from([0.0, 30.0]),
    ),
    report(wire.Running, step=steps),
    report(wire.Committed, step=steps),
    report(wire.Suspect, step=steps, phase=phases, error=st.just("reset"), unreachable=named),
    report(wire.Exited, signal=st.sampled_from([9, 11])),
    report(wire.Done, step=steps, digest=st.just("d")),
    report(wire.Refusal, what=st.just("plan"), reason=st.just("older")),
    report(
        wire.Leave,
        grace=st.sampled_from([0.0, 3.0, 30.0]),
        reason=st.just("SIGTERM"),
        serves=st.sampled_from([None, None, "10.0.0.1:40000"]),
    ),
    report(wire.Left, step=steps),
    st.builds(DrainGroup, groups, st.just("by hand"), st.sampled_from([None, 5.0]), st.booleans()),
)
ends: st.SearchStrategy[Signal] = st.one_of(
    report(wire.Errored, step=steps, type=st.just("ValueError"), text=st.just("bad")),
    report(wire.Exited, code=st.sampled_from([0, 1, 137])),
    report(wire.Done, step=steps, digest=st.sampled_from("de")),
    st.just(Interrupted("enough")),
    st.just(Suspend("enough", 10.0)),
    report(wire.Halted, step=steps, saved=st.booleans()),
)
batches = st.lists(
    st.tuples(
        st.lists(st.one_of(*[signals] * 12, ends), max_size=4), st.sampled_from([0.0, 0.0, 0.01, 0.5, 1.5, 6.0, 30.0])
    ),
    max_size=60,
)


def rising(config: Config = CONFIG) -> Decision:
    """A job at the moment of its first plan."""
    first = begin(config, 0.0)
    up: list[Signal] = [AgentUp(g, f"a{g}", "10.0.0.1:7000") for g in range(GROUPS)]
    head = {"job": JOB, "epoch": 0, "store": "10.0.0.1:29500"}
    hellos: list[Signal] = [
        Report(wire.Hello.model_validate({**head, "group": g, "uid": f"a{g}"})) for g in range(GROUPS)
    ]
    return decide(first.state, up + hellos, 0.0)


def play(first: Decision, script: list[tuple[list[Signal], float]]) -> list[Decision]:
    """Every decision of a job under a script."""
    decisions, now = [first], 0.0
    for batch, pause in script:
        now += pause
        decisions.append(decide(decisions[-1].state, batch, now))
    return decisions


def judge(decisions: list[Decision]) -> None:
    """The rules that hold for every job whatever happens to it."""
    by_epoch: dict[int, Plan] = {}
    newest, masked = (decisions[0].state.plan.epoch if decisions[0].state.plan else 0), 0
    ends = [a for d in decisions for a in d.actions if isinstance(a, EndJob)]
    assert len(ends) <= 1
    for before, after in pairwise(decisions):
        state = after.state
        for action in after.actions:
            if isinstance(action, PushPlan):
                plan = action.plan
                assert by_epoch.setdefault(plan.epoch, plan).digest == plan.digest
                assert plan.epoch >= newest
                if plan.epoch > newest:
                    assert plan.epoch == newest + 1
                    old = before.state.plan
                    assert plan.base == plan.epoch or (old is not None and plan.base == old.base)
                    newest = plan.epoch
                    judge_plan(plan, after, before)
        if state.plan is not None and before.state.plan is not None and not state.ended:
            gone = {m.uid for m in before.state.plan.members if before.state.groups[m.group].state in COMMITTED} - {
                m.uid for m in state.plan.members
            }
            masked += len(gone)
            leaving = sum(each.released is not None and not each.left for each in state.leavers)
            leaving += sum(here.halted is not None for here in state.groups)
            assert state.masked <= masked <= state.masked + state.drained + leaving
        assert state.masked >= before.state.masked
        assert state.refused >= before.state.refused
        assert state.losses == () or state.ended, "every loss is answered in the turn in which it is known"
        if before.state.ended:
            assert after.actions == ()
            assert state == before.state
        if state.job is JobState.COMPLETE:
            assert state.exit_code == 0


def judge_plan(plan: Plan, after: Decision, before: Decision) -> None:
    """One new plan: valid for the planner's judge, led by a member, of living members only, without newcomers."""
    state = after.state
    assert not check(plan.schedule)
    assert plan.schedule.live == plan.groups == tuple(sorted(set(plan.groups)))
    assert plan.leader in plan.groups
    for member in plan.members:
        here = state.groups[member.group]
        assert here.uid == member.uid
        assert member.uid not in here.past
        assert member.admission == 1 or 1 < member.admission <= plan.epoch
        assert wire.read(plan.part_for(member.group, member.uid).line())
    old = before.state.plan
    if old is not None:
        fresh = {(m.group, m.uid) for m in plan.members} - {(m.group, m.uid) for m in old.members}
        admitted = {(m.group, m.uid) for m in plan.members if m.admission == plan.epoch}
        assert fresh == admitted
        assert not fresh or plan.base == old.base, "who joins comes by a boundary plan"
        assert state.groups[plan.leader].state is not GroupState.JOINING


@settings(max_examples=200, deadline=None)
@given(batches)
def test_a_running_job_keeps_the_rules(script: list[tuple[list[Signal], float]]) -> None:
    """From the first plan on: epochs grow by one, members live, masked counts each group once."""
    judge(play(rising(), script))


@settings(max_examples=200, deadline=None)
@given(batches)
def test_a_job_whose_groups_come_back_keeps_the_rules(script: list[tuple[list[Signal], float]]) -> None:
    """Newcomers are admitted by boundary plans only, and never lead before they have committed."""
    judge(play(rising(replace(CONFIG, replace=True)), script))


@settings(max_examples=50, deadline=None)
@given(batches)
def test_a_starting_job_keeps_the_rules(script: list[tuple[list[Signal], float]]) -> None:
    """From nothing on, and no group is started more often than allowed."""
    decisions = play(begin(CONFIG, 0.0), script)
    judge(decisions)
    created = [a.group for d in decisions for a in d.actions if isinstance(a, CreateGroup)]

    assert all(created.count(g) <= CONFIG.create_limit for g in range(GROUPS))


@settings(max_examples=50, deadline=None)
@given(batches)
def test_decisions_are_a_function_of_their_arguments(script: list[tuple[list[Signal], float]]) -> None:
    """Told the same twice, the same is decided, byte for byte."""
    first, second = play(rising(), script), play(rising(), script)

    assert [d.actions for d in first] == [d.actions for d in second]


def test_when_all_but_those_who_have_stopped_die_in_a_halt_there_is_no_plan_of_nobody() -> None:
    """Found by the properties below: one has stopped after its step, and the others are lost in the same moment."""
    head = {"job": JOB, "epoch": 1, "group": 1, "uid": "a1"}
    lost = [AgentGone(group, f"a{group}", "its node died") for group in range(GROUPS) if group != 1]
    stopped = Report(wire.Halted.model_validate({**head, "step": 0, "saved": False}))
    last = play(rising(), [([Suspend("enough", 10.0), *lost, stopped], 6.0), ([Tick()], 1.0)])[-1]

    assert last.state.live == ()


def test_a_group_that_is_done_may_leave_before_the_others_are() -> None:
    """Found by the properties: its last step is committed, its node is drained, and it can wait no longer."""
    head = {"job": JOB, "group": 0, "uid": "a0"}
    done = Report(wire.Done.model_validate({**head, "epoch": 1, "step": 0, "digest": "d"}))
    leaves = {**head, "epoch": 1, "grace": 0.0, "reason": "SIGTERM", "serves": "10.0.0.1:40000"}
    last = play(rising(), [([done, Report(wire.Leave.model_validate(leaves))], 0.0), ([Tick()], 1.0)])[-1]

    assert 0 not in last.state.live


@settings(max_examples=50, deadline=None)
@given(batches)
def test_a_tick_right_after_a_decision_decides_nothing_more(script: list[tuple[list[Signal], float]]) -> None:
    """What follows from the facts is done in the turn in which they are known, or with a tick: once (F04)."""
    now = sum(pause for _, pause in script)
    last = play(rising(), script)[-1]
    signals = script[-1][0] if script else []
    if not all(isinstance(s, Report) and isinstance(s.message, wire.Alive | wire.Committed) for s in signals):
        assert decide(last.state, (Tick(),), now).actions == ()
    first = decide(last.state, (Tick(),), now)
    again = decide(first.state, (Tick(),), now)

    assert again.actions == ()


def test_what_all_say_all_the_time_is_noted_at_once_and_looked_at_with_the_tick() -> None:
    """A heartbeat that shows a group hanging, while others wait: with a thousand groups nobody looks at each."""
    drive = started(hang_after=6.0)
    waiting = [drive.alive(g, phase="reduce", still=6.5) for g in (0, 2, 3)]
    drive.do(*waiting, drive.alive(1, still=16.0), after=0.5)
    noted = drive.state.groups[1].still
    assert (noted, drive.plan.epoch) == (16.0, 1)

    drive.do(Tick())

    assert drive.plan.groups == (0, 2, 3)


def test_changing_a_field_is_what_dataclasses_call_replace() -> None:
    """Fields that there are not are refused; the value itself stays as it is."""
    drive = started()
    here = drive.state.groups[0]
    values: tuple[Any, ...] = (drive.state, here, here.pods[0], here.ranks[0])
    for value in values:
        first = fields(value)[0].name
        before = replace(value)

        assert changed(value, **{first: None}) == replace(value, **{first: None})
        assert value == before
        with pytest.raises(TypeError, match="has no nonsense"):
            changed(value, nonsense=1)
