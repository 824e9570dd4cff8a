"""Ranges and bit masks of micro-batches."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spare.planner import Range, mask_of, ranges_of

SETS = st.sets(st.tuples(st.integers(0, 40), st.integers(0, 12)))


@given(SETS, st.integers(13, 40))
def test_a_set_survives_the_way_to_ranges_and_back(members: set[tuple[int, int]], m: int) -> None:
    """Mask to ranges to mask is the identity, and the ranges are sorted, maximal and within their shards."""
    mask = sum(1 << (shard * m + index) for shard, index in members)
    ranges = ranges_of(mask, m)

    assert mask_of(ranges, m) == mask
    assert {(r.shard, i) for r in ranges for i in range(r.first, r.first + r.count)} == members
    assert list(ranges) == sorted(ranges)
    assert all(a.shard < b.shard or a.first + a.count < b.first for a, b in pairwise(ranges))


@given(st.integers(1, 20), st.integers(0, 2**400))
def test_any_mask_is_the_union_of_its_ranges(m: int, mask: int) -> None:
    """No bit is lost at the edges of blocks, for any m."""
    assert mask_of(ranges_of(mask, m), m) == mask


def test_a_range_never_crosses_into_the_next_shard() -> None:
    """Two full shards are two ranges."""
    assert ranges_of(0b111111, 3) == (Range(0, 0, 3), Range(1, 0, 3))


def test_overlapping_ranges_count_once() -> None:
    """A mask is a set."""
    assert mask_of([(1, 0, 3), (1, 2, 2)], 8).bit_count() == 4


@pytest.mark.parametrize("wrong", [(-1, 0, 1), (0, -1, 1), (0, 0, 0), (0, 3, 2)])
def test_a_range_outside_its_shard_is_refused(wrong: tuple[int, int, int]) -> None:
    """It would name another shard's micro-batches."""
    with pytest.raises(ValueError, match=r"range is \("):
        mask_of([wrong], 4)


def test_m_and_mask_are_checked() -> None:
    """No shard has less than one micro-batch, and a negative mask is an infinite set."""
    with pytest.raises(ValueError, match="m is 0"):
        mask_of([], 0)
    with pytest.raises(ValueError, match="m is -1"):
        ranges_of(1, -1)
    with pytest.raises(ValueError, match="mask is -1"):
        ranges_of(-1, 4)
