"""`spare plan`: sizes from numbers or a job file, and who computes what after a loss."""

from __future__ import annotations

import json
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

    document = json.loads(result.output)
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


def test_a_wipe_out_is_explained(tmp_path: Path) -> None:
    """Which shard, and who had it; as text and as JSON."""
    job = job_file(tmp_path, groups=4, redundancy=2)

    text = spare("plan", "--explain", job, "--lost", "0,1").output
    document = json.loads(spare("plan", "--explain", job, "--lost", "0,1", "-o", "json").output)

    assert "wipe-out: shard" in text
    assert "spec.onWipeOut" in text
    assert all(sorted(hosts) == [0, 1] for hosts in document["hosts"].values())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--mtbf", "1h"], "--groups or a JOB_FILE is needed"),
        (["--groups", "4"], "exactly one of --mtbf-gpu, --mtbf, --mtbf-node is needed; 0 are given"),
        (["--groups", "4", "--mtbf", "1h", "--mtbf-gpu", "1h"], "2 are given"),
        (["--groups", "4", "--mtbf", "0s"], "between_failures is 0.0"),
        (["--groups", "4", "--mtbf", "5"], "needs a unit"),
        (["--groups", "4", "--mtbf", "xd"], "days are written like 90d"),
        (["--groups", "4", "--mtbf", "1h", "--shard-size", "3 lots"], "is not a size such as 20GB"),
        (["--groups", "4", "--mtbf", "1h", "--redundancy", "9"], "redundancy 9 is none of those worth a try"),
        (["--explain", "--lost", "1"], "--explain needs a JOB_FILE"),
        (["--lost", "1,x"], "'1,x' is not a list of groups"),
    ],
)
def test_wrong_questions_are_refused(arguments: list[str], complaint: str) -> None:
    """With what is missing or wrong."""
    result = spare("plan", *arguments)

    assert result.exit_code == 2
    assert complaint in result.output


def test_groups_that_the_job_has_not_cannot_be_lost(tmp_path: Path) -> None:
    """Nor all of them; nor is more redundancy than groups possible; nor are groups said twice."""
    job = job_file(tmp_path, groups=4, redundancy=2)

    assert "the job has the groups 0 to 3" in spare("plan", "--explain", job, "--lost", "9").output
    assert "one must live" in spare("plan", "--explain", job, "--lost", "0,1,2,3").output
    assert "the job has 4 groups" in spare("plan", "--explain", job, "--lost", "1", "--redundancy", "5").output
    assert "the file says spec.groups itself" in spare("plan", job, "--groups", "4", "--mtbf", "1h").output
