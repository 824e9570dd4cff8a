"""What is known of a job, as values: its groups, its plan, and what has happened that no plan answers yet."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from spare.api import wire
from spare.control.config import Config
from spare.control.crash import Crash
from spare.control.leaver import Halt, Leaver
from spare.control.plan import Plan
from spare.control.rank import Pod, Rank, slowest
from spare.control.recovered import Recovered, Recovering
from spare.control.saving import LastSaved, Ordered, Restarting, Waiting


class JobState(StrEnum):
    """Where a job is. Complete and failed are final (field case F34); a suspended one is begun anew when it goes on."""

    PENDING = "pending"
    RUNNING = "running"
    DEGRADED = "degraded"
    WAITING = "waiting"
    """For groups: to begin again after a wipe-out, or because there are fewer than `minGroups`."""
    COMPLETE = "complete"
    FAILED = "failed"
    SUSPENDED = "suspended"


class GroupState(StrEnum):
    """Where a group is."""

    STARTING = "starting"
    READY = "ready"
    """Its worker can take a plan, but it is not a member."""
    JOINING = "joining"
    """A member that has not committed a step yet: it may still be loading the training state."""
    ACTIVE = "active"
    DONE = "done"
    """A member that has committed the last step."""
    LOST = "lost"
    LEFT = "left"
    """It was let go because it had been asked to leave."""


_ENDS: Final = (JobState.COMPLETE, JobState.FAILED, JobState.SUSPENDED)
JOB_MOVES: Final[dict[JobState, frozenset[JobState]]] = {
    JobState.PENDING: frozenset({JobState.RUNNING, JobState.DEGRADED, *_ENDS}),
    JobState.RUNNING: frozenset({JobState.DEGRADED, JobState.WAITING, *_ENDS}),
    JobState.DEGRADED: frozenset({JobState.RUNNING, JobState.WAITING, *_ENDS}),
    JobState.WAITING: frozenset({JobState.RUNNING, JobState.DEGRADED, *_ENDS}),
    JobState.COMPLETE: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.SUSPENDED: frozenset(),
}
"""From each state, those that may follow."""

GROUP_MOVES: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.STARTING: frozenset({GroupState.READY, GroupState.LOST, GroupState.STARTING}),
    GroupState.READY: frozenset({GroupState.JOINING, GroupState.ACTIVE, GroupState.LOST, GroupState.STARTING}),
    GroupState.JOINING: frozenset(
        {GroupState.ACTIVE, GroupState.DONE, GroupState.LOST, GroupState.LEFT, GroupState.STARTING}
    ),
    GroupState.ACTIVE: frozenset({GroupState.DONE, GroupState.LOST, GroupState.LEFT, GroupState.STARTING}),
    GroupState.DONE: frozenset({GroupState.ACTIVE, GroupState.LOST, GroupState.LEFT, GroupState.STARTING}),
    GroupState.LOST: frozenset({GroupState.STARTING, GroupState.READY}),  # ready: a spare takes the place
    GroupState.LEFT: frozenset({GroupState.STARTING, GroupState.READY}),
}
"""From each state, those that may follow. STARTING from anywhere: a new incarnation takes the number over."""


@dataclass(frozen=True)
class Group:
    """One group number and its present incarnation: the pods and ranks that live and die together.

    What holds for the group as a whole follows from them: it is ready when all ranks are, as far as the slowest of
    them, and heard when its quietest pod was. Times are the coordinator's clock.
    """

    group: int
    state: GroupState = GroupState.STARTING
    uid: str = ""
    """Present incarnation; empty until one is known."""
    past: tuple[str, ...] = ()
    """Incarnations that were lost or replaced, the newest last: nothing they say counts any more."""
    pods: tuple[Pod, ...] = (Pod(0),)
    ranks: tuple[Rank, ...] = (Rank(0),)
    """Of all pods, in the order of the pods."""
    home: str = ""
    """Where its ranks meet, told by the agent of pod 0; groups of one pod need nobody to tell them."""
    master: str = ""
    started: float = math.inf
    """When its start was last asked for; infinite where that is not known."""
    attempts: int = 0
    """Starts so far since it was last a member that had committed something."""
    excused: int = 0
    """Those of them that were ended from outside, or before all groups were to begin again: no crash loop."""
    retry: float | None = None
    """When it is to be started again."""
    spare: int | None = None
    """Its present incarnation was started as this spare (from 0), and has taken the group's place."""
    reason: str = ""
    """Why it is lost or not there yet."""
    lag: float = 1.0
    """Its pace as a multiple of the median's."""
    slow_since: float | None = None
    well_since: float | None = None
    """Since when it has been much slower than the median, or about as fast; neither in between."""
    straggler: bool = False
    """It has been slow for long, and not well for long since."""

    def outlived(self, uid: str) -> tuple[str, ...]:
        """`past` with this incarnation as its newest; an empty one is none."""
        return (*(each for each in self.past if each != uid), uid) if uid else self.past

    @property
    def failed(self) -> int:
        """Starts that ended by themselves, the present one included: what a crash loop is known by."""
        return self.attempts - self.excused

    @property
    def zone(self) -> tuple[str, ...]:
        """Of its first pod."""
        return self.pods[0].zone

    @property
    def heard(self) -> float:
        """When the quietest of its pods was last heard."""
        return min(pod.heard for pod in self.pods)

    @property
    def link_down(self) -> float | None:
        """Since when a connection to it is broken; None while all hold."""
        return min((pod.link_down for pod in self.pods if pod.link_down is not None), default=None)

    @property
    def stores(self) -> tuple[str, ...]:
        """Addresses of all its ranks' stores, as soon as all are known: then it is ready for a plan."""
        return tuple(rank.store for rank in self.ranks) if all(rank.store for rank in self.ranks) else ()

    @property
    def pid(self) -> int:
        """Process of its first worker."""
        return self.ranks[0].pid

    @property
    def epoch(self) -> int:
        """Of its slowest rank, as `step`, `phase` and `still`."""
        return slowest(self.ranks).epoch

    @property
    def step(self) -> int:
        """Steps committed."""
        return slowest(self.ranks).step

    @property
    def phase(self) -> wire.Phase:
        """Where it is in the step."""
        return slowest(self.ranks).phase

    @property
    def still(self) -> float:
        """Seconds without progress."""
        return slowest(self.ranks).still

    @property
    def silent(self) -> bool:
        """Whether a worker says nothing whose agent still does."""
        return any(rank.worker == "silent" for rank in self.ranks)

    @property
    def silent_for(self) -> float:
        """For how many seconds; 0 when none is."""
        return max((rank.silent_for for rank in self.ranks if rank.worker == "silent"), default=0.0)

    @property
    def pace(self) -> float:
        """Seconds for a micro-batch, of its slowest rank."""
        return max(rank.pace for rank in self.ranks)

    @property
    def running(self) -> int:
        """Newest epoch of which all ranks said that they run."""
        return min(rank.running for rank in self.ranks)

    @property
    def committed(self) -> int:
        """Newest step that all ranks reported as committed."""
        return min(rank.committed for rank in self.ranks)

    @property
    def exited(self) -> float | None:
        """When it was first said that a worker has exited, without the report of how."""
        return min((rank.exited for rank in self.ranks if rank.exited is not None), default=None)

    @property
    def done(self) -> tuple[int, str] | None:
        """(epoch, digest over all ranks' parameters) once every rank has said that the last step is committed."""
        said = [rank.done for rank in self.ranks if rank.done is not None]
        if len(said) < len(self.ranks):
            return None
        digests = [digest for _, digest in said]
        joint = digests[0] if len(said) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
        return min(epoch for epoch, _ in said), joint

    @property
    def halted(self) -> tuple[int, bool] | None:
        """(steps, saved) once every rank has stopped because a plan said so."""
        said = [rank.halted for rank in self.ranks if rank.halted is not None]
        if len(said) < len(self.ranks):
            return None
        return min(step for step, _ in said), all(saved for _, saved in said)

    @property
    def finished(self) -> bool:
        """Whether all ranks have ended after the finish, or can no longer be heard of."""
        return all(rank.finished for rank in self.ranks)


