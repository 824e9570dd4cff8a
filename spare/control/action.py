"""What `decide` asks for, as values. The coordinator executes them in order."""

from __future__ import annotations

from dataclasses import dataclass

from spare.control.plan import Plan


@dataclass(frozen=True)
class CreateGroup:
    """Let the backend start the agents of all pods of the group, under one fresh uid. Numbers from spec.groups on are
    spares'."""

    group: int


@dataclass(frozen=True)
class DeleteGroup:
    """Let the backend end that incarnation with all its processes, and drop the connection to it."""

    group: int
    uid: str


@dataclass(frozen=True)
class TakeOver:
    """That incarnation, which waits as a spare, has the group's number from now on; any other start of the group that
    is under way is overtaken by it."""

    group: int
    spare: int
    """The number that it was started with, from spec.groups on."""
    uid: str


@dataclass(frozen=True)
class LetGo:
    """That incarnation leaves by itself: its number may be given to another beside it."""

    group: int
    uid: str


@dataclass(frozen=True)
class SendDrain:
    """Tell that agent that it is to leave within `grace` seconds (None: its own grace)."""

    group: int
    uid: str
    grace: float | None


@dataclass(frozen=True)
class Connect:
    """Dial the agent of that pod and stay connected; a connection to an earlier incarnation of it ends."""

    group: int
    uid: str
    address: str
    pod: int = 0


@dataclass(frozen=True)
class SendAssemble:
    """Tell the agents of these pods of a group where its ranks meet (`wire.Assemble`)."""

    group: int
    pods: tuple[int, ...]
    home: str
    master: str


@dataclass(frozen=True)
class PushPlan:
    """Record the plan, then tell all agents of these groups their parts of it, all at once."""

    plan: Plan
    to: tuple[tuple[int, str], ...]
    """(group, uid): the members, and who has just been removed, so that it stops."""


@dataclass(frozen=True)
class ProbeAll:
    """Ask all agents of these groups for a sign of life now."""

    nonce: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class SendFinish:
    """Tell all agents of these groups that every member has committed the last step."""

    groups: tuple[int, ...]


@dataclass(frozen=True)
class SendSave:
    """Give this group the standing order to write checkpoints (`wire.Save`)."""

    group: int
    due: float
    """Seconds from now."""
    period: float


@dataclass(frozen=True)
class SendRenew:
    """Let the agents of these groups start their workers again (`wire.Renew`)."""

    groups: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class SendStop:
    """Tell every agent to end now."""

    reason: str


@dataclass(frozen=True)
class Announce:
    """Something worth telling people. `reason` is a name of `spare.api.reasons`."""

    reason: str
    text: str
    groups: tuple[int, ...] = ()


@dataclass(frozen=True)
class EndJob:
    """The job is over. Nothing follows."""

    code: int
    """Of `spare.api.exit_codes`."""
    verdict: str


Orders = PushPlan | SendAssemble | ProbeAll | SendDrain | SendFinish | SendSave | SendRenew | SendStop
"""What goes to agents."""
Action = CreateGroup | DeleteGroup | TakeOver | LetGo | Connect | Orders | Announce | EndJob
