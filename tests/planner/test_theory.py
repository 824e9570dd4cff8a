"""The formulas, against numbers worked out by hand, simulation and the paper's own results."""

from __future__ import annotations

import math
import random

import pytest

from spare.planner import (
    WipeOut,
    availability,
    best_redundancy,
    checkpoint_period,
    expected_depth,
    healthy,
    lower_bound,
    masked_mean,
    mean_depth,
    micro_bound,
    micro_cap,
    objective,
    place,
    recommended_redundancy,
    reorder,
)
from tests.planner import oracles


def test_masked_mean_has_the_papers_values() -> None:
    """mu is about 105 at N = 200, r = 9 and about 426 at N = 600, r = 20; with r = 1 the first failure is the last."""
    assert masked_mean(200, 9) == pytest.approx(105.1, abs=0.1)
    assert masked_mean(600, 20) == pytest.approx(426, abs=2)
    assert masked_mean(50, 1) == 1.0


def test_masked_mean_against_simulation() -> None:
    """2,000 random kill sequences of a Golomb placement survive mu failures on average, within 3 %."""
    placement, total = place(64, 6), 0
    for seed in range(2000):
        order = random.Random(seed).sample(range(64), 64)
        rank = {group: at for at, group in enumerate(order)}
        total += min(max(rank[h] for h in placement.hosts(i)) for i in range(64))

    assert total / 2000 == pytest.approx(masked_mean(64, 6), rel=0.03)


def test_bounds_are_the_even_share_rounded_up() -> None:
    """c(k) jumps from 1 to 2 at the first failure; with m = 8 of N = 8 one loss costs 10 of 8 micro-batches."""
    assert [lower_bound(200, k) for k in (0, 1, 100, 101, 134)] == [1, 2, 2, 3, 4]
    assert micro_cap(8, 1, 8) == 10
    assert micro_bound(8, 1, 8) == 1.25
    assert micro_bound(8, 2, 8) == 1.375


def test_mean_depth_is_about_two_at_the_papers_best_redundancy() -> None:
    """Sbar is near 2 at r*, and 1.47 with 32 micro-batches at N = 200, r = 9."""
    assert mean_depth(600, best_redundancy(600)) == pytest.approx(2.0, abs=0.06)
    assert mean_depth(200, 9) == pytest.approx(2.04, abs=0.05)
    assert mean_depth(200, 9, 32) == pytest.approx(1.43, abs=0.02)
    assert mean_depth(200, 9, 32, patch=0.25) == pytest.approx(mean_depth(200, 9, 32) + 0.25)
    assert mean_depth(4, 4) >= 1.0


@pytest.mark.parametrize(
    ("groups", "best"),
    [(1, 1), (2, 1), (8, 3), (9, 4), (143, 7), (144, 8), (200, 8), (600, 10), (1000, 10), (10000, 14)],
)
def test_best_redundancy_is_the_formulas(groups: int, best: int) -> None:
    """floor(log2 N + 0.833)."""
    assert best_redundancy(groups) == best


def test_the_checkpoint_period_is_where_availability_is_best() -> None:
    """No period on a fine grid beats Tc*, for several systems."""
    for save, to_wipe_out, restart in ((60, 31530, 3600), (5, 400, 30), (300, 1e6, 3600)):
        best = checkpoint_period(save, to_wipe_out, restart)
        grid = [best * (0.2 + step / 200) for step in range(600)]
        top = max(availability(save, to_wipe_out, restart, period) for period in grid if period > save)

        assert top <= availability(save, to_wipe_out, restart) + 1e-12
        assert availability(save, to_wipe_out, restart) == availability(save, to_wipe_out, restart, best)


def test_availability_is_near_the_papers_simulation() -> None:
    """87.00 %, 93.90 % and 96.54 % in the paper's table; the first-order model is within four points."""
    for groups, r, reported in ((200, 9, 0.8700), (600, 8, 0.9390), (1000, 9, 0.9654)):
        assert availability(60, masked_mean(groups, r) * 300, 3600) == pytest.approx(reported, abs=0.04)


def test_availability_at_the_edges() -> None:
    """Nothing to save or restart: always training. A save that takes the whole period: never."""
    assert availability(0, 100, 0) == 1.0
    assert availability(0, 0, 0) == 1.0
    assert availability(10, 100, 5, period=10) == 0.0


def test_objective_is_depth_over_availability() -> None:
    """At N = 200 J is 1.55 at r = 5 and 1.69 at r = 9 with 32 micro-batches."""
    assert objective(200, 5, 32) == pytest.approx(1.55, abs=0.01)
    assert objective(200, 9, 32) == pytest.approx(1.69, abs=0.01)
    assert objective(200, 9) == pytest.approx(mean_depth(200, 9) / availability(60, masked_mean(200, 9) * 300, 3600))


@pytest.mark.parametrize(("n", "r"), [(64, 3), (64, 5), (200, 5)])
def test_expected_depth_against_exact_schedules(n: int, r: int) -> None:
    """The mean over random trajectories is within 2 % of the formula."""
    placement, measured, formula = place(n, r), 0.0, 0.0
    for seed in range(4):
        schedule = healthy(placement, 32)
        for failed, live in enumerate(oracles.kills(n, seed), start=1):
            if failed >= masked_mean(n, r):
                break
            try:
                schedule = reorder(schedule, live).schedule
            except WipeOut:
                break
            measured += schedule.depth
            formula += expected_depth(n, r, failed, 32)

    assert measured == pytest.approx(formula, rel=0.02)
    assert expected_depth(n, r, 0, 32) == 1.0


def test_recommended_redundancy_is_sensible_for_few_groups() -> None:
    """1 for one group only, 2 or 3 up to 12, never more than there are groups."""
    assert recommended_redundancy(1) == 1
    assert all(recommended_redundancy(n) in (2, 3) for n in range(2, 13))
    assert all(recommended_redundancy(n, between_failures=60) <= n for n in range(1, 13))


def test_recommended_redundancy_in_the_papers_setting() -> None:
    """4 or 5 with 32 micro-batches, about half the paper's r*; less when failures are rare."""
    assert recommended_redundancy(200, between_failures=300) == 5
    assert recommended_redundancy(1000, between_failures=300) in (4, 5)
    assert recommended_redundancy(200, between_failures=86400) == 3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: masked_mean(0, 1), "groups is 0"),
        (lambda: masked_mean(4, 5), "redundancy is 5"),
        (lambda: lower_bound(4, 4), "failed is 4 of 4"),
        (lambda: micro_cap(4, 1, 0), "micro_batches is 0"),
        (lambda: checkpoint_period(-1, 2, 3), "save is -1"),
        (lambda: checkpoint_period(1, math.nan, 3), "to_wipe_out is nan"),
        (lambda: availability(10, 100, 5, period=9), "period is 9"),
        (lambda: availability(0, 100, 5, period=0), "period is 0"),
        (lambda: objective(8, 3, between_failures=0), "between_failures is 0"),
        (lambda: recommended_redundancy(8, between_failures=-1), "between_failures is -1"),
        (lambda: recommended_redundancy(0), "groups is 0"),
    ],
)
def test_numbers_out_of_range_are_named(call: object, words: str) -> None:
    """Each error says which number it was and what it was."""
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]