@dataclass(frozen=True)
class Loss:
    """A member found dead, not answered by a plan yet."""

    group: int
    uid: str
    cause: str
    sign: float
    """When the first sign of it was there."""
    joined: bool = True
    """It had committed a step: its loss is one that the job masks, not a failed attempt to join."""


@dataclass(frozen=True)
class Suspicion:
    """A member's report that a collective failed, not answered by a plan yet."""

    group: int
    epoch: int
    error: str
    unreachable: frozenset[int]
    at: float


@dataclass(frozen=True)
class Probe:
    """All agents were asked for a sign of life."""

    nonce: int
    at: float
    answered: frozenset[tuple[str, int]] = frozenset()
    """(incarnation, pod) of the agents that answered."""

    def answered_by(self, here: Group) -> bool:
        """Whether all agents of a group have answered."""
        return all((here.uid, pod.pod) in self.answered for pod in here.pods)


@dataclass(frozen=True)
class UserError:
    """An end that is no failure to mask."""

    group: int
    text: str
    ours: bool = False
    type: str = ""


@dataclass(frozen=True)
class State:
    """Everything that `decide` knows. It changes only by `decide`."""

    config: Config
    groups: tuple[Group, ...]
    """By group number."""
    began: float
    spares: tuple[Group, ...] = ()
    """What waits to take the place of a lost group; the number of the first is that of groups."""
    job: JobState = JobState.PENDING
    plan: Plan | None = None
    losses: tuple[Loss, ...] = ()
    suspicions: tuple[Suspicion, ...] = ()
    errors: tuple[UserError, ...] = ()
    crashes: tuple[Crash, ...] = ()
    """The last ones: should the same micro-batch be in hand twice, it is poison."""
    poison: tuple[tuple[int, int, int], ...] = ()
    """(step, shard, index) of the micro-batches that killed two groups, ascending."""
    interrupted: str | None = None
    leavers: tuple[Leaver, ...] = ()
    """Who was asked to go and has not gone yet, in the order in which they were asked."""
    halt: Halt | None = None
    probe: Probe | None = None
    probes: int = 0
    """Probes so far: the nonce of the last."""
    fruitless: int = 0
    """Failures running that a plan answered without removing anybody, and without a commit in between."""
    proof: float = -math.inf
    """When a commit of the present epoch was last reported: its barrier proves every member alive."""
    grace: float = -math.inf
    """Silence counts from here: before it, our own network was away, or we stood still."""
    woke: float = -math.inf
    """When the coordinator itself went on after it had stood still: others may have stood as long."""
    blind: frozenset[int] = frozenset()
    """Who was not heard when most were not heard."""
    blind_since: float | None = None
    """Since when that is so."""
    stalled: bool = False
    judged: float = -math.inf
    """When the paces of the groups were last compared."""
    drifting: float | None = None
    """Since when a straggler's speed has been far from that which its share was made for."""
    finishing: bool = False
    step: int = 0
    """The newest step that anybody reported as committed."""
    loss: float | None = None
    masked: int = 0
    taken: int = 0
    """Places of groups that spares have taken."""
    drained: int = 0
    """Groups that left because they were asked to."""
    restarts: int = 0
    """From a checkpoint."""
    losses_seen: int = 0
    """Groups lost so far, masked or not: how often to expect one."""
    restarting: Restarting | None = None
    waiting: Waiting | None = None
    checkpoints: tuple[str, ...] = ()
    """The newest complete ones, newest first."""
    damaged: frozenset[str] = frozenset()
    """Those of them that somebody could not read."""
    saved: LastSaved | None = None
    ordered: Ordered | None = None
    starting_since: float | None = None
    """Since when a start is under way whose first step is not committed yet."""
    start_took: float | None = None
    """Seconds that the last start took until its first commit."""
    refused: int = 0
    told: frozenset[tuple[str, str]] = frozenset()
    """(uid, kind of message) of which a refusal was announced: one event each, not a flood (field case F54)."""
    recovering: Recovering | None = None
    recoveries: tuple[Recovered, ...] = ()
    wake: float = -math.inf
    """When time alone changes a decision, as of the last look at the job as a whole."""
    exit_code: int | None = None
    verdict: str = ""
    end: str = ""
    """Reason of the end, one word of `EventReason`; empty before, and in records that lack it."""
    digest: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self.exit_code is not None

    @property
    def starting(self) -> bool:
        """Whether no plan is in force: before the first one, or between a wipe-out and the plan that begins again."""
        return self.plan is None or self.restarting is not None

    def at(self, number: int) -> Group:
        """The group, or from spec.groups on the spare, of that number."""
        count = len(self.groups)
        return self.groups[number] if number < count else self.spares[number - count]

    def member(self, group: int) -> bool:
        """Whether the group's present incarnation is a member and not known to be dead."""
        here = self.at(group)
        alive = here.state in (GroupState.JOINING, GroupState.ACTIVE, GroupState.DONE)
        return alive and here.halted is None and self.plan is not None and self.plan.has(group, here.uid)

    @property
    def whole(self) -> tuple[int, ...]:
        """Live members that have the training state for sure, ascending."""
        return tuple(g for g in self.live if self.groups[g].state is not GroupState.JOINING)

    def leaver(self, uid: str) -> Leaver | None:
        """That incarnation, if it was asked to go."""
        return next((leaver for leaver in self.leavers if leaver.uid == uid), None)

    @cached_property
    def live(self) -> tuple[int, ...]:
        """Members not known to be dead, ascending. Kept until something changes (`changed` lets go of it):
        in a large job it takes long, and each look at the whole asks for it a dozen times."""
        return tuple(g for g in self.plan.groups if self.member(g)) if self.plan else ()
