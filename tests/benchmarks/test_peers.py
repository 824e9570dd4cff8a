"""The bookkeeping of benchmarks/peers: what it would say of a system that loses, repeats or redoes, it must say."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"
Journals = dict[str, list[dict[str, Any]]]


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that judges."""
    monkeypatch.syspath_prepend(str(FOLDER))  # its modules are run as scripts
    return importlib.import_module("audit")


def step(at: float, number: int, groups: tuple[int, ...], counts: dict[int, float] | None = None) -> Journals:
    """Each group computes two micro-batches of a step and commits what they hold together, half a second later."""
    own = {g: [(number * 4 + g) * 2, (number * 4 + g) * 2 + 1] for g in groups}
    counts = {n: 1.0 for each in own.values() for n in each} if counts is None else counts
    found: Journals = {}
    for g in groups:
        computed = [
            {"event": "computed", "at": at + 0.1 * i, "group": g, "step": number, "number": n}
            for i, n in enumerate(own[g])
        ]
        commit = {"event": "committed", "at": at + 0.5, "group": g, "step": number, "counts": counts}
        found[f"{g}-1"] = [*computed, json.loads(json.dumps(commit))]
    return found


def run(*parts: Journals) -> Journals:
    """Journals one after another."""
    found: Journals = {}
    for part in parts:
        for name, events in part.items():
            found.setdefault(name, []).extend(events)
    return found


ALL = (0, 1, 2, 3)


def calm(steps: range) -> Journals:
    """Steps of one second in which nothing happens."""
    return run(*(step(float(n), n, ALL) for n in steps))


def test_nothing_is_said_of_a_calm_run(audit: ModuleType) -> None:
    """One second a step, and every micro-batch once."""
    found = audit.audit(calm(range(12)))

    assert (found.step_time, found.recovery, found.rejoin) == (pytest.approx(1.0), None, None)
    assert (found.redone, found.lost, found.repeated, found.wasted, found.smallest) == (0, 0, 0, 0, 8)


def test_a_known_loss_is_counted(audit: ModuleType) -> None:
    """A step committed without one group's two micro-batches, and the stream goes on behind them."""
    found = audit.audit(run(calm(range(8)), step(8.0, 8, (0, 1, 3)), step(9.0, 9, ALL)))

    assert (found.lost, found.repeated, found.wasted, found.smallest) == (2, 0, 0, 6)


def test_how_a_system_gets_together_is_no_loss(audit: ModuleType) -> None:
    """Step 0 by one group alone: nothing has failed yet; from step 5 on everything counts."""
    found = audit.audit(run(step(0.0, 0, (0,)), calm(range(1, 9))))

    assert (found.lost, found.smallest) == (0, 8)


def test_micro_batches_that_count_twice_are_counted(audit: ModuleType) -> None:
    """In one step's gradient twice, and in two steps' gradients."""
    twice = dict.fromkeys(range(64, 72), 1.0) | {64: 2.0, 3: 1.0}
    found = audit.audit(run(calm(range(8)), step(8.0, 8, ALL, twice), calm(range(9, 11))))

    assert (found.lost, found.repeated) == (0, 2)


def test_steps_that_were_rolled_back_are_redone_and_not_repeated(audit: ModuleType) -> None:
    """A restart at step 8 goes on from a checkpoint of step 5: three steps' gradients were for nothing."""
    again = run(*(step(20.0 + n, n, ALL) for n in range(5, 10)))
    kill = [{"event": "killed", "at": 7.9, "group": 2, "step": 8, "point": "mid"}]
    later = {name.replace("-1", "-2"): [{"event": "start", "at": 20.0, "group": int(name[0])}, *events]
             for name, events in again.items()}  # fmt: skip
    found = audit.audit(run(calm(range(8)), {"2-1": kill}, later))

    assert (found.redone, found.lost, found.repeated, found.wasted) == (3, 0, 0, 24)
    assert found.recovery == pytest.approx(28.5 - 7.9)
    assert (found.rejoin, found.rejoin_stall) == (pytest.approx(25.5 - 7.9), None)


