"""What to expect of a job, by formulas alone: the choices of strategy and redundancy, side by side.

Times are in seconds, T0 is the time of all steps with neither failures nor redundancy. No simulation, no dependency;
tests hold these numbers against simulated ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from spare.planner import (
    availability,
    best_redundancy,
    checkpoint_period,
    expected_depth,
    lower_bound,
    masked_mean,
)

NEAR = 0.005
"""Of the choices within this share of the least time the one of least redundancy is recommended: data costs too."""

NOTHING = 1e-12  # a share of the time that does not show

FEW = 50
"""So many failures on the way through the work are followed one by one; of more the mean alone says enough."""

NEVER = 1e9 * 365 * 86400.0
"""Seconds, a billion years: a job that takes longer is not done."""

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
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed is above 0, and not infinite")
        for name in ("reduction", "save", "restart", "join", "shard_bytes", "gradient_bytes"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed is 0 or more, and not infinite")
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
        masked: mean failures from a start to a wipe-out that are survived; the one that wipes out is not.
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


def choices(job: Job, wanted: int | None = None) -> list[Choice]:
    """Checkpoints only, the best replication, the paper's whole shards, and ours for each r from 2 up.

    Args:
        job: its numbers.
        wanted: an r, at most N, that is looked at, too, however large.
    """
    n = job.groups
    found = [checkpoint_only(job)]
    if n == 1:
        return found
    found.append(min((_replication(job, r) for r in range(2, min(n, 4) + 1)), key=lambda c: c.ratio))
    found.append(_whole(job, max(2, best_redundancy(n))))
    tried = range(2, min(n, 2 * best_redundancy(n)) + 1)
    return found + [micro(job, r) for r in sorted({*tried, max(2, wanted or 2)})]


def recommended(found: list[Choice]) -> Choice:
    """The least redundancy with a time within half a per cent of the least: ours, or 1 for checkpoints only."""
    ours = [choice for choice in found if choice.strategy in ("checkpoint only", "micro-batches")]
    least = min(choice.ratio for choice in ours)
    return next(choice for choice in ours if choice.ratio <= least * (1 + NEAR))


def checkpoint_only(job: Job) -> Choice:
    """Every failure restarts: a segment of s seconds takes (m + Tr) (exp(s / m) - 1) on average.

    A save comes after a whole step at the least, however short the best period is.

    Source: renewal theory for exponential gaps; the period is the paper's Tc* with Tf = m, unless given.
    """
    mean, period = job.between_failures, _period(job, job.between_failures)
    training = max(period - job.save, job.compute + job.reduction)
    try:
        ratio = (mean + job.restart) * math.expm1((training + job.save) / mean) / training
    except OverflowError:
        ratio = math.inf
    return _choice(job, "checkpoint only", 1, 1.0, 0.0, mean, ratio, period)


def micro(job: Job, redundancy: int) -> Choice:
    """Ours: micro-batches, Golomb placement, with or without replacement."""
    n, m = job.groups, job.micro_batches
    # What a group leaves of the step in flight: of each of its r shards a share, for the r - 1 other hosts.
    patch = math.ceil(m / redundancy / (redundancy - 1)) / m
    return _masking(
        job, "micro-batches", redundancy, lambda k: expected_depth(n, redundancy, k, m), patch * job.compute
    )


def _whole(job: Job, redundancy: int) -> Choice:
    """The paper's scheduler at its bound c(k); half of the failures need a layer of patch (docs/planner.md)."""
    alone = replace(job, replacement=None)
    return _masking(alone, "whole shards", redundancy, lambda k: lower_bound(job.groups, k), job.compute / 2)


def _replication(job: Job, redundancy: int) -> Choice:
    return _masking(job, "replication", redundancy, lambda k: redundancy, 0.0)


