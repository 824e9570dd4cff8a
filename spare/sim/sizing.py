"""What to expect of a job, by formulas alone: the choices of strategy and redundancy, side by side.

Times are in seconds, T0 is the time of all steps with neither failures nor redundancy. No simulation, no dependency;
tests hold these numbers against simulated ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from spare.planner import (
    availability,
    best_redundancy,
    checkpoint_period,
    expected_depth,
    masked_mean,
    mean_depth,
)

NEAR = 0.005
"""Of the choices within this share of the least time the one of least redundancy is recommended: data costs too."""

REGROUP = 0.2  # shrink and controller of the paper's setting


@dataclass(frozen=True)
class Job:
    """A job in the numbers that its owner knows.

    Attributes:
        groups, gpus_per_group: N, M.
        compute, reduction: of a healthy step, the part that grows with the depth and the part that does not.
        work: T0, seconds of training to be done.
        between_failures: m, mean time between failures anywhere in the job.
        save, restart: Ts, Tr.
        replacement: from a loss to the replacement's joining; None: groups come back only by a restart.
        join: what one joining costs everybody.
        micro_batches: m of the schedule.
        shard_bytes: data of one shard, 0 if not known.
        gradient_bytes: one copy of the gradients of a whole group, 0 if not known.
        period: given time between two saves; None: the best.
    """

    groups: int
    gpus_per_group: int = 1
    compute: float = 60.0
    reduction: float = 0.0
    work: float = 7 * 86400.0
    between_failures: float = 86400.0
    save: float = 60.0
    restart: float = 600.0
    replacement: float | None = None
    join: float = 5.0
    micro_batches: int = 8
    shard_bytes: float = 0.0
    gradient_bytes: float = 0.0
    period: float | None = None

    def __post_init__(self) -> None:
        for name in ("groups", "gpus_per_group", "compute", "work", "between_failures", "micro_batches"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed is above 0")
        for name in ("reduction", "save", "restart", "join", "shard_bytes", "gradient_bytes"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed is 0 or more")
        if self.replacement is not None and not self.replacement >= 0:
            raise ValueError(f"replacement is {self.replacement}; allowed is 0 seconds or more")
        if self.period is not None and not self.period > self.save:
            raise ValueError(f"period is {self.period}; allowed is more than the {self.save} seconds of a save")


@dataclass(frozen=True)
class Choice:
    """One way to run the job, and what to expect of it.

    Attributes:
        strategy: "micro-batches", "whole shards", "replication", "checkpoint only".
        redundancy: r.
        depth: mean layers per step, without patch.
        masked: mean failures from a start to a wipe-out, the last one included.
        wipe_out: seconds from a start to a wipe-out.
        period: seconds between the starts of two saves.
        ratio: expected time over T0.
        time: expected time, seconds.
        gpu_hours: of all GPUs for that time, whether they live or not.
        shard_bytes: data that each group must be able to read.
        gradient_bytes: gradient buffers of each group: its sum, and a second one where a reduction may fail.
    """

    strategy: str
    redundancy: int
    depth: float
    masked: float
    wipe_out: float
    period: float
    ratio: float
    time: float
    gpu_hours: float
    shard_bytes: float
    gradient_bytes: float


def choices(job: Job) -> list[Choice]:
    """Checkpoints only, the best replication, the paper's whole shards, and ours for each r from 2 up."""
    n = job.groups
    found = [checkpoint_only(job)]
    if n == 1:
        return found
    found.append(min((_replication(job, r) for r in range(2, min(n, 4) + 1)), key=lambda c: c.ratio))
    found.append(_whole(job, max(2, best_redundancy(n))))
    return found + [micro(job, r) for r in range(2, min(n, 2 * best_redundancy(n)) + 1)]


def recommended(found: list[Choice]) -> Choice:
    """The least redundancy of micro-batches with a time within half a per cent of the least; else checkpoints only."""
    ours = [choice for choice in found if choice.strategy == "micro-batches"]
    if not ours:
        return found[0]
    least = min(choice.ratio for choice in ours)
    return next(choice for choice in ours if choice.ratio <= least * (1 + NEAR))


def checkpoint_only(job: Job) -> Choice:
    """Every failure restarts: a segment of s seconds takes (m + Tr) (exp(s / m) - 1) on average.

    Source: renewal theory for exponential gaps; the period is the paper's Tc* with Tf = m, unless given.
    """
    mean, period = job.between_failures, _period(job, job.between_failures)
    try:
        ratio = (mean + job.restart) * math.expm1(period / mean) / (period - job.save)
    except (OverflowError, ZeroDivisionError):
        ratio = math.inf
    return _choice(job, "checkpoint only", 1, 1.0, 1.0, ratio, period)


