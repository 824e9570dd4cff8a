"""What `decide` asks for, as values. The coordinator executes them in order."""

from __future__ import annotations

from dataclasses import dataclass

from spare.control.plan import Plan


@dataclass(frozen=True)
class CreateGroup:
    """Let the backend start an agent for the group, under a fresh uid."""

    group: int


@dataclass(frozen=True)
class DeleteGroup:
    """Let the backend end that incarnation with all its processes, and drop the connection to it."""

    group: int
    uid: str


@dataclass(frozen=True)
class Connect:
    """Dial that agent and stay connected; a connection to an earlier incarnation of the group ends."""

    group: int
    uid: str
    address: str


@dataclass(frozen=True)
class PushPlan:
    """Record the plan, then tell these agents their parts of it, all at once."""

    plan: Plan
    to: tuple[tuple[int, str], ...]
    """(group, uid): the members, and who has just been removed, so that it stops."""


@dataclass(frozen=True)
class ProbeAll:
    """Ask these agents for a sign of life now."""

    nonce: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class SendFinish:
    """Tell these agents that every member has committed the last step."""

    groups: tuple[int, ...]


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


Action = CreateGroup | DeleteGroup | Connect | PushPlan | ProbeAll | SendFinish | SendStop | Announce | EndJob
