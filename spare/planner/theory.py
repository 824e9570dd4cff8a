"""What to expect of a job before it runs: the paper's formulas, and the bounds for micro-batches.

Symbols: N groups, r redundancy, k failed groups, m micro-batches per shard. All times are in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# What a job that says nothing about its failures is taken to be: the paper's setting (section "Reported results").
MEAN_TIME_BETWEEN_FAILURES = 300.0
GROUP_BETWEEN_FAILURES = 100_000.0  # for a job whose size in nodes is not known: one failure per group in 28 h
RESTART_SECONDS = 3600.0
SAVE_SECONDS = 60.0
MICRO_BATCHES = 32


def masked_mean(groups: int, redundancy: int) -> float:
    """mu(N, r): the mean number of failures that are masked before a wipe-out.

    mu = Gamma(1/r) / r * N^(1 - 1/r). An approximation for large N; at N = 8, r = 3 it is 3.57 where 3.28 is measured.
    Raises ValueError for N below 1 or r outside [1, N]. Source: paper, section "Formulas".
    """
    _check(groups, redundancy)
    return math.gamma(1 / redundancy) / redundancy * math.pow(groups, 1 - 1 / redundancy)


def lower_bound(groups: int, failed: int) -> int:
    """c(k) = ceil(N / (N - k)): the least depth S with whole shards after k failures.

    Raises ValueError for k outside [0, N). Source: paper, section "Idea".
    """
    return micro_cap(groups, failed, 1)


def micro_cap(groups: int, failed: int, micro_batches: int) -> int:
    """ceil(m * N / (N - k)): the least number of micro-batches on the most loaded group after k failures.

    Raises ValueError for m below 1 or k outside [0, N). Source: counting; the paper's c(k) for shards cut in m.
    """
    if groups < 1 or not 0 <= failed < groups:
        raise ValueError(f"failed is {failed} of {groups} groups; allowed is 0 to groups - 1")
    if micro_batches < 1:
        raise ValueError(f"micro_batches is {micro_batches}; allowed is 1 or more")
    return -(-micro_batches * groups // (groups - failed))


def room(cap: int, speed: int) -> int:
    """Micro-batches that a group may compute while a healthy one computes ``cap``; at least one.

    Args:
        cap: micro-batches of a healthy group, at least 1.
        speed: of the group, in per cent of a healthy one's, 1 to 100.

    A group that computes nothing could not be seen to recover, hence the one. Source: ours.
    """
    return max(1, cap * speed // 100)


def speed_cap(units: int, speeds: Sequence[int]) -> int:
    """The least number of micro-batches on a healthy group with which these groups together can take ``units``.

    Args:
        units: micro-batches to be computed.
        speeds: of the groups, in per cent as in ``room``; at least one.

    With all at 100 it is ceil(units / groups), so ``micro_cap`` for units = N * m. Source: counting.
    """
    slow = [speed for speed in speeds if speed != 100]
    low, high = 1, -(-units * 100 // max(speeds)) + 1  # one group alone could do it all with the second
    if not slow:
        low = high = max(1, -(-units // len(speeds)))
    while low < high:
        middle = (low + high) // 2
        if middle * (len(speeds) - len(slow)) + sum(room(middle, speed) for speed in slow) >= units:
            high = middle
        else:
            low = middle + 1
    return low


def micro_bound(groups: int, failed: int, micro_batches: int) -> float:
    """ceil(m * N / (N - k)) / m: the least depth with whole micro-batches after k failures, in shards.

    Errors and source as ``micro_cap``.
    """
    return micro_cap(groups, failed, micro_batches) / micro_batches


def mean_depth(groups: int, redundancy: int, micro_batches: int = 1, patch: float = 0.0) -> float:
    """Sbar(N, r): the mean depth from health to the wipe-out, in shards.

    Sbar = 1/floor(mu) * sum over k from 0 to floor(mu) - 1 of (c(k) + rho_k). With micro_batches = 1 it is the paper's;
    with more, c(k) is the bound for micro-batches. For floor(mu) = 0 the healthy depth.

    Args:
        groups: N.
        redundancy: r.
        micro_batches: m.
        patch: rho_k, the share of patch computation per step in shards, taken to be the same for every k.

    Raises ValueError as ``masked_mean`` and ``micro_cap``. Source: paper, section "Formulas".
    """
    states = _states(groups, redundancy)
    return sum(micro_bound(groups, k, micro_batches) + patch for k in range(states)) / states


def best_redundancy(groups: int) -> int:
    """r* = floor(log2(N) + 0.833), within [1, N]: the paper's best redundancy for whole shards.

    There mu is about N / 2 and Sbar about 2. For micro-batches see ``recommended_redundancy``.
    Raises ValueError for N below 1. Source: paper, section "Formulas".
    """
    _check(groups, 1)
    return max(1, min(groups, math.floor(math.log2(groups) + 0.833)))


def checkpoint_period(save: float, to_wipe_out: float, restart: float) -> float:
    """Tc* = Ts + sqrt(Ts^2 + 2 Ts (Tf + Tr)): the best time between the starts of two checkpoints, in seconds.

    Args:
        save: Ts, seconds to save a checkpoint.
        to_wipe_out: Tf, mean seconds from a start to a wipe-out, mu times the mean time between failures.
        restart: Tr, seconds of a global restart.

    Raises ValueError for a negative time. Source: paper, section "Formulas".
    """
    for name, value in (("save", save), ("to_wipe_out", to_wipe_out), ("restart", restart)):
        if not value >= 0:
            raise ValueError(f"{name} is {value}; allowed is 0 seconds or more")
    return save + math.sqrt(save * save + 2 * save * (to_wipe_out + restart))


def availability(save: float, to_wipe_out: float, restart: float, period: float | None = None) -> float:
    """A(Tc) = (1 - Ts / Tc) * Tf / (Tf + Tr + Tc / 2): the share of time that trains, 0 to 1.

    A cycle is the time Tf to the wipe-out, a restart, and on average half a period computed again; of it the saves take
    Ts / Tc. The paper gives only Tc*; this first-order model is the one whose best period is exactly that Tc*.

    Args:
        save, to_wipe_out, restart: as ``checkpoint_period``.
        period: Tc; None is the best, Tc*, which gives A*.

    Raises ValueError for a negative time, or a period that is not longer than the save.
    """
    best = checkpoint_period(save, to_wipe_out, restart)
    chosen = best if period is None else period
    cycle = to_wipe_out + restart + chosen / 2
    if chosen < save or (period is not None and not chosen > 0):
        raise ValueError(f"period is {chosen}; allowed is more than the {save} seconds of a save")
    if cycle == 0:
        return 1.0
    return (1 - (save / chosen if chosen else 0.0)) * to_wipe_out / cycle


def objective(
    groups: int,
    redundancy: int,
    micro_batches: int = 1,
    between_failures: float = MEAN_TIME_BETWEEN_FAILURES,
    restart: float = RESTART_SECONDS,
    save: float = SAVE_SECONDS,
) -> float:
    """J(r) = Sbar(N, r) / A*(mu(N, r) * between_failures): time to train over time without failures or redundancy.

    Args:
        groups, redundancy, micro_batches: N, r, m; m = 1 is the paper's objective.
        between_failures: seconds between failures anywhere in the system, above 0.
        restart, save: Tr and Ts, seconds.

    Raises ValueError for numbers out of range. Source: paper, section "Formulas".
    """
    if not between_failures > 0:
        raise ValueError(f"between_failures is {between_failures}; allowed is above 0 seconds")
    to_wipe_out = masked_mean(groups, redundancy) * between_failures
    return mean_depth(groups, redundancy, micro_batches) / availability(save, to_wipe_out, restart)


def recommended_redundancy(
    groups: int,
    micro_batches: int = MICRO_BATCHES,
    between_failures: float | None = None,
    restart: float = RESTART_SECONDS,
    save: float = SAVE_SECONDS,
) -> int:
    """What ``redundancy: auto`` means: the r of least J(r) for a job scheduled by micro-batches.

    Below the paper's r*, because micro-batches make the depth grow slowly with k, so surviving up to N / 2 failures
    is worth less than a low depth. 1 only for a single group; else at least 2, so that one loss is always masked.

    Args:
        groups: N, at least 1.
        micro_batches: m.
        between_failures: seconds between failures anywhere in the job; None takes one per
            group in 100,000 s (28 h), but not more than one in 300 s, the paper's setting.
        restart, save: Tr and Ts, seconds.

    Raises ValueError for numbers out of range. Source: paper, J(r) in section "Formulas", with
    ``expected_depth`` in the place of c(k) + rho_k.
    """
    _check(groups, 1)
    mean = (
        max(MEAN_TIME_BETWEEN_FAILURES, GROUP_BETWEEN_FAILURES / groups)
        if between_failures is None
        else between_failures
    )
    choices = range(min(2, groups), min(groups, 2 * best_redundancy(groups)) + 1)

    def expected_time(redundancy: int) -> float:
        # Not up to floor(mu): for few groups its jumps would decide. The last state counts for the rest of mu.
        masked = min(max(1.0, masked_mean(groups, redundancy)), groups)
        depths = [expected_depth(groups, redundancy, k, micro_batches) for k in range(math.ceil(masked))]
        depth = (sum(depths[:-1]) + depths[-1] * (masked - len(depths) + 1)) / masked
        return depth / availability(save, masked * mean, restart)

    if not mean > 0:
        raise ValueError(f"between_failures is {between_failures}; allowed is above 0 seconds")
    return min(choices, key=lambda r: (expected_time(r), r))


def expected_depth(groups: int, redundancy: int, failed: int, micro_batches: int) -> float:
    """The bound for micro-batches, raised by what a thin placement adds: the mean depth after k random failures.

    A shard with one host left lies on it whole. A host has Binomial(r, p) such shards with p = (k/N)^(r-1), so no host
    has t of them with probability exp(-(N - k) * P(Binomial >= t)); a host with t has depth t at least. Within 2 % of
    measured depths for r >= 3 at N = 64 to 1,000; too low by 8 % at r = 2, where pairs of hosts fill up as well.

    Raises ValueError for numbers out of range. Source: ours; the even bound is ``micro_bound``.
    """
    _check(groups, redundancy)
    bound = micro_bound(groups, failed, micro_batches)
    alone = (failed / groups) ** (redundancy - 1)
    depth, below = bound, 1.0  # below: probability that a host has fewer than t shards alone
    for t in range(1, redundancy + 1):
        below -= math.comb(redundancy, t - 1) * alone ** (t - 1) * (1 - alone) ** (redundancy - t + 1)
        if t > bound:
            some_host = 1 - math.exp(-(groups - failed) * max(0.0, below))
            depth += some_host * (t - max(bound, t - 1))
    return depth


def _states(groups: int, redundancy: int) -> int:
    """How many values of k a mean from health to the wipe-out runs over, at least 1."""
    # mu is an approximation and passes N - 1 for small N with large r; more than N - 1 failures leave nobody.
    return min(max(1, math.floor(masked_mean(groups, redundancy))), groups)


def _check(groups: int, redundancy: int) -> None:
    if groups < 1:
        raise ValueError(f"groups is {groups}; allowed is 1 or more")
    if not 1 <= redundancy <= groups:
        raise ValueError(f"redundancy is {redundancy}; allowed is 1 to groups, {groups}")
