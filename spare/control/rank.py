"""What is known of a group's pods and ranks. A group is what they are together: `spare.control.state.Group`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from spare.api import wire
from spare.control.config import Config


@dataclass(frozen=True)
class Pod:
    """One pod of a group, and the connection to its agent. Times are the coordinator's clock."""

    pod: int
    address: str = ""
    zone: tuple[str, ...] = ()
    heard: float = -math.inf
    """When anything was last heard from it."""
    up: float | None = None
    """Since when its agent is known to run; None before."""
    link_down: float | None = None
    """Since when the connection to it is broken; None while it holds."""
    link_error: str = ""


@dataclass(frozen=True)
class Raised:
    """An exception of the training script of a rank that has siblings: it may have been raised because one died."""

    at: float
    text: str
    type: str
    ours: bool
    inside: bool
    """It is one of a broken connection between ranks: the group is lost, and by this if nothing else is told."""


@dataclass(frozen=True)
class Rank:
    """One worker of a group, as it or its agent last said."""

    rank: int
    store: str = ""
    """Address of its rendezvous store; empty until it is ready."""
    pid: int = 0
    epoch: int = 0
    step: int = 0
    phase: wire.Phase = "starting"
    still: float = 0.0
    worker: str = "none"
    silent_for: float = 0.0
    running: int = 0
    """Newest epoch of which it said that it runs."""
    committed: int = 0
    """The newest step that it reported as committed; heartbeats tell `step`."""
    pace: float = 0.0
    """Seconds that it takes for a micro-batch, smoothed over its last steps."""
    paced: int = 0
    """Steps that are in it."""
    exited: float | None = None
    """When its agent first said that the worker has exited, without the report of how."""
    done: tuple[int, str] | None = None
    """(epoch, parameter digest) of its report that the last step is committed."""
    halted: tuple[int, bool] | None = None
    """(steps, saved) of its report that it has stopped there because a plan said so."""
    raised: Raised | None = None
    """What it said that its script raised, while it may yet turn out to be a consequence of a sibling's death."""
    finished: bool = False
    """After the finish: it has ended, or can no longer be heard of."""


_PHASES: Final[tuple[wire.Phase, ...]] = (
    *("stopped", "failed", "starting", "rendezvous", "compute", "reduce", "load", "barrier", "commit", "done"),
)
"""Phases in the order in which a step passes through them."""


def slowest(ranks: tuple[Rank, ...]) -> Rank:
    """The rank that is furthest behind: a group is as far as this one. Of equals, the one that stands still longest."""
    return min(ranks, key=lambda r: (r.epoch, r.step, _PHASES.index(r.phase), -r.still, r.rank))


def fresh_pods(count: int, heard: float = -math.inf, zones: tuple[tuple[str, ...], ...] = ()) -> tuple[Pod, ...]:
    """Pods of which nothing is known but, where an earlier incarnation told, the zones."""
    return tuple(Pod(pod, heard=heard, zone=zones[pod] if pod < len(zones) else ()) for pod in range(count))


def fresh_ranks(count: int) -> tuple[Rank, ...]:
    """Ranks of which nothing is known."""
    return tuple(Rank(rank) for rank in range(count))


def unknown(config: Config, message: wire.Up) -> str | None:
    """Why the job has no such group, spare, pod or rank as a report is of; None if it has."""
    if message.group >= config.numbers:
        return f"the job has groups 0 to {config.groups - 1}" + (" and spares" if config.spares else "")
    if message.pod >= config.pods or message.rank // config.procs != message.pod:
        return f"pod {message.pod}, rank {message.rank}: a group has {config.pods} pods of {config.procs} ranks"
    return None
