"""What a worker has in hand, read by another process after its death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spare_runtime.hand import Hand, Page

PROGRAM = """
from spare_runtime.hand import Hand
hand = Hand()
hand.take(7, 5, 3)
print(hand.path, flush=True)
input()
"""


def test_it_is_known_after_any_death() -> None:
    """The page outlives the process; nothing was sent."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        page = Page(process.stdout.readline().decode().strip())
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    assert page.read() == (7, 5, 3)


HAND = Hand()
PAGE = Page(HAND.path)


@given(st.integers(0, 2**39), st.integers(0, 999), st.integers(0, 1023))
def test_every_micro_batch_is_told_as_it_is(step: int, shard: int, index: int) -> None:
    """Up to the largest job that a job file may ask for."""
    HAND.take(step, shard, index)

    assert PAGE.read() == (step, shard, index)
    HAND.empty()
    assert PAGE.read() is None


def test_what_is_no_page_is_refused(tmp_path: Path) -> None:
    """The worker may have gone, or the file may be another."""
    (tmp_path / "empty").touch()

    for path in ("/proc/1/fd/999999", str(tmp_path / "empty")):
        with pytest.raises(OSError):  # noqa: PT011  # of several kinds
            Page(path)
