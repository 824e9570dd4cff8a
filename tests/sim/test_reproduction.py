"""The paper's results in little: N = 200, its order and 15 %; and the formulas of `spare plan` against simulation."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest

from spare.planner import place
from spare.sim import MicroBatches, Replicated, Setting, WholeShards, run
from spare.sim.campaign import Plan
from spare.sim.masking import masked
from spare.sim.published import REPLICATION, SPARE
from spare.sim.setting import paper_setting
from spare.sim.sizing import (
    Job,
    checkpoint_only,
    choices,
    failures_to_wipe_out,
    micro,
    recommended,
    survival,
    time_shares,
)

JOB = Job(200, compute=64, reduction=2, between_failures=300, restart=3600, micro_batches=32)


def test_the_papers_order_at_200_groups() -> None:
    """SPARe within 15 % of the paper's, less than replication; ours less again, and least with replacement."""
    setting = paper_setting(200, steps=2000)

    spare = run(setting, WholeShards(place(200, 9, "Consecutive")), 1).ratio
    replication = run(setting, Replicated(200, 3), 1).ratio
    ours = run(setting, MicroBatches(place(200, 5)), 1).ratio
    replaced = run(replace(setting, replacement=600.0), MicroBatches(place(200, 5)), 1).ratio

    assert spare == pytest.approx(SPARE[200].ratio, rel=0.15)
    assert replaced < 1.15 < ours < 1.75 < spare < replication


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("rate_falls", "within"), [(True, 0.15), (False, 0.1)])
def test_both_of_the_papers_columns_at_200_groups(rate_falls: bool, within: float) -> None:
    """Three whole runs, a layer again for each failure: within the goal where the rate of failures does not fall."""
    setting = paper_setting(200, rate_falls=rate_falls)

    spare = [run(setting, WholeShards(place(200, 9, "Consecutive")), seed).ratio for seed in (1, 2, 3)]
    replication = [run(setting, Replicated(200, 3, redo=1.0, each=True), seed).ratio for seed in (1, 2, 3)]

    assert sum(spare) / 3 == pytest.approx(SPARE[200].ratio, rel=within)
    assert sum(replication) / 3 == pytest.approx(REPLICATION[200].ratio, rel=within)
    assert max(spare) < min(replication)


def test_sizes_by_formula_are_those_of_the_simulation() -> None:
    """r = 5 without and with replacement."""
    setting = paper_setting(200, steps=2500, process="exponential")
    replaced = replace(JOB, replacement=600.0)

    alone = run(setting, MicroBatches(place(200, 5)), 4).ratio
    together = run(replace(setting, replacement=600.0), MicroBatches(place(200, 5)), 4).ratio

    assert micro(JOB, 5).ratio == pytest.approx(alone, rel=0.07)
    assert micro(replaced, 5).ratio == pytest.approx(together, rel=0.03)


def test_wipe_outs_under_replacement_are_as_rare_as_the_formula_says() -> None:
    """Failures per wipe-out with r = 2 and five groups away on average, without the paper's falling rate."""
    setting = paper_setting(
        40,
        steps=4000,
        process="exponential",
        replacement=1500.0,
        rate_falls=False,
        compute=4.0,
        reduction=0.0,
        join=0.0,
    )
    job = Job(40, between_failures=300, replacement=1500.0)

    result = run(setting, Replicated(40, 3), 1)

    # Not stationary: each start has everybody, so the first failures are safer than the formula takes them to be.
    measured = result.counts["lost groups"] / result.counts["wipe-outs"]
    assert failures_to_wipe_out(job, 3) == pytest.approx(measured, rel=0.35)


@pytest.mark.parametrize(("groups", "redundancy"), [(2, 2), (4, 2), (8, 3), (8, 8), (16, 4), (64, 2), (200, 5)])
def test_failures_to_a_wipe_out_are_those_of_monte_carlo(groups: int, redundancy: int) -> None:
    """For few groups, too, where the paper's mu is the limit of many: two groups that host all outlive one loss."""
    measured = statistics.fmean(masked(place(groups, redundancy), 1500, 1))

    assert failures_to_wipe_out(Job(groups), redundancy) == pytest.approx(measured, rel=0.04)
    assert sum(survival(groups, redundancy)) == failures_to_wipe_out(Job(groups), redundancy)


