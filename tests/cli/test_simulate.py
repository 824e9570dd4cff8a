"""`spare simulate`: one setting, the paper, the page made of the results."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean

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
    for row, run in zip(rows, document["runs"], strict=True):
        assert {key: str(value) for key, value in run.items()} == row
        assert sum(value for key, value in run.items() if key.startswith("seconds_")) == pytest.approx(run["total"])
    line = next(line for line in result.output.splitlines() if line.startswith("│ micro"))
    ratio, availability, depth = (cell.strip() for cell in line.split("│")[5:8])
    assert ratio.split(" ")[0] == f"{fmean(run['ratio'] for run in document['runs']):.3f}"
    assert availability == f"{fmean(run['availability'] for run in document['runs']):.2%}"
    assert depth == f"{fmean(run['mean_depth'] + run['mean_patch'] for run in document['runs']):.3f}"


def test_a_trace_replaces_the_random_process(tmp_path: Path) -> None:
    """Times and groups from a CSV; an empty group is a random one."""
    trace = tmp_path / "trace.csv"
    trace.write_text("seconds,group\n70,2\n900,\n")

    result = spare(*SMALL, "--trace", trace, "--json", tmp_path / "runs.json")

    assert result.exit_code == 0, result.output
    assert [run["failures"] for run in json.loads((tmp_path / "runs.json").read_text())["runs"]] == [2, 2]


def test_saves_follow_the_traces_own_rate(tmp_path: Path) -> None:
    """Not the paper's 300 s, which nobody has named."""
    (tmp_path / "trace.csv").write_text("seconds,group\n7000,2\n9000,\n")
    plain = ("simulate", "run", "--groups", "12", "-r", "3", "--steps", "20", "--runs", "1", "--workers", "1")

    for more, mean in (((), 4500), (("--mtbf", "1h"), 3600)):
        result = spare(*plain, "--trace", tmp_path / "trace.csv", "--json", tmp_path / "runs.json", *more)
        assert result.exit_code == 0, result.output
        assert json.loads((tmp_path / "runs.json").read_text())["setting"]["between_failures"] == mean


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("time,who\n1,2\n", "needed are seconds and group"),
        ("", "the columns are missing"),
        ("seconds;group\n1;2\n", "the columns are seconds;group"),
        ("seconds,group\n1,2\nsoon,2\n", "line 3: seconds is 'soon'; allowed is a number from 0 up"),
        ("seconds,group\nnan,2\n", "line 2: seconds is 'nan'"),
        ("seconds,group\n-5,2\n", "line 2: seconds is '-5'"),
        ("seconds,group\n5,12\n", "line 2: group is '12'; allowed is 0 to 11, or nothing for any group"),
        ("seconds,group\n5,-1\n", "line 2: group is '-1'"),
        ("seconds,group\n5,1,7\n", "line 2: 3 fields"),
        ("seconds,group\n9,2\n1,2\n", "line 3: seconds are 1 after 9; they must ascend"),
    ],
)
def test_a_wrong_trace_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    """With its line where there is one, the value and what may stand there."""
    (tmp_path / "trace.csv").write_text(text)

    result = spare(*SMALL, "--trace", tmp_path / "trace.csv")

    assert result.exit_code == 2
    assert complaint in result.output


def test_a_trace_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """An executable, say; and what another program saved with a mark of its encoding is read."""
    trace = tmp_path / "trace.csv"
    trace.write_bytes(b"seconds,group\n\xff\xfe,1\n")
    assert "is no text in UTF-8" in spare(*SMALL, "--trace", trace).output

    trace.write_bytes(b"\xef\xbb\xbfgroup, seconds\r\n1, 5\r\n\r\n2, 5\r\n")
    assert spare(*SMALL, "--trace", trace).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-r", "20"], "redundancy is 20; allowed is 1 to groups, 12"),
        (["--groups", "100000000"], "is not in the range 1<=x<=10000"),
        (["--compute", "inf"], "'inf': a duration is written like"),
        (["--compute", "1e308"], "'1e308' is out of range"),
        (["--compute", "0", "--reduction", "0"], "compute and reduction are both 0"),
        (["--mtbf", "0"], "'--mtbf': '0' is out of range; allowed is more than 0s"),
        (["--shape", "1e-300"], "'--shape': '1e-300' is no number from 0.1 to 100"),
        (["--announced", "nan"], "'nan' is no number from 0 to 1"),
        (["--domain", "rack", "3", "1.5"], "'1.5' is no number from 0 to 1"),
        (["--domain", "rack", "0", "0.5"], "0 is not in the range x>=1"),
        (["--domain", "rack", "3", "0.6", "--domain", "zone", "6", "0.6"], "shares that sum to 1.2"),
        (["--strategy", "whole", "--fetch"], "--fetch has no effect on the strategy whole; it is for micro"),
        (["--strategy", "checkpoint"], "--redundancy has no effect on the strategy checkpoint"),
        (["--redo", "1"], "--redo has no effect on the strategy micro; it is for replication"),
        (["--aware"], "--aware has no effect without --domain"),
        (["--fetch-time", "3s"], "--fetch-time has no effect without --fetch"),
        (["--process", "exponential", "--shape", "1"], "--shape has no effect on the process exponential"),
        (["--json", "/nowhere/runs.json"], "'--json': '/nowhere/runs.json': there is no folder '/nowhere'"),
        (["--json", "-"], "'-' is no file here"),
        (["--json", "pair", "--csv", "./pair"], "--json and --csv name the same file, pair"),
        (["--seed", "-1"], "-1 is not in the range x>=0"),  # Python's generator makes the same of -1 and 1
    ],
)
def test_wrong_settings_are_usage_errors(arguments: list[str], complaint: str) -> None:
    """With the option, the value and what is allowed; and whatever would change nothing."""
    result = spare(*SMALL, *arguments)

    assert result.exit_code == 2
    assert complaint in result.output


