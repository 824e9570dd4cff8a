"""Numbers in sentences."""

from __future__ import annotations

import pytest

from spare.planner.words import counted, named


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "loss", "1 loss"),
        (2, "loss", "2 losses"),
        (0, "loss", "0 losses"),
        (1, "micro-batch", "1 micro-batch"),
        (3, "micro-batch", "3 micro-batches"),
        (2, "more group", "2 more groups"),
        (1, "other", "1 other"),
    ],
)
def test_one_is_not_said_as_many(count: int, noun: str, text: str) -> None:
    """Nobody reads of "1 losses"."""
    assert counted(count, noun) == text


def test_numbers_are_named() -> None:
    """All of them while they are few."""
    assert named("group", [3]) == "group 3"
    assert named("group", [3, 7]) == "groups 3, 7"
    assert named("shard", range(12)) == "shards 0, 1, 2, 3, 4, 5, 6, 7, ... (12 in all)"
