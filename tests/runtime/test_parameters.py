"""Digests: equal for equal parameters, whatever the machine, and different for anything else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from spare_runtime.parameters import checksum, digest

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64, torch.complex128]


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    """The same every time."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).to(dtype)


def both(m: nn.Module) -> tuple[str, str]:
    """Digest and checksum."""
    return digest(m), checksum(m.parameters())


@pytest.mark.filterwarnings("ignore:Complex modules are a new feature")
@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_parameters_have_equal_digests(dtype: torch.dtype) -> None:
    """Of every floating dtype; and one changed bit changes both."""
    one, other = model(dtype), model(dtype)

    assert both(one) == both(other)
    with torch.no_grad():
        p = next(other.parameters())
        p.view(-1)[3] += 1
    assert digest(one) != digest(other)
    assert checksum(one.parameters()) != checksum(other.parameters())


def test_the_smallest_change_is_seen() -> None:
    """One unit in the last place, and the sign of a zero."""
    for change in (lambda p: torch.nextafter(p, torch.tensor(9.0)), torch.neg):
        other = model()
        with torch.no_grad():
            p = next(other.parameters())
            p.view(-1)[0] = change(p.view(-1)[0])

        assert checksum(other.parameters()) != checksum(model().parameters())


def test_names_and_shapes_count_for_the_digest() -> None:
    """Equal numbers in another model are another model."""
    flat = nn.ParameterDict({"w": nn.Parameter(torch.zeros(6))})
    square = nn.ParameterDict({"w": nn.Parameter(torch.zeros(2, 3))})
    named = nn.ParameterDict({"v": nn.Parameter(torch.zeros(6))})

    assert len({digest(m) for m in (flat, square, named)}) == 3


@pytest.mark.parametrize("make", [lambda: torch.zeros(0), lambda: torch.ones(()), lambda: torch.ones(4, 6).t()[1:]])
def test_odd_shapes_are_digested(make: Callable[[], torch.Tensor]) -> None:
    """Empty, a single number, and not contiguous."""
    m = nn.ParameterDict({"w": nn.Parameter(make())})

    assert both(m) == both(nn.ParameterDict({"w": nn.Parameter(make().contiguous())}))
