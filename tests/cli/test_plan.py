"""`spare plan`: sizes from numbers or a job file, and who computes what after a loss."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_refusals import job_file, spare

PAPER = (
    *("plan", "--groups", "200", "--gpus-per-group", "3000", "--step-time", "64s", "--reduce-time", "2s"),
    *("--mtbf", "300s", "--restart-time", "1h", "--micro-batches", "32"),
)


def test_the_papers_job_should_have_five_hosts_per_shard() -> None:
    """A table with the recommendation and every choice; the numbers of the paper's setting."""
    result = spare(*PAPER, "--shard-size", "20GB", "--gradient-size", "2TB")

    assert result.exit_code == 0, result.output
    assert "recommended redundancy             5" in result.output
    assert "100 GB" in result.output
    assert "4 TB" in result.output
    for strategy in ("checkpoint only", "replication", "whole shards", "micro-batches"):
        assert strategy in result.output


def test_replacements_make_less_redundancy_enough() -> None:
    """As JSON: null for what has no end, the offsets of the placement, and a time close to T0."""
    alone = json.loads(spare(*PAPER, "-o", "json").output)
    replaced = json.loads(spare(*PAPER, "-o", "json", "--replacement", "10m").output)

    assert replaced["recommended"]["ratio"] < 1.15 < alone["recommended"]["ratio"]
    assert replaced["shown"] == replaced["recommended"]
    assert len(replaced["offsets"]) == replaced["recommended"]["redundancy"]
    assert replaced["choices"][0]["strategy"] == "checkpoint only"


def test_a_job_file_says_groups_and_micro_batches(tmp_path: Path) -> None:
    """And its own redundancy is what is shown, beside the recommended one."""
    result = spare("plan", job_file(tmp_path, groups=12, redundancy=3), "--mtbf-node", "90d", "-o", "json")

    document = json.loads(result.stdout)
    assert document["job"]["groups"] == 12
    assert document["shown"]["redundancy"] == 3
    assert document["job"]["between_failures"] == pytest.approx(90 * 86400 / (12 / 8))


def test_a_picture_as_text() -> None:
    """Without matplotlib."""
    assert "expected time / T0 against r" in spare(*PAPER, "--plot", "-").output


def test_a_picture_in_a_file(tmp_path: Path) -> None:
    """A PNG."""
    pytest.importorskip("matplotlib")
    picture = tmp_path / "plan.png"

    assert spare(*PAPER, "--plot", picture).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("command", [("--help",), ("run", "--help"), PAPER])
