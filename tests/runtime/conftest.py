"""Settings and members that these tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from tests.runtime.peers import Peers, nursery

# A busy machine, and torch's first call of each kind, take longer than hypothesis grants; pytest has a deadline anyway.
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")

Make = Callable[[int, str], Peers]


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Members on demand."""
    with nursery(tmp_path_factory.mktemp("peers")) as made:
        yield made


@pytest.fixture
def two(make: Make) -> Peers:
    """Two members over IPv4."""
    return make(2, "127.0.0.1")


@pytest.fixture
def three(make: Make) -> Peers:
    """Three members over IPv4."""
    return make(3, "127.0.0.1")
