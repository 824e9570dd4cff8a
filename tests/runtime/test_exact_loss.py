"""Sums of losses without rounding."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spare_runtime.exact_loss import ELEMENTS, add, total


def summed(values: list[float]) -> float:
    """Through two groups' sums."""
    parts = torch.zeros(2, ELEMENTS, dtype=torch.int64)
    for i, value in enumerate(values):
        add(parts[i % 2], value)
    return total(parts.sum(0).tolist())


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300), max_size=12))
def test_the_sum_is_the_nearest_float(values: list[float]) -> None:
    """From the smallest number there is to nearly the largest, cancellation included."""
    assert summed(values) == float(sum(map(Fraction, values)))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, math.inf], math.inf),
        ([-math.inf, 1.0], -math.inf),
        ([1.7e308] * 2, math.inf),
        ([-1.7e308] * 2, -math.inf),
        ([5e-324, -5e-324], 0.0),
        ([1.7e308, 5e-324, -1.7e308], 5e-324),
    ],
)
def test_the_ends_of_the_range(values: list[float], expected: float) -> None:
    """As floats have it."""
    assert summed(values) == expected


@pytest.mark.parametrize("values", [[math.nan, 1.0], [math.inf, -math.inf], [math.inf, math.nan]])
def test_what_is_no_number_stays_none(values: list[float]) -> None:
    """NaN, and infinities of both signs."""
    assert math.isnan(summed(values))