def test_a_group_that_comes_back_while_the_others_go_on(audit: ModuleType) -> None:
    """Killed between steps 7 and 8; step 8 comes three seconds later; its next process commits step 11, for which the
    others wait two seconds more than usual."""
    kill = [{"event": "killed", "at": 7.6, "group": 2, "step": 7, "point": "between"}]
    rest = [step(10.1, 8, (0, 1, 3)), step(11.1, 9, (0, 1, 3)), step(12.1, 10, (0, 1, 3)), step(15.1, 11, ALL)]
    after = run(*rest)
    own = {"2-2": [{"event": "start", "at": 9.0, "group": 2}, *after.pop("2-1")]}
    found = audit.audit(run(calm(range(8)), {"2-1": kill}, after, own))

    assert found.recovery == pytest.approx(3.0)
    assert found.rejoin == pytest.approx(8.0)
    assert found.rejoin_stall == pytest.approx(2.0)
    assert found.lost == 6


def test_a_torn_line_is_dropped(audit: ModuleType) -> None:
    """The process died while it wrote it."""
    assert audit.read(['{"event": "start"}', '{"event": "comp']) == [{"event": "start"}]


def test_the_witness_tells_what_is_in_a_gradient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever is added up: here micro-batch 3 once and micro-batch 5 twice; the loss is the model's own."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("JOURNAL", str(tmp_path))
    workload = importlib.import_module("workload")
    monkeypatch.setattr(workload.gpt, "WIDTH", 12)
    module = workload.Workload()
    for number in (3, 5, 5):
        loss = module(number)
        (loss / 8).backward()

    assert module.witnessed(1 / 8) == {3: 1.0, 5: 2.0}
    assert loss.item() == pytest.approx(workload.gpt.loss_of(module.gpt, range(20, 24)).item())
    workload.Journal(1).committed(4, module.witnessed(1 / 8))
    [book] = tmp_path.glob("1-*.jsonl")
    events = audit_lines(book)
    assert [e["event"] for e in events] == ["start", "committed"]
    assert events[1]["counts"] == {"3": 1.0, "5": 2.0}


def audit_lines(book: Path) -> list[dict[str, Any]]:
    """A journal's events."""
    return [json.loads(line) for line in book.read_text().splitlines()]


def test_the_page_is_made_of_the_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Table with ratios to ours, JSON and picture; medians of times, the worst of counts."""
    monkeypatch.syspath_prepend(str(FOLDER))
    report = importlib.import_module("report")
    base = {"rejoin": 4.0, "rejoin_stall": 0.1, "redone": 0, "repeated": 0, "wasted": 1, "smallest": 8.0}
    rows = [
        {"system": "SPARe", "point": "mid", "run": i, "step_time": 0.05, "recovery": t, "lost": 0, **base}
        for i, t in enumerate((0.1, 0.2, 0.9))
    ]
    rows += [
        {"system": "other", "point": "mid", "run": i, "step_time": 0.1, "recovery": 2.0, "lost": i, **base}
        for i in (0, 3)
    ]
    found = {"versions": {"torch": "x"}, "rows": rows}
    report.write(found, {"SPARe": "default"}, tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()

    assert "| SPARe | in mid-step | 50.0 [50.0 to 50.0] | 0.20 [0.10 to 0.90] |" in page
    other = "| other | in mid-step | 100.0 [100.0 to 100.0] (2.00x) | 2.00 [2.00 to 2.00] (10.00x) |"
    assert other in page
    assert "(1.00x) | 0 | 3 | 0 | 1 | 8 |" in page
    assert json.loads((tmp_path / "benchmarks.json").read_text()) == found
    assert (tmp_path / "benchmarks.png").stat().st_size > 1000
