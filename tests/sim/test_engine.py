"""Properties that hold for every run, and the same numbers for the same seed."""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spare.planner import place
from spare.sim import Level, MicroBatches, Replicated, Setting, Strategy, WholeShards, run
from spare.sim.campaign import Case, Plan, repeat
from spare.sim.result import estimate
from spare.sim.setting import paper_setting

GOLDEN = Path(__file__).parent / "golden.json"


def strategy_of(kind: str, groups: int, redundancy: int) -> Strategy:
    if kind == "replication":
        return Replicated(groups, redundancy)
    if kind == "bundles":
        return Replicated(groups, redundancy, "bundles", redo=1.0)
    if kind == "whole":
        return WholeShards(place(groups, redundancy, "Consecutive"))
    return MicroBatches(place(groups, redundancy), 8, fetch=kind == "fetch")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kind=st.sampled_from(["replication", "bundles", "whole", "micro", "fetch"]),
    groups=st.integers(3, 24),
    redundancy=st.integers(1, 3),
    failures=st.floats(100, 3000),
    process=st.sampled_from(["exponential", "weibull"]),
    replacement=st.none() | st.floats(0, 2000),
    announced=st.sampled_from([0.0, 0.5, 1.0]),
    notice=st.sampled_from(["reduction", "at once"]),
    rack=st.sampled_from([(), (Level("rack", 3, 0.3),)]),
    falls=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_time_adds_up_and_nothing_happens_in_the_past(kind: str, seed: int, **drawn: Any) -> None:
    """The engine itself raises for an event in the past; every second is booked once; counts fit together."""
    setting = Setting(
        drawn["groups"], steps=40, restart=300.0, between_failures=drawn["failures"], process=drawn["process"],
        replacement=drawn["replacement"], announced=drawn["announced"], notice=drawn["notice"], levels=drawn["rack"],
        rate_falls=drawn["falls"],
    )  # fmt: skip

    result = run(setting, strategy_of(kind, setting.groups, drawn["redundancy"]), seed)

    assert sum(result.seconds.values()) == pytest.approx(result.total, rel=1e-9)
    assert all(seconds >= -1e-6 for seconds in result.seconds.values())
    assert 0 <= result.availability <= 1 + 1e-12
    assert result.complete or result.total >= 200 * setting.ideal
    assert 1 <= result.mean_live <= setting.groups or not result.ideal
    if setting.replacement is None:
        assert result.counts["joins"] == 0
        assert result.counts["lost groups"] <= setting.groups * (result.counts["wipe-outs"] + 1)


@pytest.mark.parametrize("kind", ["replication", "whole", "micro", "fetch"])
def test_the_same_seed_gives_the_same_run(kind: str) -> None:
    """Whatever ran before with the same strategy object; another seed gives another run."""
    setting = Setting(12, steps=200, replacement=600.0)
    strategy = strategy_of(kind, 12, 2)

    first = run(setting, strategy, 7)

    assert run(setting, strategy, 7) == first
    assert run(setting, strategy, 8) != first


def golden_now() -> dict[str, dict[str, float]]:
    setting = paper_setting(200, steps=300)
    rack = Setting(24, steps=300, levels=(Level("rack", 4, 0.5),), scattered=True, replacement=600.0, announced=0.2)
    runs = {
        "checkpoint": run(Setting(8, steps=50, between_failures=2000), Replicated(8, 1), 1),
        "replication": run(setting, Replicated(200, 3), 1),
        "whole": run(setting, WholeShards(place(200, 9, "Consecutive")), 1),
        "micro": run(setting, MicroBatches(place(200, 5)), 1),
        "rack, fetch": run(rack, MicroBatches(place(24, 2), 8, fetch=True), 1),
    }
    return {name: {"total": result.total, "depth": result.mean_depth, **result.counts} for name, result in runs.items()}


def test_golden_runs() -> None:
    """Numbers written down once: whoever changes them changes the model, and says so."""
    expected = json.loads(GOLDEN.read_text())

    found = golden_now()

    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, rel=1e-9), name


def test_a_trace_is_followed() -> None:
    """Group and time come from the file; a group that is down already does not fail again."""
    setting = Setting(
        6, steps=10, process="trace", trace=((70.0, 2), (80.0, 2), (200.0, 5)), jitter=0.0, period=1e9
    )  # fmt: skip

    result = run(setting, MicroBatches(place(6, 3), 6), 1)

    assert result.counts["failures"] == 2
    assert result.counts["wipe-outs"] == 0
    assert result.seconds["regroup"] == pytest.approx(2 * 0.2)


def test_a_whole_rack_goes_at_once_and_a_topology_aware_placement_survives_it() -> None:
    """Every failure takes a rack of four of sixteen groups: four hosts one rack apart outlive it, neighbours do not."""
    setting = Setting(
        16, steps=60, process="trace", trace=((100.0, 5),), levels=(Level("rack", 4, 1.0),), period=1e9, scattered=True
    )
    blind, aware = (Plan("micro", 4, {"micro_batches": 8, "aware": flag}) for flag in (False, True))

    result = run(setting, aware.build(setting), 1)

    assert result.counts["lost groups"] == 4
    assert result.counts["wipe-outs"] == 0
    assert run(setting, blind.build(setting), 1).counts["lost groups"] == 4
    beside = run(Setting(16, steps=60, process="trace", trace=((100.0, 5),), levels=setting.levels, period=1e9),
                 MicroBatches(place(16, 4, "Consecutive"), 8), 1)  # fmt: skip
    assert beside.counts["wipe-outs"] == 1


