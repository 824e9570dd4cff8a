"""A permutation that is computed, not stored."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spare_runtime.permutation import Permutation


@given(st.integers(1, 700), st.integers(0, 2**63 - 1))
def test_each_element_comes_once(n: int, seed: int) -> None:
    """A bijection on range(n), for every length and seed."""
    order = Permutation(n, seed)

    assert sorted(order[i] for i in range(n)) == list(range(n))


@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_another_seed_gives_another_order(one: int, other: int) -> None:
    """Of 50 elements no two seeds share the order, and the same seed always gives the same."""
    orders = [[Permutation(50, seed)[i] for i in range(50)] for seed in (one, other)]

    assert (orders[0] == orders[1]) == (one == other)


def test_the_order_is_mixed() -> None:
    """Neighbours do not stay together, and elements do not stay near their place."""
    n = 10_000
    values = [Permutation(n, 1)[i] for i in range(n)]
    near = sum(abs(a - b) == 1 for a, b in itertools.pairwise(values))
    displaced = sum(abs(value - place) for place, value in enumerate(values)) / n

    assert near < 20
    assert n / 4 < displaced < n / 2


def test_a_trillion_elements_take_no_memory() -> None:
    """Any element of 10**12 in constant memory, and still different ones for different places."""
    n = 10**12
    tracemalloc.start()
    order = Permutation(n, 3)
    values = {order[place] for place in range(0, n, n // 1000)}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(values) == 1000
    assert all(0 <= value < n for value in values)
    assert peak < 500_000


@pytest.mark.parametrize("n", [0, -1])
def test_nothing_cannot_be_permuted(n: int) -> None:
    """An empty order has no element to give."""
    with pytest.raises(ValueError, match="at least one element"):
        Permutation(n, 0)


@pytest.mark.parametrize("place", [-1, 5])
def test_a_place_outside_is_refused(place: int) -> None:
    """Negative places included: nobody counts micro-batches from the end."""
    with pytest.raises(IndexError, match=f"place {place} is not in"):
        Permutation(5, 0)[place]
