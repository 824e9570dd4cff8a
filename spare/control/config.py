"""The settings of a job that its control reads, taken from the spec once. Durations are seconds."""

from __future__ import annotations

from dataclasses import dataclass

from spare.api.spec import OnPoison, OnStraggler, OnWipeOut, Scheduler, Spec


@dataclass(frozen=True)
class Config:
    """What is fixed for the life of a job."""

    job: str
    """The job's unique name, as in every message."""
    groups: int
    redundancy: int
    """Hosts per shard; `auto` has been resolved by who builds this."""
    micro_batches: int
    pods: int = 1
    """Pods of each group."""
    procs: int = 1
    """Workers in each pod: a group has `pods * procs` ranks, and lives while all of them do."""
    strategy: str = "Golomb"
    whole_shards: bool = False
    """Move whole shards, for comparison with the paper; else micro-batches."""
    heartbeat: float = 1.0
    """Seconds between two signs of life of an agent."""
    dead_after: float = 5.0
    """Silence after which an agent, or a worker whose agent still answers, is lost."""
    hang_after: float = 300.0
    """No progress of a worker for which the others wait, after which it is lost."""
    unheard_limit: float = 3600.0
    """How long all agents may be silent at once, taken for our own network, before the job is given up. As long as
    workers wait for a coordinator; a local run needs no network, and gives up after `hang_after`."""
    start_timeout: float = 300.0
    """From the start until every group is ready; on passing it the job fails and says who is missing."""
    ready_timeout: float = 300.0
    """From the moment in which all agents of a group run until it is ready; on passing it, it is started again."""
    deadline: float | None = None
    """Seconds from the start after which the job is failed, wherever it is."""
    create_limit: int = 4
    """Starts of one group before the first plan; a death by then costs no work, but a crash loop must end."""
    create_backoff: float = 0.5
    """Pause before the second start of a group; doubled at each further one."""
    create_backoff_most: float = 60.0
    """Longest such pause."""
    slow_after: float = 30.0
    """How long a group must be much slower than the median, or about as fast again, before that is told and heeded."""
    slow_factor: float = 1.5
    well_factor: float = 1.2
    """Times the median pace: from the first on a group is slow, up to the second it is well."""
    rebalance: bool = False
    """Give slow groups less to do; else only tell of them."""
    slowest: int = 10
    """Least speed that shares are made for, per cent."""
    speed_drift: float = 0.25
    """Share by which a straggler's speed must have changed before its share is made to fit again."""
    skip_poison: bool = False
    """Leave a micro-batch that killed two groups out of the sum; else the job fails by it."""
    spares: int = 0
    """Groups' processes that are kept waiting, to take the place of lost ones. Only where `replace` is set."""
    replace: bool = True
    """Start a new incarnation of a lost group, to rejoin at the next boundary."""
    grace: float = 30.0
    """Seconds that a group which is asked to go has until it is killed, where who asks does not say."""
    settle: float = 0.05
    """After a suspicion that all probes refute, time for a death to be told after all: an agent hears of its worker's
    end a little later than the peers do, and a plan with a dead member costs a second one."""
    fruitless_limit: int = 8
    """Failures running that are answered without removing anybody; then the job ends, for it gets nowhere."""
    on_wipe_out: OnWipeOut = OnWipeOut.FAIL
    """What to do once a shard has no live host."""
    backoff_limit: int = 3
    """Restarts from a checkpoint that are allowed."""
    checkpoint: str | None = None
    """Where checkpoints are written; None: nowhere."""
    checkpoint_period: float | None = None
    """From the beginning of one to that of the next; None: chosen from what is measured."""
    min_groups: int | None = None
    """Fewest groups to start with after `start_wait`, and to go on with; None: all to start, any number to go on."""
    start_wait: float = 300.0
    """How long all groups are waited for at a start where fewer would do."""
    wait_limit: float = 3000.0
    """How long the job waits for replacements with fewer than `min_groups`; less than its workers wait for a plan."""

    def patience(self, inside: bool) -> float:
        """How long an exception of one rank of several waits for news of a sibling's death, which may have caused it.

        Args:
            inside: It is one of a broken connection between them: the group is lost in any case.
        """
        return self.settle if inside else self.probe_wait

    @property
    def numbers(self) -> int:
        """Numbers of groups, from 0, and from `groups` on of spares."""
        return self.groups + self.spares

    @property
    def ranks(self) -> int:
        """Workers of one group."""
        return self.pods * self.procs

    @property
    def probe_wait(self) -> float:
        """Longest wait for the answers to a probe, and for the report of how a worker exited."""
        return min(self.dead_after, 1.0)

    def backoff(self, attempts: int) -> float:
        """Pause before the next start of a group that was started `attempts` times."""
        return min(self.create_backoff * 2.0 ** max(0, attempts - 1), self.create_backoff_most)

    @classmethod
    def of(cls, job: str, spec: Spec, redundancy: int) -> Config:
        """The settings of a job file; `redundancy` is the number where the file says `auto`."""
        detection, period = spec.detection, spec.checkpoint.period
        return cls(
            job=job,
            groups=spec.groups,
            redundancy=redundancy,
            micro_batches=spec.micro_batches,
            pods=spec.pods_per_group,
            procs=spec.proc_per_pod,
            slow_after=detection.slow_after.total_seconds(),
            rebalance=spec.on_straggler is OnStraggler.REBALANCE,
            skip_poison=spec.on_poison is OnPoison.SKIP,
            strategy=spec.placement.strategy.value,
            whole_shards=spec.scheduler is Scheduler.WHOLE_SHARDS,
            heartbeat=detection.heartbeat.total_seconds(),
            dead_after=detection.dead_after.total_seconds(),
            start_timeout=detection.start_timeout.total_seconds(),
            ready_timeout=detection.start_timeout.total_seconds(),
            start_wait=detection.start_timeout.total_seconds(),
            deadline=spec.run_policy.active_deadline_seconds,
            hang_after=detection.hang_after.total_seconds(),
            on_wipe_out=spec.on_wipe_out,
            backoff_limit=spec.run_policy.backoff_limit,
            checkpoint=spec.checkpoint.path,
            checkpoint_period=None if period == "auto" else period.total_seconds(),
            min_groups=spec.min_groups,
            spares=spec.spares,
            grace=float(spec.template.spec.termination_grace_period_seconds),
        )
