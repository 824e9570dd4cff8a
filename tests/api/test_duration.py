"""Durations are written as in Go and Kubernetes, and never lose their unit."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spare.api.duration import PATTERN, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("2s", 2), ("5m", 300), ("1h30m", 5400), ("1.5s", 1.5), ("600s", 600), ("0s", 0), ("90m", 5400)],
)
def test_usual_notations_are_read(text: str, seconds: float) -> None:
    """Units may be mixed and numbers may have a fraction."""
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "s", "5 s", "-1s", "1d", "1S", "5m ", "5m\n", "1e3s", ".5s", "٣s", "1s" * 30, "9" * 38 + "h"]
)
def test_anything_else_is_refused(text: str) -> None:
    """Days have no fixed place in Go's notation, and a sign no sense here."""
    with pytest.raises(ValueError, match=r"duration|clock"):
        parse_duration(text)


def test_a_bare_number_is_asked_for_its_unit() -> None:
    """`deadAfter: 5` may mean anything, so the message shows how to write seconds."""
    with pytest.raises(ValueError, match="as in 5s"):
        parse_duration("5")


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10_000)))
def test_writing_and_reading_gives_the_same(duration: timedelta) -> None:
    """To the microsecond, and in the notation that the schema demands."""
    text = format_duration(duration)

    assert parse_duration(text) == duration
    assert re.fullmatch(PATTERN, text)


def test_negative_durations_cannot_be_written() -> None:
    """There is none in any job, so one is a mistake of ours."""
    with pytest.raises(ValueError, match="negative"):
        format_duration(timedelta(seconds=-1))
