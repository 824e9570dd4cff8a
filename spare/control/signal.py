"""What can happen to a job, as values. Backends and connections turn events into these; `decide` is the only reader.

Reports of agents are the wire messages themselves (`Report`); everything else is a signal of its own. Signals may come
late, twice or in any order: each names the incarnation (`uid`) that it is about, so that one about a replaced agent
changes nothing (field cases F24, F25).
"""

from __future__ import annotations

from dataclasses import dataclass

from spare.api import wire


@dataclass(frozen=True)
class AgentUp:
    """The backend has started the agent of one of a group's pods; it listens at `address` (host:port)."""

    group: int
    uid: str
    address: str
    zone: tuple[str, ...] = ()
    """(zone, rack, node) where the backend knows it."""
    pod: int = 0


@dataclass(frozen=True)
class AgentGone:
    """The backend knows for sure that the agent's process (pod) has ended or been deleted: the group is lost."""

    group: int
    uid: str
    reason: str
    pod: int = 0
    in_order: bool | None = False
    """Whether it ended with 0, as who has stopped or left does; None: nobody saw how it ended, for no coordinator was
    there."""
    outside: bool = False
    """Whether it was ended from outside: deleted, evicted, lost with its node."""


@dataclass(frozen=True)
class AgentNotStarted:
    """The backend could not start a pod of a group (command not found, quota, image)."""

    group: int
    reason: str
    pod: int = 0
    outside: bool = False
    """As in `AgentGone`."""


@dataclass(frozen=True)
class LinkDown:
    """The connection to an agent broke or was refused. Not a death: the agent may be there and be dialled again."""

    group: int
    uid: str
    error: str
    pod: int = 0


@dataclass(frozen=True)
class Report:
    """A message from an agent or, through it, its worker. Already of this job; uid not yet compared."""

    message: wire.Up


@dataclass(frozen=True)
class Tick:
    """Time has passed. Deadlines are looked at; everything is read again."""


@dataclass(frozen=True)
class StoodStill:
    """The coordinator itself did not run for so long (stopped, or its machine was): others may have stood with it."""

    seconds: float


@dataclass(frozen=True)
class Interrupted:
    """The user asked to end the job at once (Ctrl-C)."""

    reason: str


@dataclass(frozen=True)
class Suspend:
    """Stop after the step in flight, save it, and be ready to go on from there (SIGTERM, `runPolicy.suspend`)."""

    reason: str
    grace: float
    """Seconds after which the job is ended wherever it is."""


@dataclass(frozen=True)
class Allow:
    """`runPolicy.backoffLimit` was edited: it counts from the next wipe-out on."""

    restarts: int


@dataclass(frozen=True)
class DrainGroup:
    """Somebody asks for a group to leave (`spare drain`, a node that is to be emptied)."""

    group: int
    reason: str
    grace: float | None = None
    """Seconds until it must have left; None: what its agent was started with."""
    again: bool = True
    """Start another incarnation in its place."""
    uid: str = ""
    """Which incarnation is meant; empty: the present one, whichever that is."""


@dataclass(frozen=True)
class Pushed:
    """Every agent that a plan was pushed to has been told, as far as its connection took it."""

    epoch: int


@dataclass(frozen=True)
class Refused:
    """Something on the connection to a group's agent was no message for us, or came without the job's token."""

    group: int
    why: str


Signal = (
    AgentUp
    | AgentGone
    | AgentNotStarted
    | LinkDown
    | Report
    | Tick
    | StoodStill
    | Interrupted
    | Suspend
    | Allow
    | DrainGroup
    | Pushed
    | Refused
)
