"""The summary: what machines read, what people read, and that neither says more than the ledgers do."""

from __future__ import annotations

import json

import pytest

from spare.api.exit_codes import ExitCode
from spare.cli.outcome import conclude
from tests.cli.made import FOLDER, audit, outcome, recovery, snapshot

SUMMARY = {"result", "steps", "masked", "epoch", "lost", "repeated", "recoveries", "loss", "digest"}
RECOVERY = {"groups", "step", "detect", "plan", "regroup", "patch", "total"}


def test_the_summary_has_every_promised_field() -> None:
    """One object that survives JSON, with the fields that scripts rely on."""
    summary = json.loads(json.dumps(outcome().as_json()))

    assert summary.keys() >= SUMMARY
    assert "type" not in summary
    assert summary["recoveries"][0].keys() >= RECOVERY
    assert (summary["result"], summary["steps"], summary["loss"]) == ("complete", 7, 2.5)
    assert summary["recoveries"][0]["groups"] == [1]


def test_lost_and_repeated_are_those_of_the_audit() -> None:
    """They come from the ledgers, not from the coordinator."""
    summary = outcome(audit=audit(lost=3, repeated=2)).as_json()

    assert (summary["lost"], summary["repeated"]) == (3, 2)


def test_a_part_that_was_not_seen_is_null_and_a_dash() -> None:
    """Never a negative time."""
    unseen = outcome(recoveries=(recovery(patch=-1.0, total=-1.0),))

    assert unseen.as_json()["recoveries"][0]["patch"] is None
    assert any(line.split()[3:5] == ["-", "-"] for line in unseen.lines())


def test_people_are_told_of_failures_and_where_the_logs_are() -> None:
    """Masked failures, their cost, zeros that matter, loss, digest and folder."""
    text = "\n".join(outcome(snapshot(state="complete", exit_code=0, masked=1, digest="ab" * 32)).lines())

    for expected in ("failures masked: 1", "loss 2.5", "group 1 lost in step 7", "0.100", "ab" * 32, str(FOLDER)):
        assert expected in text


def test_a_failed_job_shows_its_verdict() -> None:
    """With the text of the user's exception, on lines of its own."""
    failed = snapshot(state="failed", exit_code=1, verdict="group 2 raised ValueError: bad batch\nTraceback ...")

    assert "group 2 raised ValueError: bad batch" in outcome(failed, exit_code=1).lines()


def test_a_complete_job_whose_end_was_not_saved_says_so() -> None:
    """What its verdict has beyond the counts; those stand in the first line already."""
    done = snapshot(state="complete", exit_code=0, verdict="complete: 9 steps on 2 groups, 0 losses masked; not saved")

    assert outcome(done, exit_code=0).lines()[1] == "not saved"


@pytest.mark.parametrize(
    ("ended_with", "signalled", "problems", "expected"),
    [
        (ExitCode.COMPLETE, None, (), ExitCode.COMPLETE),
        (ExitCode.USER_ERROR, None, (), ExitCode.USER_ERROR),
        (ExitCode.INTERRUPTED, ExitCode.SIGTERM, (), ExitCode.SIGTERM),
        (ExitCode.INTERRUPTED, ExitCode.INTERRUPTED, (), ExitCode.INTERRUPTED),
        (ExitCode.COMPLETE, ExitCode.INTERRUPTED, (), ExitCode.COMPLETE),  # it came too late to change anything
        (ExitCode.COMPLETE, None, ("step 3: 1 micro-batch missing",), ExitCode.INEXACT),
        (ExitCode.WIPE_OUT, None, ("step 3: 1 micro-batch missing",), ExitCode.WIPE_OUT),
    ],
)
def test_the_exit_code_tells_the_first_cause(
    ended_with: int, signalled: int | None, problems: tuple[str, ...], expected: int
) -> None:
    """A ledger that does not add up spoils a complete job; the signal is that of the first key press."""
    last = snapshot(state="complete", exit_code=ended_with)
    end = conclude(last, {}, audit(problems=problems), FOLDER, signalled)

    assert end.exit_code == expected
    assert all(any(problem in line for line in end.lines()) for problem in problems)


@pytest.mark.parametrize(
    ("name", "step", "at", "detect", "total"),
    [
        ("group-1-abc", 7, 999.5, 0.5, 0.59),
        ("group-1-abc", 6, 999.5, 0.5, 0.59),  # the step in flight may be told as the one before
        ("group-0-abc", 7, 999.5, 0.01, 0.1),  # another group's
        ("group-1-abc", 2, 999.5, 0.01, 0.1),  # long before: the group has survived that one
        ("group-1-abc", 7, 1000.5, 0.01, 0.1),  # after the decision
    ],
)
def test_detection_of_a_scripted_failure_counts_from_the_failure(
    name: str, step: int, at: float, detect: float, total: float
) -> None:
    """The coordinator knows its first sign only; the ledger of the one that was hit knows the moment."""
    ledgers = {name: [json.dumps({"fault": "kill", "step": step, "point": "reduce", "at": at}).encode()]}
    end = conclude(snapshot(exit_code=0, recoveries=(recovery(),)), ledgers, audit(), FOLDER, None)

    assert end.recoveries[0].detect == pytest.approx(detect)
    assert end.recoveries[0].total == pytest.approx(total)


def test_a_scripted_failure_that_never_happened_is_told() -> None:
    """A step that was never reached, or a point that was never passed: the run did not test what it was to test."""
    script = ("group 1: kill@7:reduce", "group 0: pause@3:step=0.5", "group 2: kill@99:compute")
    happened = {
        "group-1-abc": [json.dumps({"fault": "kill", "step": 7, "point": "reduce", "at": 1.0}).encode()],
        "group-0-abc": [json.dumps({"fault": "pause", "step": 3, "point": "step", "at": 2.0}).encode()],
        "group-2-abc": [json.dumps({"fault": "kill", "step": 9, "point": "compute", "at": 2.0}).encode()],
    }
    end = conclude(snapshot(exit_code=0), happened, audit(), FOLDER, None, script)

    assert end.as_json()["unhappened"] == ["group 2: kill@99:compute"]
    assert any("did not happen" in line and "group 2: kill@99:compute" in line for line in end.lines())


def test_a_torn_line_in_a_ledger_is_no_moment() -> None:
    """The one that was hit may have died while it wrote."""
    torn = {"group-1-abc": [b'{"fault":"kill","st']}

    assert conclude(snapshot(exit_code=0, recoveries=(recovery(),)), torn, audit(), FOLDER, None).exit_code == 0
