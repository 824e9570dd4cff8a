"""Each sample once per pass, in an order that nobody's death changes, fetched ahead or not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spare_runtime.loader import Loader, SampleOrder
from spare_runtime.micro import Micro

SCRIPT = Path(__file__).with_name("loader_script.py")
DEADLINE = 60.0


class Numbers:
    """Every sample is its own number."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        return index


def nothing() -> Iterator[Micro]:
    """No micro-batch to come."""
    return iter(())


def samples(
    length: int, n: int, m: int, size: int, steps: int, order: list[int], seed: int = 1
) -> dict[int, list[int]]:
    """Samples by ordinal, of all micro-batches of some steps, each fetched by its own group's loader in any order."""
    loaders = [Loader(Numbers(length), nothing, seed, collate=list) for _ in range(3)]
    found = {}
    for place, number in enumerate(order):
        step, bit = divmod(number, n * m)
        first = number * size
        micro = Micro(step, bit // m, bit % m, range(first, first + size))
        for at, sample in enumerate(loaders[place % 3][micro]):
            assert first + at not in found
            found[first + at] = [sample]
    assert len(found) == steps * n * m * size
    return found


@settings(max_examples=15)
@given(st.data(), st.integers(1, 20), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_each_sample_comes_once_per_pass(data: st.DataObject, length: int, n: int, m: int, size: int) -> None:
    """Over groups that take micro-batches from each other in any order: its number alone decides."""
    steps = -(-3 * length // (n * m * size))
    numbers = list(range(steps * n * m))
    mixed = samples(length, n, m, size, steps, data.draw(st.permutations(numbers)))
    straight = samples(length, n, m, size, steps, numbers)
    passes = [[mixed[o][0] for o in range(p * length, (p + 1) * length)] for p in range(3)]

    assert mixed == straight
    assert all(sorted(one) == list(range(length)) for one in passes)
    if length > 12:
        assert passes[0] != passes[1], "each pass has an order of its own"


def test_another_seed_gives_another_order() -> None:
    """And the same seed the same, in every process."""
    orders = [[SampleOrder(100, seed)[o] for o in range(100)] for seed in (1, 1, 2)]

    assert orders[0] == orders[1] != orders[2]


def test_a_large_data_set_is_not_listed() -> None:
    """A trillion samples: an order is a rule, not a table."""
    order = SampleOrder(10**12, 1)

    assert 0 <= order[10**15 + 3] < 10**12


@pytest.mark.parametrize(
    ("length", "arguments", "named"),
    [
        (3, {"workers": -1}, "workers must be >= 0"),
        (3, {"prefetch": 0}, "prefetch >= 1"),
        (0, {}, "the data set is empty"),
    ],
)
def test_misuse_is_named(length: int, arguments: dict[str, int], named: str) -> None:
    """Before anything is started."""
    with pytest.raises(ValueError, match=named):
        Loader(Numbers(length), nothing, 1, **arguments)  # type: ignore[arg-type]


def test_an_exception_of_the_data_set_reaches_the_caller() -> None:
    """As it was raised."""

    class Broken(Numbers):
        def __getitem__(self, index: int) -> int:
            raise LookupError(f"sample {index} is broken")

    loader = Loader(Broken(3), nothing, 1)

    with pytest.raises(LookupError, match="is broken"):
        loader[Micro(0, 0, 0, range(1))]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The script's findings."""
    broken = str(tmp_path_factory.mktemp("loader") / "broken")
    ran = subprocess.run([sys.executable, str(SCRIPT), broken], capture_output=True, text=True, timeout=DEADLINE)
    assert ran.stdout, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_workers_give_the_batches_that_none_gives(run: dict[str, Any]) -> None:
    """Random augmentation, and the random state after loading, included; also after another plan changed the order."""
    assert len(run["plain"]) == 12
    assert run["workers"] == run["plain"]


def test_an_exception_in_a_worker_reaches_the_caller(run: dict[str, Any]) -> None:
    """With its type and text."""
    assert re.fullmatch(r"sample \d is broken", run["failing"])


def test_workers_end_with_a_killed_training_process(run: dict[str, Any]) -> None:
    """Nobody else ends them when a whole group is killed at once."""
    worker = Path(f"/proc/{run['worker']}")
    until = time.monotonic() + DEADLINE
    while worker.exists() and time.monotonic() < until:
        time.sleep(0.01)

    assert not worker.exists()


def test_a_worker_that_is_killed_is_followed_by_another(run: dict[str, Any]) -> None:
    """As the kernel does where memory is short: no error of the script, and the batch is the one that it would have
    been."""
    assert run["worker"] != run["first"]
    assert run["after_a_kill"] == [
        float(SampleOrder(10, 9)[ordinal]) for ordinal in range((6 * 4 + 1) * 3, (6 * 4 + 2) * 3)
    ]
