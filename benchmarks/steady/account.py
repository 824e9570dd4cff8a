"""Where the time of a step goes, phase by phase: `run.py --account`.

The phases are timed from outside, by wrapping the functions that do them: the program itself has no clocks in it, and a
step takes some microseconds more here than without. A phase's time is without that of the phases inside of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import spare_runtime.session
from spare_runtime import Session

DATA, FORWARD, BACKWARD, OPTIMIZER = "data and loss", "forward", "backward", "optimizer"
CLEAR, REST, OTHERS = (
    "gradients let go of",
    "all else on the main thread",
    "other threads (gloo, the line to the agent)",
)
AGENT, COORDINATOR = "the agent", "the coordinator, this group's share"
Phases = dict[str, list[float]]
"""By phase: calls, microseconds of processor time and of wall clock, of one step."""


class Account:
    """What the phases of one kind of step take, on the main thread."""

    def __init__(self) -> None:
        self._spent: dict[str, list[int]] = {}
        self._inner = [[0, 0]]
        self._began: tuple[int, ...] = ()
        self._total: dict[str, list[int]] = {}

    def phase(self, name: str, owner: Any, function: str) -> None:
        """Let every call of `owner.function` count as that phase."""
        setattr(owner, function, self.timed(name, getattr(owner, function)))

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, timed."""

        def counted(*arguments: Any, **more: Any) -> Any:
            self._inner.append([0, 0])
            began = time.thread_time_ns(), time.perf_counter_ns()
            try:
                return call(*arguments, **more)
            finally:
                took = time.thread_time_ns() - began[0], time.perf_counter_ns() - began[1]
                inner, outer = self._inner.pop(), self._inner[-1]
                entry = self._spent.setdefault(name, [0, 0, 0])
                entry[0] += 1
                for i in range(2):
                    entry[i + 1] += took[i] - inner[i]
                    outer[i] += took[i]

        return counted

    def begin(self) -> None:
        """A block of steps begins."""
        self._spent.clear()
        self._began = _clocks()

    def end(self) -> None:
        """It has ended: what it took is added to what earlier ones did."""
        main, wall, threads, agent, coordinator = (b - a for a, b in zip(self._began, _clocks(), strict=True))
        phases = dict(self._spent)
        phases[REST] = [0, *(whole - sum(p[i] for p in phases.values()) for i, whole in ((1, main), (2, wall)))]
        phases |= {OTHERS: [0, threads, 0], AGENT: [0, agent, 0], COORDINATOR: [0, coordinator, 0]}
        for name, spent in phases.items():
            self._total[name] = [a + b for a, b in zip(self._total.get(name, [0, 0, 0]), spent, strict=True)]

    def of_a_step(self, steps: int, groups: int) -> Phases:
        """What one of all these steps took. The coordinator's time is shared out among the groups."""
        found = {}
        for name, (calls, processor, wall) in self._total.items():
            share = groups if name == COORDINATOR else 1
            found[name] = [calls / steps, processor / steps / 1e3 / share, wall / steps / 1e3]
        return found


def _clocks() -> tuple[int, ...]:
    """Nanoseconds: the main thread's, the wall clock, the other threads', the agent's and the coordinator's."""
    agent = os.getppid()
    coordinator = int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])
    main = time.thread_time_ns()
    return main, time.perf_counter_ns(), time.process_time_ns() - main, _ran(agent), _ran(coordinator)


def _ran(pid: int) -> int:
    """Nanoseconds that the threads of a process have run."""
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def of_plain(account: Account, plain: Any, script: Any) -> None:
    """The phases of a step under DistributedDataParallel."""
    account.phase("DDP around the forward", plain.model, "forward")
    account.phase(FORWARD, plain.model.module, "forward")
    account.phase(OPTIMIZER, plain.optimizer, "step")
    account.phase(CLEAR, plain.optimizer, "zero_grad")
    plain.loss_of = account.timed(DATA, script.loss_of)
    plain.backward = account.timed(
        BACKWARD + ", with DDP's hooks, copies and waiting for its all-reduces", plain.backward
    )


def of_session(account: Account, session: Session, model: Any, optimizer: Any) -> None:
    """The phases of a step under a session; to be called inside of it, before the first step."""
    member = session._member
    buffers, meeting = member.training.buffers, member.membership.meeting
    assert meeting is not None
    account.phase(FORWARD, model, "forward")
    account.phase(OPTIMIZER, optimizer, "step")
    account.phase("a micro-batch's random seeds", spare_runtime.session, "seed_all")
    account.phase("seeing that nobody touched the gradients", buffers, "check_attached")
    account.phase("taking note of gradients and loss", buffers, "add_loss")
    account.phase("hooks: begin to watch", buffers, "arm")
    account.phase("hooks: stop watching", buffers, "disarm")
    account.phase("L to W", buffers, "fill")
    if hasattr(buffers, "_look"):
        account.phase("L to W, early", buffers, "_look")
    account.phase("all-reduces: begin", meeting, "_begin")
    account.phase("all-reduces: wait", meeting, "reduce")
    account.phase("barrier", meeting, "barrier")
    account.phase("ledger", member._ledger, "_write")
    account.phase("W to the optimizers", buffers, "apply")
    account.phase(CLEAR, buffers, "clear")
    account.phase("reports of commits", member._commits, "tell")
    account.phase("between two steps", member, "between_steps")
