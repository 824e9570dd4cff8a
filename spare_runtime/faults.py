"""Scripted failures, carried out by the worker on itself: the only way to hit a chosen point of a chosen step.

Points: `compute` (half of the group's micro-batches of the step computed), `reduce` (its part of the all-reduce is
under way), `barrier` (it holds the whole sum, and its commit barrier is under way), `step` (the barrier has passed,
the optimizer has not stepped), `regroup` (it has said its facts in the rendezvous of that step), `give` (it has just
begun to give its state to a joiner), `save` (it has just begun to write a checkpoint of so many steps), `inherit` (it
has what another group hands on, and has not added it yet).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from dataclasses import dataclass

from spare_runtime.config import BadEnvironment
from spare_runtime.ledger import Ledger

ACTIONS = ("kill", "kill-group", "freeze", "pause", "drain", "raise")
POINTS = ("compute", "reduce", "barrier", "step", "regroup", "give", "save", "inherit")
_SCRIPT = re.compile(
    r"(?P<action>[a-z-]+)(\.(?P<rank>\d+))?@(?P<step>\d+):(?P<point>[a-z]+)(=(?P<seconds>\d+(\.\d+)?))?", re.ASCII
)


class ScriptedFailure(RuntimeError):
    """What the action `raise` raises inside the training script's own step."""


@dataclass(frozen=True)
class Fault:
    """One scripted failure."""

    action: str
    step: int
    point: str
    seconds: float
    rank: int = 0
    """Of the group's ranks, the one that it happens to."""


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Read `ACTION[.RANK]@STEP:POINT[=SECONDS]`, separated by commas.

    Raises:
        BadEnvironment: naming the part that cannot be read.
    """
    faults = []
    for part in filter(None, text.split(",")):
        match = _SCRIPT.fullmatch(part)
        if match is None or match["action"] not in ACTIONS or match["point"] not in POINTS:
            raise BadEnvironment(
                f"SPARE_FAULTS={part!r}: ACTION[.RANK]@STEP:POINT[=SECONDS] with an action of {', '.join(ACTIONS)} and "
                f"a point of {', '.join(POINTS)} is needed"
            )
        step, seconds, rank = int(match["step"]), float(match["seconds"] or 2.0), int(match["rank"] or 0)
        faults.append(Fault(match["action"], step, match["point"], seconds, rank))
    return tuple(faults)


class Faults:
    """The scripted failures of one rank of this group. Each happens once."""

    def __init__(self, text: str, ledger: Ledger, agent_pid: int, rank: int = 0) -> None:
        self._left = [fault for fault in parse_faults(text) if fault.rank == rank]
        self._ledger, self._agent = ledger, agent_pid

    def at(self, step: int, point: str) -> None:
        """Do what the script says for this step and point; mostly nothing."""
        for fault in [f for f in self._left if (f.step, f.point) == (step, point)]:
            self._left.remove(fault)
            self._ledger.fault(fault.action, step, point)
            self._do(fault)

    def _do(self, fault: Fault) -> None:
        me = os.getpid()
        if fault.action == "raise":
            raise ScriptedFailure(f"scripted failure in step {fault.step}, point {fault.point}")
        if fault.action == "kill":
            os.kill(me, signal.SIGKILL)
        elif fault.action == "kill-group":
            os.kill(self._agent, signal.SIGKILL)
            os.kill(me, signal.SIGKILL)
        elif fault.action == "drain":
            os.kill(self._agent, signal.SIGTERM)
        elif fault.action == "freeze":
            os.kill(me, signal.SIGSTOP)
        else:  # somebody else must wake a stopped process up
            wake = f"sleep {fault.seconds}; kill -CONT {me}"
            subprocess.Popen(["sh", "-c", wake], start_new_session=True)
            os.kill(me, signal.SIGSTOP)