@pytest.mark.parametrize(
    ("groups", "redundancy", "between_failures", "replacement"),
    [
        (2, 2, 3600.0, None),
        (8, 3, 3600.0, None),
        (8, 6, 3600.0, None),
        (8, 3, 3600.0, 1800.0),
        (8, 3, 3600.0, 72_000.0),  # replacements that come after the wipe-out
        (64, 9, 86_400.0, None),  # two failures in the whole work: far from a wipe-out
    ],
)
def test_small_and_calm_jobs_take_as_long_as_simulated(
    groups: int, redundancy: int, between_failures: float, replacement: float | None
) -> None:
    """Means over steps, not over states: who is deep is so for long, and commits little in that time."""
    steps = 3000 if groups == 64 else 6000
    setting = Setting(
        groups, steps=steps, compute=60.0, reduction=0.0, restart=600.0, between_failures=between_failures,
        process="exponential", jitter=0.0, replacement=replacement,
    )  # fmt: skip
    job = Job(
        groups, compute=60.0, work=steps * 60.0, between_failures=between_failures, restart=600.0,
        replacement=replacement,
    )  # fmt: skip
    strategy = MicroBatches(place(groups, redundancy), 8)

    measured = statistics.fmean(run(setting, strategy, seed).ratio for seed in (1, 2, 3, 4))

    assert micro(job, redundancy).ratio == pytest.approx(measured, rel=0.07)


def test_shares_of_the_time_sum_to_one() -> None:
    """Also for so many away that the tail lies on N - 1; and nobody is away before the first failure."""
    assert sum(time_shares(replace(JOB, replacement=600.0), 5)) == pytest.approx(1)
    assert sum(time_shares(Job(4, between_failures=1, replacement=100), 2)) == pytest.approx(1)
    assert sum(time_shares(Job(4, work=1e9), 2)) == pytest.approx(1)
    assert time_shares(Job(4, between_failures=1e12), 2)[0] == pytest.approx(1)


def test_checkpoints_alone_are_recommended_where_they_are_faster() -> None:
    """Few groups without replacement: each loss makes every step so much deeper that a quick restart is better."""
    job = Job(8, between_failures=3600.0)

    assert recommended(choices(job)).strategy == "checkpoint only"
    assert recommended(choices(replace(job, replacement=300.0))).strategy == "micro-batches"


def test_any_redundancy_may_be_asked_for() -> None:
    """Also more than is worth a try."""
    assert [c.redundancy for c in choices(Job(8), 8) if c.strategy == "micro-batches"] == [2, 3, 4, 5, 6, 8]
    assert choices(Job(8), 1) == choices(Job(8))


def test_saves_that_cost_nothing_come_after_each_step() -> None:
    """Then a failure costs a restart and the step in flight."""
    job = Job(8, between_failures=3600.0, save=0.0, restart=600.0)

    assert checkpoint_only(job).ratio == pytest.approx(4200 / 60 * math.expm1(60 / 3600))
    assert math.isfinite(micro(job, 3).ratio)


def test_a_checkpoint_is_not_in_the_middle_of_a_step() -> None:
    """Where the best period would be 16 s of a step of 60, the simulation and the formula wait for the step's end."""
    job = Job(8, compute=60.0, between_failures=120.0, save=1.0, restart=10.0)
    setting = Setting(
        8, steps=3000, process="exponential", jitter=0.0, notice="at once", compute=60.0, reduction=0.0,
        between_failures=120.0, save=1.0, restart=10.0,
    )  # fmt: skip

    result = run(setting, Plan("checkpoint", 1, {}).build(setting), 1)

    assert checkpoint_only(job).ratio == pytest.approx(result.total / (3000 * 60), rel=0.04)


def test_a_hopeless_checkpoint_is_infinitely_slow() -> None:
    """And one group has nothing else."""
    job = Job(1, between_failures=1, save=1, restart=1e6, period=1e6)

    assert math.isinf(checkpoint_only(job).ratio)
    assert [choice.strategy for choice in choices(job)] == ["checkpoint only"]
    assert recommended(choices(job)).redundancy == 1


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"groups": 0}, "groups is 0"),
        ({"save": -1.0}, "save is -1.0"),
        ({"replacement": -1.0}, "replacement is -1.0"),
        ({"period": 10.0}, "period is 10.0"),
        ({"work": math.inf}, "work is inf"),
        ({"restart": math.nan}, "restart is nan"),
    ],
)
def test_wrong_jobs_are_refused(changes: dict[str, float], complaint: str) -> None:
    """With the name and the value."""
    with pytest.raises(ValueError, match=complaint):
        replace(JOB, **changes)  # type: ignore[arg-type]
