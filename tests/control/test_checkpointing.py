"""How often checkpoints are written, from what is measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spare.control import checkpointing
from spare.control.checkpointing import period_of, time_to_wipe_out
from spare.control.saving import LastSaved
from spare.planner import checkpoint_period, masked_mean
from tests.control.drive import CONFIG, started

KEEPING = replace(CONFIG, checkpoint="ck", checkpoint_period=None)
SAVED = LastSaved("epoch-00000001-00000000/step-0000000010", 110.0, 1.0, 4.0, 1000)


def test_a_period_that_is_given_is_kept() -> None:
    """Whatever is measured."""
    drive = started(KEEPING, checkpoint_period=30.0)

    assert period_of(replace(drive.state, saved=SAVED), drive.now) == 30.0


def test_before_anything_is_measured_there_is_a_default() -> None:
    """The first save is due at once, so it does not last long."""
    drive = started(KEEPING)

    assert period_of(drive.state, drive.now) == 3600.0


def test_auto_is_the_papers_best_period_from_what_was_measured() -> None:
    """Ts: for how long training stood still; Tf: mu times the mean time between losses; Tr: how long the start took."""
    drive = started(KEEPING)
    state = replace(drive.state, saved=SAVED, start_took=12.0, losses_seen=3)
    now = state.began + 25_000.0

    assert time_to_wipe_out(state, now) == masked_mean(4, 3) * (25_000.0 + 25_000.0) / 4
    assert period_of(state, now) == checkpoint_period(1.0, time_to_wipe_out(state, now), 12.0)


@pytest.mark.parametrize(("staged", "seconds", "least"), [(0.001, 400.0, 800.0), (0.0, 0.001, 1.0)])
def test_auto_has_a_floor(staged: float, seconds: float, least: float) -> None:
    """At most half of the time is spent writing, and never more than once a second."""
    drive = started(KEEPING)
    state = replace(drive.state, saved=replace(SAVED, staged=staged, seconds=seconds), start_took=1.0)

    assert period_of(state, state.began + 10.0) >= least
    assert staged or period_of(state, state.began + 10.0) == least


def test_more_losses_mean_more_checkpoints() -> None:
    """And none for long, fewer."""
    drive = started(KEEPING)
    state = replace(drive.state, saved=SAVED, start_took=12.0)
    now = state.began + 1000.0
    periods = [period_of(replace(state, losses_seen=n), now) for n in (0, 1, 10, 100)]

    assert periods == sorted(periods, reverse=True)
    assert periods[0] > periods[-1]
    assert period_of(state, now + 1e6) > period_of(state, now)


def test_without_a_path_nobody_writes() -> None:
    """No writer, no order."""
    drive = started(CONFIG)

    assert drive.plan.writer == -1
    assert checkpointing.usable(drive.state) is None
