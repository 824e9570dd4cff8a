"""`spare simulate`: one setting, the paper, the page made of the results."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.cli.test_refusals import spare

SMALL = ("simulate", "run", "--groups", "12", "--steps", "60", "--runs", "2", "--workers", "1", "-r", "3")


def test_runs_are_shown_and_written(tmp_path: Path) -> None:
    """A table, JSON with the whole setting, and one line of CSV for each run."""
    result = spare(*SMALL, "--json", tmp_path / "runs.json", "--csv", tmp_path / "runs.csv", "--replacement", "600")

    document = json.loads((tmp_path / "runs.json").read_text())
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    assert result.exit_code == 0, result.output
    assert "TTT / T0" in result.output
    assert document["setting"]["replacement"] == 600
    assert [row["seed"] for row in rows] == ["1", "2"]
    assert float(rows[0]["ratio"]) == pytest.approx(document["runs"][0]["ratio"])


def test_a_trace_replaces_the_random_process(tmp_path: Path) -> None:
    """Times and groups from a CSV; an empty group is a random one."""
    trace = tmp_path / "trace.csv"
    trace.write_text("seconds,group\n70,2\n900,\n")

    result = spare(*SMALL, "--trace", trace, "--json", tmp_path / "runs.json")

    assert result.exit_code == 0, result.output
    assert [run["failures"] for run in json.loads((tmp_path / "runs.json").read_text())["runs"]] == [2, 2]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("time,who\n1,2\n", "needed are seconds and group"),
        ("seconds,group\n1,2\nsoon,2\n", "line 3"),
        ("seconds,group\n9,2\n1,2\n", "not ascending"),
    ],
)
def test_a_wrong_trace_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    """With its line where there is one."""
    (tmp_path / "trace.csv").write_text(text)

    result = spare(*SMALL, "--trace", tmp_path / "trace.csv")

    assert result.exit_code == 2
    assert complaint in result.output


def test_wrong_settings_are_usage_errors() -> None:
    """More hosts than groups; fetch for a strategy that has none."""
    assert spare(*SMALL, "-r", "20").exit_code == 2
    assert spare(*SMALL, "--strategy", "whole", "--fetch").exit_code == 2
    assert spare(*SMALL, "--domain", "rack", "3", "1.5").exit_code == 2


@pytest.mark.parametrize("strategy", ["checkpoint", "replication", "whole"])
def test_the_other_strategies_run_too(strategy: str) -> None:
    """With racks that fail as one."""
    assert spare(*SMALL, "--strategy", strategy, "--domain", "rack", "3", "0.1", "--mtbf", "5000").exit_code == 0


def test_domains_may_be_followed() -> None:
    """Racks and zones at once, groups anywhere in them, the placement by topology."""
    domains = ("--domain", "rack", "3", "0.1", "--domain", "zone", "6", "0.05")

    assert spare(*SMALL, *domains, "--scattered", "--aware").exit_code == 0


def test_where_the_time_goes() -> None:
    """By module."""
    assert "spare.sim.engine" in spare(*SMALL, "--profile").output


@pytest.mark.slow
def test_the_page_is_made_of_the_results(tmp_path: Path) -> None:
    """A tiny run of everything; no number is missing, and the pictures are there."""
    pytest.importorskip("matplotlib")
    for command in ("paper", "beyond"):
        few = ("--trials", "10", "--depth-trials", "2") if command == "paper" else ()
        result = spare("simulate", command, "--steps", "3", "--runs", "2", "--workers", "1", "--out", tmp_path, *few)
        assert result.exit_code == 0, result.output

    result = spare("simulate", "page", "--results", tmp_path, "--out", tmp_path / "paper.md")

    page = (tmp_path / "paper.md").read_text()
    assert result.exit_code == 0, result.output
    assert "| 1000 | SPARe |" in page
    assert "nan" not in page
    assert {path.name for path in tmp_path.glob("*.png")} == {"masking.png", "against-r.png", "departures.png"}


def test_the_committed_page_is_what_its_results_give(tmp_path: Path) -> None:
    """Nobody wrote into it by hand."""
    from spare.sim.paper_page import page

    docs = Path(__file__).parents[2] / "docs"
    paper, beyond = (json.loads((docs / "simulation" / f"{name}.json").read_text()) for name in ("paper", "beyond"))

    assert page(paper, beyond, "simulation") == (docs / "paper.md").read_text()