def test_an_announced_loss_costs_no_patch() -> None:
    """The group leaves between two steps."""
    setting = Setting(12, steps=100, announced=1.0, replacement=600.0)

    result = run(setting, MicroBatches(place(12, 4), 8), 1)

    assert result.counts["lost groups"] > 10
    assert result.seconds["patch"] == 0


def test_fetching_replaces_the_restart() -> None:
    """The same losses: with fetch no restart, and the time of the fetch is booked."""
    setting = Setting(
        6, steps=30, process="trace", trace=((100.0, 0), (110.0, 1)), jitter=0.0, period=1e9
    )  # fmt: skip

    without = run(setting, MicroBatches(place(6, 1), 6), 1)
    fetching = run(setting, MicroBatches(place(6, 1), 6, fetch=True), 1)

    assert without.counts["wipe-outs"] == 1
    assert fetching.counts["wipe-outs"] == 0
    assert fetching.counts["fetches"] == 2
    assert fetching.seconds["fetch"] > 0
    assert fetching.mean_depth > 1.3


def test_a_job_that_cannot_progress_is_given_up() -> None:
    """A save never comes before the next failure."""
    setting = Setting(4, steps=100, between_failures=5, process="exponential", restart=600)

    result = run(setting, Replicated(4, 1), 1, limit=5)

    assert not result.complete
    assert result.total >= 5 * setting.ideal


def test_a_job_in_which_no_time_passes_is_given_up() -> None:
    """Restarts that take nothing, failures without a pause: 200 times T0 never comes."""
    setting = Setting(2, steps=5, between_failures=1e-300, restart=0.0, jitter=0.0)

    result = run(setting, Replicated(2, 1), 1)

    assert not result.complete
    assert result.counts["wipe-outs"] == 10_000


def test_interrupted_runs_leave_no_process_behind() -> None:
    """Whatever ends the parent's wait ends the workers, too, though their runs would take minutes."""
    cases = [Case("long", Setting(60, steps=10_000_000, replacement=60.0), Plan("micro", 4), 1),
             Case("short", Setting(8, steps=5), Plan("micro", 3), 1)]  # fmt: skip

    class Enough(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise Enough

    before = set(multiprocessing.active_children())
    began = time.monotonic()
    with pytest.raises(Enough):
        repeat([cases[1], cases[0]], 1, 2, stop)

    assert set(multiprocessing.active_children()) <= before
    assert time.monotonic() - began < 60


def test_results_do_not_depend_on_the_number_of_processes() -> None:
    """Two workers, one worker: equal."""
    cases = [Case("a", Setting(8, steps=50), Plan("micro", 3), 2), Case("b", Setting(8, steps=50), Plan("whole", 3), 1)]
    seen: list[tuple[int, int]] = []

    alone = repeat(cases, 5, 1, lambda done, total: seen.append((done, total)))

    assert repeat(cases, 5, 2) == alone
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert [len(outcome.results) for outcome in alone] == [2, 1]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"groups": 0}, "groups is 0"),
        ({"save": -1.0}, "save is -1.0"),
        ({"replacement": -1.0}, "replacement is -1.0"),
        ({"announced": 2.0}, "announced is 2.0"),
        ({"levels": (Level("rack", 2, 0.7), Level("zone", 4, 0.7))}, "levels have shares that sum to 1.4"),
        ({"levels": (Level("rack", 0, 0.1),)}, "rack has size 0"),
        ({"levels": (Level("rack", 3, float("nan")),)}, "share nan"),
        ({"compute": float("inf")}, "compute is inf"),
        ({"compute": 0.0, "reduction": 0.0}, "both 0"),
        ({"shape": 0.001}, "shape is 0.001; allowed is 0.1 to 100"),
        ({"jitter": 2.0}, "jitter is 2.0"),
        ({"trace": ((2.0, 1), (1.0, 1))}, "trace is not ascending"),
        ({"trace": ((float("nan"), 1),)}, "trace is not ascending"),
        ({"trace": ((-1.0, 1),)}, "trace is not ascending"),
        ({"trace": ((2.0, 9),)}, "names group 9; allowed is 0 to 7"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, Any], complaint: str) -> None:
    """With the name and the value."""
    with pytest.raises(ValueError, match=complaint):
        Setting(**({"groups": 8} | changes))


def test_an_interval_of_the_mean() -> None:
    """Student's t for few values; none for one; no values are refused."""
    assert estimate([1.0, 3.0]).half == pytest.approx(12.706)
    assert estimate([2.0]).half == float("inf")
    with pytest.raises(ValueError, match="no values"):
        estimate([])
