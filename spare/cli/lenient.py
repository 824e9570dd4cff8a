"""Output that nobody reads, or nobody any more, holds up no training and ends none.

The process that writes is the one that decides about failures: `spare run | less` must not stand still because its
reader does. So what is written waits in memory, a thread carries it to the pipe, and beyond a limit the oldest lines
are dropped, which is said in their place.
"""

from __future__ import annotations

import atexit
import collections
import errno
import io
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, cast

from spare.planner.words import counted

_GONE = frozenset({errno.EPIPE, errno.EIO, errno.ENXIO, errno.ENOSPC})
"""No reader, no terminal, no room."""
MOST: Final = 8 << 20
"""Bytes that wait for a reader, at most; the last line is always kept."""
LINGER: Final = 30.0
"""Seconds that the end of the program waits for a reader that takes nothing."""


def told_in_words(lines: int) -> str:
    """What stands in place of dropped lines, for people."""
    return f"spare: dropped here, for nobody read them in time: {counted(lines, 'line')}"


class Outlet(io.BufferedIOBase):
    """The end of a stream: takes lines at once, and writes them to a descriptor as fast as that is read.

    What one call of `write` brings is kept or dropped as a whole.
    """

    def __init__(self, descriptor: int, called: str, *, most: int = MOST) -> None:
        """`called`: what people call it; `most`: bytes that may wait."""
        super().__init__()
        self.called = called
        self._fd, self._most = descriptor, most
        self.told: Callable[[int], str] = told_in_words
        """What is written in place of so many lines."""
        self._changed = threading.Condition()
        self._waiting: collections.deque[bytes] = collections.deque()
        self._size = self._dropped = 0
        self._busy = self._gone = False
        self._moved = time.monotonic()
        threading.Thread(target=self._carry, name=f"spare-{called}", daemon=True).start()

    def writable(self) -> bool:
        """See BufferedIOBase."""
        return True

    def fileno(self) -> int:
        """See BufferedIOBase."""
        return self._fd

    def isatty(self) -> bool:
        """See BufferedIOBase."""
        return os.isatty(self._fd)

    def write(self, data: Any, /) -> int:
        """Never waits, and never fails."""
        line = bytes(data)
        with self._changed:
            if not self._gone:
                self._waiting.append(line)
                self._size += len(line)
                while self._size > self._most and len(self._waiting) > 1:
                    old = self._waiting.popleft()
                    self._size -= len(old)
                    self._dropped += old.count(b"\n")
                self._changed.notify_all()
        return len(line)

    def settle(self, patience: float) -> bool:
        """Wait until everything is written, but not longer than `patience` seconds in which nothing is taken; whether
        it is."""
        with self._changed:
            self._moved = time.monotonic()
            while self._waiting or self._busy:
                left = self._moved + patience - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            return True

    def _carry(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                while not self._waiting:
                    self._changed.wait()
                self._busy = True
                line = self._waiting.popleft()
                self._size -= len(line)
                if self._dropped:
                    line = self.told(self._dropped).encode() + b"\n" + line
                    self._dropped = 0
            try:
                self._push(memoryview(line))
            except OSError as error:
                self._give_up(error)

    def _push(self, rest: memoryview) -> None:
        while rest:
            rest = rest[os.write(self._fd, rest) :]
            with self._changed:
                self._moved = time.monotonic()
                self._changed.notify_all()

    def _give_up(self, error: OSError) -> None:
        """Told once, to whoever still listens; the rest goes nowhere."""
        with self._changed:
            self._gone = True
            self._waiting.clear()
            self._size = self._dropped = 0
        why = error.strerror if error.errno in _GONE else repr(error)
        print(f"spare: {self.called} cannot be written any more ({why}); the run goes on without it", file=sys.stderr)  # noqa: T201


class Lenient(io.TextIOWrapper):
    """A standard stream that ends in an outlet."""

    def __init__(self, stream: io.TextIOWrapper, name: str, *, most: int = MOST) -> None:
        """Takes over `stream`, which must not be used afterwards; `name` is for people."""
        encoding, errors = stream.encoding, stream.errors
        buffered = stream.line_buffering or stream.write_through
        stream.flush()
        self.outlet = Outlet(stream.fileno(), name, most=most)
        self._below = stream  # its descriptor lives as long as this
        super().__init__(cast(Any, self.outlet), encoding=encoding, errors=errors, line_buffering=buffered)


def forgive(told: Callable[[int], str] = told_in_words) -> None:
    """Let both standard streams of this process be lenient from now on. `told` stands for dropped lines on stdout."""
    made: list[tuple[str, Outlet]] = []
    for name, called in (("stdout", "the output"), ("stderr", "the error output")):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper:  # not what a test or another program has put there
            lenient = Lenient(stream, called)
            setattr(sys, name, lenient)
            made.append((name, lenient.outlet))
    for name, outlet in made:
        if name == "stdout":
            outlet.told = told
    if made:
        atexit.register(settle, [outlet for _, outlet in made])


def settle(outlets: list[Outlet], patience: float = LINGER) -> None:
    """At the end of the program: let readers have the rest, if they read."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for outlet in outlets:
        if not outlet.settle(patience):
            print(f"spare: {outlet.called} was not read for {patience:g} s; its end is dropped", file=sys.stderr)  # noqa: T201
            patience = min(patience, 1.0)