def test_nothing_heavy_is_imported(command: tuple[str, ...]) -> None:
    """Neither for help, nor to run a job, nor for sizes without a picture."""
    program = (
        "import sys\nfrom spare.cli.main import main\n"
        f"main({list(command)!r}, standalone_mode=False)\n"
        "assert not {'numpy', 'matplotlib'} & set(sys.modules)\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_who_computes_what_after_a_loss(tmp_path: Path) -> None:
    """Text names groups, micro-batches and reasons; JSON holds the same, and everything is computed once."""
    job = job_file(tmp_path, groups=8, redundancy=3)

    text = spare("plan", "--explain", job, "--lost", "3,7").output
    document = json.loads(spare("plan", "--explain", job, "--lost", "3,7", "-o", "json").output)

    assert "groups 3, 7 lost: 16 micro-batches given to" in text
    assert "lost host 3" in text
    assert "patch now" in text
    computed = [
        (shard, first + number)
        for group in document["groups"]
        for shard, first, count in group["step"]
        for number in range(count)
    ]
    assert len(computed) == len(set(computed)) == 8 * 8
    assert sum(count for group in document["groups"] for _, _, count in group["patch"]) == document["missing"] == 16


def test_whole_shards_are_explained_as_such(tmp_path: Path) -> None:
    """What the job would do under its own scheduler."""
    job = job_file(tmp_path, groups=8, redundancy=3, scheduler="WholeShards")

    assert (
        "1 shard given to 1 host, 0 moved, depth 1.000 -> 2.000"
        in spare("plan", "--explain", job, "--lost", "3").output
    )
    assert json.loads(spare("plan", job, "--mtbf", "1h", "-o", "json").output)["job"]["micro_batches"] == 1


def test_a_wipe_out_is_explained(tmp_path: Path) -> None:
    """Which shard, and who had it; as text and as JSON."""
    job = job_file(tmp_path, groups=4, redundancy=2)

    text = spare("plan", "--explain", job, "--lost", "0,1").output
    document = json.loads(spare("plan", "--explain", job, "--lost", "0,1", "-o", "json").output)

    assert "wipe-out: shard" in text
    assert "spec.onWipeOut" in text
    assert all(sorted(hosts) == [0, 1] for hosts in document["hosts"].values())


HOUR = ("--groups", "4", "--mtbf", "1h")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--mtbf", "1h"], "--groups or a JOB_FILE is needed"),
        (["--groups", "4"], "exactly one of --mtbf-gpu, --mtbf, --mtbf-node is needed; 0 are given"),
        ([*HOUR, "--mtbf-gpu", "1h"], "2 are given"),
        ([*HOUR, "--gpus-per-node", "4"], "--gpus-per-node has no effect without --mtbf-node"),
        (["--groups", "0", "--mtbf", "1h"], "0 is not in the range 1<=x<=10000"),
        (["--groups", "10001", "--mtbf", "1h"], "10001 is not in the range 1<=x<=10000"),
        (["--groups", "4", "--mtbf", "0s"], "'--mtbf': '0s' is out of range; allowed is more than 0s, up to 1000000d"),
        (["--groups", "4", "--mtbf", "1000001d"], "'1000001d' is out of range"),
        (["--groups", "4", "--mtbf", "5"], "needs a unit"),
        (["--groups", "4", "--mtbf", "xd"], "days are written like 90d"),
        (["--groups", "4", "--mtbf", "nand"], "days are written like 90d"),
        (["--groups", "4", "--mtbf=-3d"], "days are written like 90d"),
        (["--groups", "4", "--mtbf", "1e308d"], "days are written like 90d"),
        ([*HOUR, "--step-time", "0s"], "'--step-time': '0s' is out of range"),
        ([*HOUR, "--shard-size", "3 lots"], "'--shard-size': '3 lots' is not a size such as 20GB"),
        ([*HOUR, "--shard-size", "nanGB"], "'nanGB' is not a size"),
        ([*HOUR, "--shard-size=-3GB"], "'-3GB' is not a size"),
        ([*HOUR, "--shard-size", "9999999PB"], "allowed is 0B to 1000000PB"),
        ([*HOUR, "--micro-batches", "1025"], "1025 is not in the range 1<=x<=1024"),
        ([*HOUR, "--redundancy", "9"], "redundancy is 9; allowed is 1 to groups, 4"),
        ([*HOUR, "--plot", "/nowhere/plan.png"], "there is no folder '/nowhere'"),
        ([*HOUR, "--plot", "plan.txt"], "'plan.txt': the name has to end in .png"),
        ([*HOUR, "--plot", "-", "-o", "json"], "--plot - would not be JSON"),
        (["--groups", "1", "--mtbf", "1h", "--plot", "one.png"], "nothing to draw"),
        (["--explain", "--lost", "1"], "--explain needs a JOB_FILE"),
        (["--lost", "1,x"], "'1,x' is not a list of groups"),
        (["--lost", ","], "',' is not a list of groups"),
        (["--lost=-1"], "'-1' is not a list of groups"),
        (["--lost", "3,7,3"], "'3,7,3' names group 3 twice"),
    ],
)
def test_wrong_questions_are_refused(arguments: list[str], complaint: str) -> None:
    """With what is missing or wrong, and what is allowed."""
    result = spare("plan", *arguments)

    assert result.exit_code == 2
    assert complaint in result.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--explain", "--lost", "9"], "--lost names group 9; the job has the groups 0 to 3"),
        (["--explain", "--lost", "0,1,2,3"], "--lost names all 4 groups"),
        (["--explain", "--lost", "1", "--redundancy", "5"], "--redundancy is 5; allowed is 1 to groups, 4"),
        (["--explain", "--lost", "1", "--mtbf", "1h"], "--mtbf has no effect beside --explain"),
        (["--groups", "4", "--mtbf", "1h"], "--groups and a JOB_FILE: the file says spec.groups itself"),
        (["--micro-batches", "4", "--mtbf", "1h"], "the file says spec.microBatches itself"),
        (["--gpus-per-group", "4", "--mtbf", "1h"], "the file says spec.podsPerGroup times spec.procPerPod itself"),
        (["--redundancy", "5", "--mtbf", "1h"], "redundancy is 5; allowed is 1 to groups, 4"),
    ],
)
def test_what_the_job_file_contradicts_is_refused(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    """Groups that the job has not, or all of them; numbers that the file says itself; options that change nothing."""
    result = spare("plan", job_file(tmp_path, groups=4, redundancy=2), *arguments)

    assert result.exit_code == 2
    assert complaint in result.output


def test_a_period_has_to_be_longer_than_a_save(tmp_path: Path) -> None:
    """Both are named, the one by its place in the file, the other by its option."""
    job = job_file(tmp_path, checkpoint={"path": "/tmp/x", "period": "30s"})

    result = spare("plan", job, "--mtbf", "1h")

    assert result.exit_code == 2
    assert "spec.checkpoint.period is 30 s; allowed is more than --save-time, 60 s" in result.output


def test_the_files_own_redundancy_and_placement_are_shown(tmp_path: Path) -> None:
    """However large the one is; and of the other it is said that the formulas are not for it."""
    job = job_file(tmp_path, groups=8, redundancy=8, placement={"strategy": "Consecutive"})

    text, document = (spare("plan", job, "--mtbf", "1h", *more).output for more in ((), ("-o", "json")))

    assert "Consecutive, offsets 0, 1, 2, 3, 4, 5, 6, 7" in text
    assert "Consecutive stacks are deeper" in text
    assert json.loads(document)["shown"]["redundancy"] == 8
    assert json.loads(document)["shown"]["masked"] == 7


def test_a_job_that_never_ends_is_said_to() -> None:
    """No redundancy helps against a failure in a millisecond; as JSON it is null, not infinity."""
    hopeless = ("plan", "--groups", "4", "--mtbf", "1ms")

    assert "never done: failures come too fast" in spare(*hopeless).output
    document = json.loads(spare(*hopeless, "-o", "json").output)
    assert document["shown"]["time"] is None
    assert document["recommended"] is None


@pytest.mark.parametrize(
    "arguments", [("--mtbf", ""), ("--mtbf", "1h", "--replacement", " "), ("--mtbf", "1h", "--reduce-time", "")]
)
def test_no_duration_is_not_no_seconds(arguments: tuple[str, ...]) -> None:
    """An empty variable of a shell is a mistake, not a replacement at once."""
    result = spare("plan", "--groups", "8", *arguments)

    assert result.exit_code == 2
    assert "'' is no duration; 0 is written 0s" in result.output


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_full_disk_is_told_in_one_line(output: str) -> None:
    """Whatever prints: the table, JSON."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", "from spare.cli.main import main; main()", "plan", "--groups", "4"]
        result = subprocess.run(
            [*command, "--mtbf", "1h", "-o", output], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )

    assert result.returncode == 1
    assert result.stderr == "spare: the output cannot be written: No space left on device\n"


def test_what_the_numbers_do_not_say_is_told_beside_them(tmp_path: Path) -> None:
    """A node that holds several groups, and what auto comes to in the job: on the side, so that JSON stays JSON."""
    shared = spare("plan", "--groups", "16", "--gpus-per-group", "2", "--mtbf-node", "90d", "-o", "json")
    auto = spare("plan", job_file(tmp_path, groups=4, redundancy="auto"), "--mtbf", "1h", "-o", "json")

    assert "A node holds 4 groups" in shared.stderr
    assert "auto means 2 when the job runs" in auto.stderr
    assert json.loads(shared.stdout)["job"]["groups"] == json.loads(auto.stdout)["job"]["groups"] * 4
    assert not spare("plan", "--groups", "16", "--mtbf-node", "90d").stderr


def test_a_billion_years_are_never() -> None:
    """A finite formula far beyond them gives neither a number of 33 digits nor a recommendation."""
    text = spare("plan", "--groups", "100", "--mtbf", "10s", "--restart-time", "1h", "--replacement", "10m").output

    assert "none: see expected time" in text
    assert "never done" in text
    assert "e+" not in text


def test_work_that_ends_before_a_wipe_out_is_stretched_by_what_comes_while_it_lasts() -> None:
    """One failure of 64 doubles whole steps, the next 31 add nothing: 1 + E[(W - X)+] / W, X exponential."""
    result = spare("plan", "--groups", "64", "--mtbf", "31d", "--work", "30d", "-o", "json")
    whole = next(c for c in json.loads(result.output)["choices"] if c["strategy"] == "whole shards")

    assert whole["depth"] == pytest.approx(1 + (30 - 31 * -math.expm1(-30 / 31)) / 30, rel=1e-3)


def test_days_and_hours_may_be_mixed() -> None:
    """1d12h is 36 hours."""
    document = json.loads(spare("plan", "--groups", "4", "--mtbf", "1d12h", "-o", "json").output)

    assert document["job"]["between_failures"] == 36 * 3600


def test_table_and_json_say_the_same() -> None:
    """Each line of the table is a choice, in its rounding; and the cost is all GPUs for all of the time."""
    arguments = ("plan", "--groups", "64", "--gpus-per-group", "8", "--mtbf", "6h", "--shard-size", "20GB")

    text, document = spare(*arguments).output, json.loads(spare(*arguments, "-o", "json").output)

    lines = [line.split("│")[1:-1] for line in text.splitlines() if line.startswith("│")]
    assert len(lines) == len(document["choices"])
    for cells, choice in zip(lines, document["choices"], strict=True):
        strategy, r, depth, masked, _, ratio, _, hours, data = (cell.strip() for cell in cells)
        assert (strategy, int(r), depth) == (choice["strategy"], choice["redundancy"], f"{choice['depth']:.3f}")
        assert float(masked) == pytest.approx(choice["masked"], rel=5e-3)
        assert ratio == f"{choice['ratio']:.3f}"
        assert float(hours.replace(",", "")) == pytest.approx(64 * 8 * choice["time"] / 3600, rel=5e-3)
        assert data == f"{20 * choice['redundancy']} GB"