def micro(job: Job, redundancy: int) -> Choice:
    """Ours: micro-batches, Golomb placement, with or without replacement."""
    n, m = job.groups, job.micro_batches
    masked = failures_to_wipe_out(job, redundancy)
    if job.replacement is None:
        states = range(max(1, min(n, math.floor(masked))))
        depth = sum(expected_depth(n, redundancy, k, m) for k in states) / len(states)
    else:
        depth = sum(share * expected_depth(n, redundancy, k, m) for k, share in enumerate(away(job)) if share > 1e-9)
    # What a group leaves of the step in flight: of each of its r shards a share, for the r - 1 other hosts.
    patch = math.ceil(m / redundancy / (redundancy - 1)) / m
    return _masking(job, "micro-batches", redundancy, depth, masked, patch * job.compute)


def _whole(job: Job, redundancy: int) -> Choice:
    """The paper's scheduler, by its own Sbar; half of the failures need a layer of patch (docs/planner.md)."""
    return _masking(
        job, "whole shards", redundancy, mean_depth(job.groups, redundancy),
        masked_mean(job.groups, redundancy), job.compute / 2, replaced=False,
    )  # fmt: skip


def _replication(job: Job, redundancy: int) -> Choice:
    masked = failures_to_wipe_out(job, redundancy)
    return _masking(job, "replication", redundancy, float(redundancy), masked, 0.0)


def failures_to_wipe_out(job: Job, redundancy: int) -> float:
    """Mean failures up to a wipe-out: mu, or with replacement 1 / w if that is more.

    With replacement after D the groups that are away are Poisson with mean D / m. A failure wipes out if all r - 1
    other hosts of one of the group's r shards are away: w = r * E[k (k-1) ... (k-r+2)] / ((N-1) (N-2) ... (N-r+1)),
    and the factorial moment of a Poisson number is (D / m)^(r-1).

    Source: paper for mu; M/G/infinity (Palm) and Khinchin's factorial moments for the rest.
    """
    mu = max(1.0, masked_mean(job.groups, redundancy))
    if job.replacement is None:
        return mu
    load, others = job.replacement / job.between_failures, job.groups - 1
    chance = float(redundancy)
    for taken in range(redundancy - 1):
        chance *= load / (others - taken)
    return max(mu, 1 / chance if chance else math.inf)


def away(job: Job) -> list[float]:
    """Probability that k = 0 .. N-1 groups are away: Poisson with mean D / m, the rest on N - 1."""
    load = (job.replacement or 0.0) / job.between_failures
    found = [math.exp(-load)]
    for k in range(1, job.groups - 1):
        found.append(found[-1] * load / k)
    if job.groups > 1:
        found.append(max(0.0, 1 - sum(found)))
    return found


def _masking(
    job: Job, strategy: str, redundancy: int, depth: float, masked: float, patch: float, replaced: bool = True
) -> Choice:
    """A strategy that masks failures: depth over availability, stretched by what each failure costs."""
    to_wipe_out = masked * job.between_failures
    # Replacement is left out here: saves are also against what this model does not know, and cost little.
    period = _period(job, max(1.0, masked_mean(job.groups, redundancy)) * job.between_failures)
    up = 1.0 if math.isinf(to_wipe_out) else availability(job.save, to_wipe_out, job.restart, period)
    per_failure = patch + REGROUP + (job.join if replaced and job.replacement is not None else 0.0)
    step = job.compute + job.reduction
    training = max(0.0, 1 - per_failure / job.between_failures)
    ratio = (depth * job.compute + job.reduction) / step / (up * training) if up * training else math.inf
    return _choice(job, strategy, redundancy, depth, masked, ratio, period)


def _period(job: Job, to_wipe_out: float) -> float:
    if job.period is not None:
        return job.period
    return checkpoint_period(job.save, to_wipe_out, job.restart)


def _choice(
    job: Job, strategy: str, redundancy: int, depth: float, masked: float, ratio: float, period: float
) -> Choice:
    hours = ratio * job.work / 3600
    return Choice(
        strategy=strategy,
        redundancy=redundancy,
        depth=depth,
        masked=masked,
        wipe_out=masked * job.between_failures,
        period=period,
        ratio=ratio,
        time=ratio * job.work,
        gpu_hours=hours * job.groups * job.gpus_per_group,
        shard_bytes=redundancy * job.shard_bytes,
        gradient_bytes=job.gradient_bytes * (1 if strategy == "checkpoint only" else 2),
    )