def survival(groups: int, redundancy: int) -> list[float]:
    """Shape (N,): the probability that k random failures, none of them replaced, leave each shard a host.

    The k-th failure finds all r - 1 other hosts of one of its group's r shards gone with q = (k-1) ... (k-r+1) /
    ((N-1) ... (N-r+1)), so it wipes out with r q at most. Their sum is the mean number of failures up to the wipe-out
    and with it: within 4 % of Monte-Carlo for every N and r from 2 up, where the paper's mu, its limit for many groups,
    is 17 % low at N = 8, r = 3.

    Source: ours; the bound of a union of events for each of the two steps.
    """
    found = [1.0]
    for k in range(1, groups):
        chance = float(redundancy)
        for taken in range(redundancy - 1):
            chance *= (k - 1 - taken) / (groups - 1 - taken)
        found.append(found[-1] * (1 - min(1.0, max(0.0, chance))))
    return found


def failures_to_wipe_out(job: Job, redundancy: int) -> float:
    """Mean failures up to a wipe-out and with it: of ``survival``, or with replacement 1 / w if that is more.

    With replacement after D the groups that are away are Poisson with mean D / m. A failure wipes out if all r - 1
    other hosts of one of the group's r shards are away: w = r * E[k (k-1) ... (k-r+2)] / ((N-1) (N-2) ... (N-r+1)),
    and the factorial moment of a Poisson number is (D / m)^(r-1).

    Source: M/G/infinity (Palm) and Khinchin's factorial moments.
    """
    alone = sum(survival(job.groups, redundancy))
    if job.replacement is None:
        return alone
    load, others = job.replacement / job.between_failures, job.groups - 1
    chance = float(redundancy)
    for taken in range(redundancy - 1):
        chance *= load / (others - taken)
    return max(alone, 1 / chance if chance else math.inf)


def time_shares(job: Job, redundancy: int) -> list[float]:
    """Shape (N,): share of the time in which k groups are away.

    From a start on, k is Poisson with mean min(t, D) / m, D the time to a replacement. It is taken over the time T to
    the wipe-out or, if that is less, T0: the mean of the rising part is P(K > k) / x for K Poisson with mean x = T / m.
    Weighted with ``survival``; and k failures last N / (N - k) times as long where none is replaced, for who is gone
    cannot fail. Over whole cycles without replacement the survival alone counts.

    Source: M/G/infinity, started empty.
    """
    alive = survival(job.groups, redundancy)
    span = min(failures_to_wipe_out(job, redundancy) * job.between_failures, job.work)
    away = math.inf if job.replacement is None else job.replacement
    rising = min(span, away) / job.between_failures
    if span <= away and span < job.work:
        shares = alive
    else:
        ramp, level = _rising(rising, job.groups), _poisson(rising, job.groups)
        part = 1.0 if span <= away else away / span
        shares = [each * (part * a + (1 - part) * b) for each, a, b in zip(alive, ramp, level, strict=True)]
    if job.replacement is None:
        shares = [share * job.groups / (job.groups - k) for k, share in enumerate(shares)]
    total = sum(shares)
    return [share / total for share in shares] if total else [0.0] * (job.groups - 1) + [1.0]


def _stretch_over_work(job: Job, redundancy: int, depth_after: Callable[[int], float]) -> float:
    """A mean step over a healthy one, where the work ends before a wipe-out is due and nobody is replaced.

    The work is what is fixed then, not the time: a deep step gives failures more time to come. With k gone they come at
    the rate f(k) (N - k) / (N m) of the work done, f(k) the stretch of a step. Weighted with ``survival``.

    Source: a pure birth process over the work, uniformised.
    """
    count = min(job.groups, 4 * FEW)
    alive = survival(job.groups, redundancy)[:count]
    stretch = [
        (depth_after(k) * job.compute + job.reduction) / (job.compute + job.reduction) if alive[k] > NOTHING else 1.0
        for k in range(count)
    ]
    due = [job.work / job.between_failures * f * (1 - k / job.groups) for k, f in enumerate(stretch)]
    fastest, now, shares = max(due), [1.0] + [0.0] * (count - 1), [0.0] * count
    for weight in _rising(fastest, int(fastest + 10 * math.sqrt(fastest) + 20)):
        shares = [share + weight * each for share, each in zip(shares, now, strict=True)]
        goes = [each * rate / fastest for each, rate in zip(now, due, strict=True)]
        now = [each - out + into for each, out, into in zip(now, goes, [0.0, *goes], strict=False)]
    shares = [share * a for share, a in zip(shares, alive, strict=True)]
    return sum(share * f for share, f in zip(shares, stretch, strict=True)) / sum(shares)


