"""What one can see of a running job: snapshots and events. Terminal view, plain lines and JSON are made from these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class GroupSnapshot:
    """One group at one moment."""

    group: int
    state: str
    """starting, ready, active, lost, done: `spare.control.state.GroupState`."""
    stack: tuple[int, ...]
    """Shards that it hosts."""
    load: int
    """Micro-batches that it computes in a step by the present plan."""
    step: int
    phase: str
    """As in `spare.api.wire.Phase`."""
    still: float
    """Seconds without progress, as its agent last said."""
    pid: int
    """Process of its first worker."""
    pids: tuple[int, ...] = ()
    """Processes of all its workers, by rank; 0 where one is not known."""
    reason: str = ""
    """Why it is lost, where it is."""
    pace: float = 0.0
    """Seconds that it takes for a micro-batch, lately; 0 where that is not known."""
    lag: float = 0.0
    """Of a straggler: its pace as a multiple of the median's; 0 of all others."""


@dataclass(frozen=True)
class SpareSnapshot:
    """One spare at one moment."""

    spare: int
    """From 0."""
    state: str
    """starting, ready, lost: as of a group."""
    pids: tuple[int, ...] = ()
    """Processes of all its workers, by rank; 0 where one is not known."""
    reason: str = ""
    """Why it is not there."""


@dataclass(frozen=True)
class Recovery:
    """One answered failure. Seconds; -1 where a part was not seen.

    detect: from the first sign of the failure at the coordinator until the loss was decided; restart: after a wipe-out,
    until all groups were there to begin again, else 0; plan: until the new plan was pushed to everybody; regroup: until
    every survivor said it runs; patch: until the first commit; total: all.
    """

    groups: tuple[int, ...]
    """Groups lost; empty when a failure was answered without one."""
    step: int
    """Step that was in flight."""
    epoch: int
    detect: float
    plan: float
    regroup: float
    patch: float
    total: float
    decided_at: float
    """Wall clock (seconds since 1970) of the decision on the plan."""
    reason: str
    restart: float = 0.0


@dataclass(frozen=True)
class Snapshot:
    """The whole job at one moment."""

    job: str
    state: str
    """pending, running, degraded, complete, failed: `spare.control.state.JobState`."""
    epoch: int
    step: int
    """Steps committed by whoever is furthest: what one commits, all who go on commit. The loss is of this step."""
    depth: float
    loss: float | None
    groups: tuple[GroupSnapshot, ...]
    masked: int
    """Groups lost while the job went on."""
    restarts: int
    """Times that all groups began again from a checkpoint."""
    checkpoint: str | None
    """The newest complete one that is known."""
    refused: int
    """Messages of another epoch or incarnation, or without the token, that were not acted on."""
    stalled: bool
    """No group has made progress for spec.detection.hangAfter."""
    plan_reason: str
    recoveries: tuple[Recovery, ...]
    exit_code: int | None
    """Set once the job has ended: `spare.api.exit_codes`."""
    verdict: str
    """Why it ended, with the text of the user's exception where there is one."""
    digest: str | None
    """SHA-256 over all parameters, when every member reported the same one."""
    spares: tuple[SpareSnapshot, ...] = ()
    spares_used: int = 0
    """Places of groups that spares have taken."""


@dataclass(frozen=True)
class Event:
    """Something worth telling: a loss, a plan, the end. `reason` is a `spare.api.reasons` name."""

    at: float
    """Wall clock, seconds since 1970."""
    reason: str
    text: str
    groups: tuple[int, ...] = ()


class Observer(Protocol):
    """Told of every event at once, and of the state at most every so often. Must return quickly."""

    def event(self, event: Event) -> None:
        """Something happened."""

    def state(self, snapshot: Snapshot) -> None:
        """The state changed (called after each pass that changed anything)."""
