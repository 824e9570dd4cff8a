"""Drives `decide` by hand: one job, a clock that only the test moves, and words for what agents say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from spare.api import wire
from spare.control.action import EndJob, PushPlan
from spare.control.config import Config
from spare.control.decide import Decision, begin, decide
from spare.control.plan import Plan
from spare.control.signal import AgentUp, Report, Signal, Tick
from spare.control.state import State

JOB = "job/1"
CONFIG = Config(JOB, groups=4, replace=False, redundancy=3, micro_batches=8)

A = TypeVar("A")


class Drive:
    """A job, started or not. Every decision is kept."""

    def __init__(self, config: Config = CONFIG, now: float = 100.0) -> None:
        self.now = now
        self.config = config
        self.decisions: list[Decision] = [begin(config, now)]
        self.uids = {g: f"u{g}" for g in range(config.numbers)}

    @property
    def state(self) -> State:
        return self.decisions[-1].state

    @property
    def plan(self) -> Plan:
        assert self.state.plan is not None
        return self.state.plan

    def do(self, *signals: Signal, after: float = 0.0) -> Decision:
        """What comes of signals that wait at one moment."""
        self.now += after
        self.decisions.append(decide(self.state, signals, self.now))
        return self.decisions[-1]

    def all(self, cls: type[A]) -> list[A]:
        """Every action of a kind, so far."""
        return [a for decision in self.decisions for a in decision.actions if isinstance(a, cls)]

    @property
    def plans(self) -> list[Plan]:
        return [push.plan for push in self.all(PushPlan)]

    @property
    def end(self) -> EndJob | None:
        ends = self.all(EndJob)
        return ends[0] if ends else None

    # --- what agents say --------------------------------------------------------------------------------------

    def say(self, cls: type[wire.Up], group: int, **fields: Any) -> Report:
        """A report of the group's present incarnation, in the present epoch; of rank 0 unless told otherwise."""
        epoch = self.state.plan.epoch if self.state.plan else 0
        pod = fields.get("rank", 0) // self.config.procs
        head = {"job": JOB, "epoch": epoch, "uid": self.uids[group], "group": group, "pod": pod}
        return Report(cls.model_validate({**head, **fields}))

    def up(self, group: int, pod: int = 0) -> AgentUp:
        return AgentUp(group, self.uids[group], f"10.0.{pod}.{group + 1}:7000", pod=pod)

    def hello(self, group: int, rank: int = 0, **fields: Any) -> Report:
        store = f"10.0.{rank // self.config.procs}.{group + 1}:{29500 + rank}"
        return self.say(wire.Hello, group, **{"store": store, "pid": 1000 + 100 * rank + group, "rank": rank, **fields})

    def ranks(self, report: Any, group: int, *more: Any, **fields: Any) -> tuple[Report, ...]:
        """The same report of every rank of a group, such as `drive.ranks(drive.committed, 2, 7)`."""
        return tuple(report(group, *more, rank=rank, **fields) for rank in range(self.config.ranks))

    def alive(self, group: int, **fields: Any) -> Report:
        return self.say(wire.Alive, group, **{"worker": "running", "phase": "compute", **fields})

    def suspect(self, group: int, *unreachable: int, **fields: Any) -> Report:
        what = {"step": self.state.step, "phase": "reduce", "error": "reset by peer", "unreachable": unreachable}
        return self.say(wire.Suspect, group, **{**what, **fields})

    def exited(self, group: int, **fields: Any) -> Report:
        return self.say(wire.Exited, group, **(fields or {"signal": 9}))

    def errored(self, group: int, **fields: Any) -> Report:
        what = {"step": 3, "type": "ValueError", "text": "bad shape", "traceback": "  File train.py, line 7"}
        return self.say(wire.Errored, group, **{**what, **fields})

    def running(self, group: int, **fields: Any) -> Report:
        return self.say(wire.Running, group, **{"step": self.state.step, **fields})

    def committed(self, group: int, step: int, **fields: Any) -> Report:
        return self.say(wire.Committed, group, step=step, **fields)

    def done(self, group: int, digest: str = "d", **fields: Any) -> Report:
        return self.say(wire.Done, group, **{"step": 10, "digest": digest, **fields})

    # --- where a test begins ----------------------------------------------------------------------------------

    def ready(self, *groups: int) -> Decision:
        """These groups (all, if none is named) come up and get ready."""
        names = groups or tuple(range(self.config.groups))
        ups = [self.up(g, pod) for g in names for pod in range(self.config.pods)]
        return self.do(*ups, *(hello for g in names for hello in self.ranks(self.hello, g)))

    def hear(self, *groups: int, after: float = 0.0, **fields: Any) -> Decision:
        """A heartbeat of each of these (of all members) and a tick."""
        beats = [beat for g in groups or self.state.live for beat in self.ranks(self.alive, g, **fields)]
        return self.do(*beats, Tick(), after=after)

    def finish(self) -> Decision:
        """All members commit the last step."""
        return self.do(*(done for g in self.plan.groups for done in self.ranks(self.done, g)))


def started(config: Config = CONFIG, **changes: Any) -> Drive:
    """A job whose first plan is out."""
    drive = Drive(replace(config, **changes))
    drive.ready()
    return drive
