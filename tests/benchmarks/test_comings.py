"""The bookkeeping of the benchmark of coming and leaving: what it counts is what happened."""

from __future__ import annotations

import json

import pytest

from benchmarks.comings import Stall, durations, moment, patched, report, spread, stall

BOOK = [(0, 10.0), (1, 11.0), (2, 12.0), (3, 14.5), (4, 15.5)]


def test_a_step_belongs_to_the_time_in_which_it_was_committed() -> None:
    """The first commit of a process has no beginning that is known."""
    assert durations(BOOK, 0.0, 20.0) == [1.0, 1.0, 2.5, 1.0]
    assert durations(BOOK, 11.0, 14.5) == [1.0, 2.5]
    assert durations(BOOK[:1], 0.0, 20.0) == []


def test_a_stall_is_the_longest_step_of_anybody_against_the_median_before() -> None:
    """Over all who stay."""
    other = [(0, 10.0), (1, 11.0), (2, 12.0), (3, 13.0), (4, 16.0)]

    found = stall([BOOK, other], (9.0, 12.0), (12.0, 20.0))

    assert found == Stall(1.0, 3.0)
    assert found.ratio == 3.0


def test_a_stall_without_steps_is_no_figure() -> None:
    """A window that was missed must not pass for a calm one."""
    with pytest.raises(ValueError, match="4 steps before and 0 steps around it"):
        stall([BOOK], (9.0, 20.0), (20.0, 30.0))


def test_patches_are_what_was_computed_beyond_the_need() -> None:
    """Counted from the commits in the ledgers, each group's own."""
    one = [json.dumps({"step": n, "commits": 1, "computed": "3"}) for n in range(2)]
    other = [json.dumps({"step": 0, "enters": "ff"}), json.dumps({"step": 0, "commits": 1, "computed": "c"})]

    assert patched([one, other], 2, 4) == -2
    assert patched([one, other], 1, 4) == 2
    assert patched([one, other], 2, 3) == 0


def test_a_spread_has_quartiles_between_the_extremes() -> None:
    """Of one value all are that value."""
    assert spread([3.0, 1.0, 2.0, 5.0, 4.0]) == {"median": 3.0, "first": 2.0, "third": 4.0, "min": 1.0, "max": 5.0}
    assert set(spread([2.0]).values()) == {2.0}


def test_a_moment_is_that_of_the_first_event_of_that_kind_and_group() -> None:
    """An event that was not told is an error."""
    events = [
        {"type": "progress", "step": 1},
        {"type": "event", "at": 1.0, "reason": "Reordered", "text": "plan 2", "groups": [1]},
        {"type": "event", "at": 2.0, "reason": "Reordered", "text": "plan 3 (at the next commit)", "groups": [1]},
    ]

    assert moment(events, "Reordered", 1) == 1.0
    assert moment(events, "Reordered", 1, "at the next commit") == 2.0
    with pytest.raises(LookupError, match="no event Drained '' of group 1"):
        moment(events, "Drained", 1)


def test_a_report_has_every_figure_of_every_run(capsys: pytest.CaptureFixture[str]) -> None:
    """In the table and in what the last line is made of."""
    figures = report("drain", 4, [{"stall": 1.0, "patched": 0}, {"stall": 1.5, "patched": 0}])

    assert (figures["stall"]["min"], figures["stall"]["max"], figures["patched"]["max"]) == (1.0, 1.5, 0)
    out = capsys.readouterr().out
    assert "drain, 4 groups, 2 runs" in out
    assert "patched" in out
