"""A test that fails leaves no job behind that would slow down all that follow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.training.runs import STARTED


@pytest.fixture(autouse=True)
def _no_run_outlives_its_test() -> Iterator[None]:
    """SIGKILL of `spare run` takes its processes along."""
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()
