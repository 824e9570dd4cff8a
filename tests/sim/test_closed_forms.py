"""The engine against what can be computed by hand: renewal formulas, groups that come and go, the paper's mu."""

from __future__ import annotations

import math
import statistics

import pytest

from spare.planner import masked_mean, mean_depth, place
from spare.sim import Replicated, Setting, WholeShards, estimate, run
from spare.sim.masking import (
    depths_by_arcs,
    depths_micro,
    depths_whole,
    failures_to_wipe_out,
    independent,
    least_depth_by_arcs,
    masked,
    mean_bound,
)

CALM = 1e15


def test_without_failures_nothing_but_the_steps_and_the_saves_is_paid() -> None:
    """T0 to the microsecond; each save costs its time."""
    calm = Setting(10, steps=100, between_failures=CALM, jitter=0.0, period=math.inf)
    saving = Setting(10, steps=100, between_failures=CALM, jitter=0.0, period=660.0)

    assert run(calm, Replicated(10, 1), 1).ratio == pytest.approx(1.0, abs=1e-12)
    result = run(saving, Replicated(10, 1), 1)
    assert result.total == pytest.approx(saving.ideal + 60.0 * result.counts["saves"])
    assert result.counts["saves"] == 10  # after ten steps, then after every nine: the save itself is in the period


def test_checkpoints_alone_cost_what_the_renewal_formula_says() -> None:
    """A segment of s seconds under exponential failures takes (m + R) (exp(s / m) - 1) on average."""
    setting = Setting(
        4, steps=20_000, compute=50, reduction=10, save=10, restart=30, between_failures=200,
        process="exponential", jitter=0.0, period=0.0, notice="at once",
    )  # fmt: skip
    expected = (200 + 30) * math.expm1(70 / 200) * setting.steps

    assert run(setting, Replicated(4, 1), 3).total == pytest.approx(expected, rel=0.02)


def test_replaced_groups_are_away_for_their_share_of_the_time() -> None:
    """A group is up for N m on average, then down for D: a renewal process of its own, whatever D's distribution."""
    setting = Setting(
        20, steps=60_000, compute=1, reduction=0, shrink=0, controller=0, between_failures=50, join=0,
        process="exponential", jitter=0.0, replacement=300.0, period=math.inf,
    )  # fmt: skip
    up = 20 * 50

    assert run(setting, Replicated(20, 20), 5).mean_live == pytest.approx(20 * up / (up + 300.5), rel=0.03)


@pytest.mark.parametrize("process", ["exponential", "weibull"])
def test_failures_come_as_often_as_they_should(process: str) -> None:
    """With a rate that does not fall, one per m seconds that are not spent on restarts."""
    setting = Setting(30, steps=5000, process=process, rate_falls=False, replacement=60.0)  # type: ignore[arg-type]

    result = run(setting, Replicated(30, 10), 1)

    working = result.total - result.seconds["restart"]
    assert result.counts["failures"] == pytest.approx(working / 300, rel=0.08)


def test_a_falling_rate_delays_the_wipe_out_as_the_logarithm_says() -> None:
    """k failures take m N (1/N + 1/(N-1) + ...) on average, and a wipe-out comes after mu of them."""
    setting = Setting(60, steps=40_000, process="exponential", jitter=0.0, save=0.0, period=0.0, notice="at once")

    result = run(setting, Replicated(60, 3), 2)

    counts = masked(place(60, 3, "Consecutive"), 4000, 1)
    to_wipe_out = statistics.fmean(300 * 60 * sum(1 / (60 - k) for k in range(count)) for count in counts)
    up = (result.total - result.seconds["restart"]) / result.counts["wipe-outs"]
    assert up == pytest.approx(to_wipe_out, rel=0.05)
    # The failure that wipes out is counted by the Monte-Carlo and by the run alike.
    assert result.counts["lost groups"] / result.counts["wipe-outs"] == pytest.approx(
        statistics.fmean(counts), rel=0.05
    )


@pytest.mark.parametrize(("groups", "redundancy"), [(200, 9), (600, 8), (1000, 9)])
def test_mu_is_within_two_per_cent_of_monte_carlo(groups: int, redundancy: int) -> None:
    """For a placement that keeps the independence which the formula assumes."""
    measured = estimate(masked(independent(groups, redundancy), 600, 1))

    assert masked_mean(groups, redundancy) == pytest.approx(measured.mean, rel=0.02)


def test_the_mean_depth_is_within_four_per_cent_of_monte_carlo() -> None:
    """Formula, bound and scheduler; for whole shards and for micro-batches."""
    placement = independent(200, 9)
    counts = masked(placement, 1500, 1)

    assert mean_depth(200, 9) == pytest.approx(mean_bound(200, counts), rel=0.04)
    assert mean_depth(200, 9) == pytest.approx(statistics.fmean(depths_whole(placement, 4, 1)), rel=0.04)
    assert mean_depth(200, 9, 32) == pytest.approx(statistics.fmean(depths_micro(placement, 32, 4, 1)), rel=0.04)


@pytest.mark.parametrize(("groups", "redundancy"), [(5, 2), (12, 3), (20, 4), (40, 5), (60, 6)])
def test_on_consecutive_stacks_the_scheduler_is_as_shallow_as_can_be(groups: int, redundancy: int) -> None:
    """Hall's bound over stretches of neighbours, computed without the scheduler, in the same trials."""
    consecutive = place(groups, redundancy, "Consecutive")

    assert depths_whole(consecutive, 6, 3) == depths_by_arcs(groups, redundancy, 6, 3)


def test_the_least_depth_by_hand() -> None:
    """Three of six groups in a row are gone, r = 4: their shards and the next lie on few, the others have room."""
    assert least_depth_by_arcs(2, [True] * 6) == 1
    assert least_depth_by_arcs(2, [True, False, True, True, True, True]) == 2
    assert least_depth_by_arcs(4, [False, False, False, True, True, True]) == 2
    with pytest.raises(ValueError, match="1 live groups with all 4 layers do not cover"):
        least_depth_by_arcs(4, [False, False, False, True, False, False])


def test_a_shard_dies_with_its_last_host() -> None:
    """By hand: four groups, two hosts each; group i dies as number order[i]."""
    placement = place(4, 2, "Consecutive")  # shard i on the groups i and i - 1

    assert failures_to_wipe_out(placement, [0, 3, 1, 2]) == 3  # shard 0: 0 and 3, which die first and third
    assert failures_to_wipe_out(place(4, 1), [2, 0, 1, 3]) == 1


def test_the_bound_of_the_wipe_outs() -> None:
    """c(0), c(1) for N = 2 are 1 and 2."""
    assert mean_bound(2, [1]) == 1
    assert mean_bound(2, [2, 1]) == pytest.approx((1 + 2 + 1) / 3)


def test_whole_shards_patch_what_nobody_else_computed() -> None:
    """Healthy, each shard is computed once, so one loss is one layer of patch; the step after it is deeper."""
    strategy = WholeShards(place(12, 3, "Consecutive"))
    strategy.begin()

    assert strategy.lose([4]) == 1
    assert strategy.depth == 2
