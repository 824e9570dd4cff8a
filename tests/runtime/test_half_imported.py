"""Libraries that another thread is importing at this very moment are not there yet; that is no error."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

from spare_runtime.randomness import seed_all
from spare_runtime.shards import local


@pytest.mark.parametrize("name", ["torch.distributed.tensor", "numpy", "numpy.random"])
def test_a_library_that_is_half_imported_is_taken_as_absent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on a cluster: a thread's first import of DTensor in mid-step ended the job as the script's own error."""
    half = ModuleType(name.partition(".random")[0])
    if name == "numpy.random":
        half.random = ModuleType(name)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, half.__name__, half)
    tensor = torch.ones(2)

    seed_all(3)

    assert local(tensor) is tensor
    assert torch.rand(1).item() == torch.rand(1, generator=torch.Generator().manual_seed(3)).item()