def _poisson(mean: float, count: int) -> list[float]:
    """Probabilities of 0 to count - 1; by logarithms, for the mean may be large."""
    if mean == 0:
        return [1.0] + [0.0] * (count - 1)
    return [math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count)]


def _rising(mean: float, count: int) -> list[float]:
    """The mean of Poisson probabilities over all means from 0 to this one."""
    found, more = list[float](), 1.0
    if mean == 0:
        return _poisson(0.0, count)
    for share in _poisson(mean, count):
        more -= share
        found.append(max(0.0, more) / mean)
    return found


def _masking(job: Job, strategy: str, redundancy: int, depth_after: Callable[[int], float], patch: float) -> Choice:
    """A strategy that masks failures: the mean step over availability, stretched by what each failure costs."""
    failures = failures_to_wipe_out(job, redundancy)
    due = job.work / job.between_failures
    if job.replacement is None and due <= min(failures, FEW):
        stretch = _stretch_over_work(job, redundancy, depth_after)
        step = stretch * (job.compute + job.reduction)
    else:
        shares = [(k, share) for k, share in enumerate(time_shares(job, redundancy)) if share > NOTHING]
        # Deep steps are long, so few of them fit into their share of the time: the mean over steps, not over time.
        steps = sum(share / (depth_after(k) * job.compute + job.reduction) for k, share in shares)
        step = sum(share for _, share in shares) / steps
    to_wipe_out = failures * job.between_failures
    if job.replacement is None:
        alive = survival(job.groups, redundancy)
        to_wipe_out = job.between_failures * sum(a * job.groups / (job.groups - k) for k, a in enumerate(alive))
    # As the product sets it, by the paper's mu. Replacement is left out: saves are also against what no model knows.
    period = _period(job, max(1.0, masked_mean(job.groups, redundancy)) * job.between_failures)
    up = 1.0 if math.isinf(to_wipe_out) else availability(job.save, to_wipe_out, job.restart, period or None)
    per_failure = patch + REGROUP + (job.join if job.replacement is not None else 0.0)
    training = max(0.0, 1 - per_failure / job.between_failures)
    ratio = step / (job.compute + job.reduction) / (up * training) if up * training else math.inf
    depth = (step - job.reduction) / job.compute
    return _choice(job, strategy, redundancy, depth, failures - 1, to_wipe_out, ratio, period)


def _period(job: Job, to_wipe_out: float) -> float:
    if job.period is not None:
        return job.period
    return checkpoint_period(job.save, to_wipe_out, job.restart)


def _choice(
    job: Job, strategy: str, redundancy: int, depth: float, masked: float, wipe_out: float, ratio: float, period: float
) -> Choice:
    if ratio * job.work > NEVER:
        ratio = math.inf
    hours = ratio * job.work / 3600
    return Choice(
        strategy=strategy,
        redundancy=redundancy,
        depth=depth,
        masked=masked,
        wipe_out=wipe_out,
        period=period,
        ratio=ratio,
        time=ratio * job.work,
        gpu_hours=hours * job.groups * job.gpus_per_group,
        shard_bytes=redundancy * job.shard_bytes,
        gradient_bytes=job.gradient_bytes * (1 if strategy == "checkpoint only" else 2),
    )