def test_results_that_do_not_fit_leave_those_that_were_there(tmp_path: Path) -> None:
    """The disk that is full is a limit to the size of a file."""
    good, limit = tmp_path / "runs.json", "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
    good.write_text("good")
    write = f"{limit} from pathlib import Path; from spare.cli.results import write_json; import sys;"
    command = [sys.executable, "-c", f"{write} write_json(Path(sys.argv[1]), list(range(1000)))", str(good)]

    result = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert f"{good} cannot be written: File too large" in result.stderr
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("runs.json", "good")]


def test_a_run_that_never_ends_is_given_up(tmp_path: Path) -> None:
    """The table says so, and JSON has null where there is no end."""
    hopeless = ("--groups", "3", "--mtbf", "1e-300", "--restart", "0s", "--jitter", "0")

    result = spare(*SMALL, *hopeless, "--json", tmp_path / "runs.json")

    assert result.exit_code == 0, result.output
    assert "2 of 2 given" in result.output
    document = json.loads((tmp_path / "runs.json").read_text(), parse_constant=pytest.fail)
    assert [run["ratio"] for run in document["runs"]] == [None, None]


def test_assumptions_may_be_changed(tmp_path: Path) -> None:
    """Each of them is an option, and arrives."""
    changed = ("--micro-batches", "8", "--period", "20m", "--jitter", "0", "--constant-rate", "--replacement", "10m",
               "--join-time", "7s", "--step-time", "30s", "--fetch", "--fetch-time", "9")  # fmt: skip

    result = spare(*SMALL, *changed, "--json", tmp_path / "runs.json")

    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "runs.json").read_text())
    expected = {
        "period": 1200,
        "jitter": 0,
        "rate_falls": False,
        "replacement": 600,
        "join": 7,
        "compute": 30,
        "fetch": 9,
    }
    assert expected.items() <= document["setting"].items()
    assert document["plan"]["options"] == {"micro_batches": 8, "fetch": True}


def _gone(group: int, seconds: float) -> bool:
    """Whether no process of a process group is left; those that end are given so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def _at_work(pid: int, workers: int, deadline: float) -> bool:
    """Whether so many children have computed for two seconds: then they are past their imports."""
    ticks, end = os.sysconf("SC_CLK_TCK"), time.monotonic() + deadline
    while time.monotonic() < end:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        spent = [Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11] for child in children]
        if sum(int(each) >= 2 * ticks for each in spent) >= workers:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("whole_group", [True, False])
def test_ctrl_c_ends_all_processes_at_once(tmp_path: Path, whole_group: bool) -> None:
    """From the terminal it reaches the workers, too; from elsewhere only the one that waits for them."""
    command = [sys.executable, "-c", "from spare.cli.main import main; main()", "simulate", "run", "--groups", "200"]
    with (tmp_path / "errors").open("w") as errors, subprocess.Popen(
        [*command, "--runs", "4", "--workers", "2", "--steps", "1000000"],
        stderr=errors, stdout=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        assert _at_work(process.pid, workers=2, deadline=60.0), (tmp_path / "errors").read_text()
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
        code = process.wait(timeout=30)

    assert code == 130
    assert (tmp_path / "errors").read_text() == "spare: Ctrl-C\n"
    assert _gone(process.pid, 10.0), "processes of the run are left"


@pytest.mark.parametrize("text", ["", "[", "{}", '{"parameters": {}}'])
def test_results_of_another_kind_make_no_page(tmp_path: Path, text: str) -> None:
    """Missing, no JSON, or without what the page needs: said in a line, and nothing is written."""
    pytest.importorskip("matplotlib")
    if text:
        for name in ("paper", "beyond"):
            (tmp_path / f"{name}.json").write_text(text)

    result = spare("simulate", "page", "--results", tmp_path, "--out", tmp_path / "paper.md")

    assert result.exit_code == 2
    assert str(tmp_path) in result.output
    assert not (tmp_path / "paper.md").exists()


@pytest.mark.parametrize("strategy", ["checkpoint", "replication", "whole"])
def test_the_other_strategies_run_too(strategy: str) -> None:
    """With racks that fail as one."""
    r = () if strategy == "checkpoint" else ("-r", "3")
    small = [argument for argument in SMALL if argument not in ("-r", "3")]

    result = spare(*small, *r, "--strategy", strategy, "--domain", "rack", "3", "0.1", "--mtbf", "5000")

    assert result.exit_code == 0, result.output


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
