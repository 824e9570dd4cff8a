"""Which micro-batch a worker has in hand: known to its agent after any death of the worker, at no cost in the loop.

The worker writes one number into a page of memory that its agent has mapped, too. A page outlives the process that
wrote it, and nothing has to be sent: a heartbeat would be too slow, a message for each micro-batch too much.
"""

from __future__ import annotations

import mmap
import os

_SIZE = 8
_INDEX, _SHARD, _STEP = 11, 12, 40
"""Bits for each part of the number, above the lowest, which is 1 while something is in hand."""


class Hand:
    """The worker's side."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("spare-hand")
        os.ftruncate(self._fd, _SIZE)
        self._number = memoryview(mmap.mmap(self._fd, _SIZE)).cast("Q")
        self.path = f"/proc/{os.getpid()}/fd/{self._fd}"
        """Where the agent finds the page, while this process lives."""

    def take(self, step: int, shard: int, index: int) -> None:
        """Say what is computed from now on. One store of eight bytes: never seen half done."""
        self._number[0] = ((step % (1 << _STEP) << _SHARD | shard) << _INDEX | index) << 1 | 1

    def empty(self) -> None:
        """Say that nothing is."""
        self._number[0] = 0


class Page:
    """The agent's side."""

    def __init__(self, path: str) -> None:
        """Map the page while the worker lives.

        Raises:
            OSError: it is not there.
        """
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._memory = mmap.mmap(fd, _SIZE, prot=mmap.PROT_READ)
        except ValueError as error:
            raise OSError(f"{path} is no page: {error}") from error
        finally:
            os.close(fd)

    def read(self) -> tuple[int, int, int] | None:
        """(step, shard, index) of the micro-batch in hand; None if there is none."""
        number = int.from_bytes(self._memory[:_SIZE], "little")
        if not number & 1:
            return None
        index, number = number >> 1 & (1 << _INDEX) - 1, number >> 1 + _INDEX
        return number >> _SHARD, number & (1 << _SHARD) - 1, index
