"""Output that nobody may be reading any more (`spare run ... | head`, a terminal that was closed) ends no training."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys

_GONE = frozenset({errno.EPIPE, errno.EIO, errno.ENXIO, errno.ENOSPC})
"""No reader, no terminal, no room."""


class Lenient(io.TextIOWrapper):
    """A standard stream whose first failed write is told once, to whoever still listens; the rest goes nowhere."""

    def __init__(self, stream: io.TextIOWrapper, name: str) -> None:
        """Takes over `stream`, which must not be used afterwards; `name` is for people."""
        encoding, errors, buffered = stream.encoding, stream.errors, stream.line_buffering
        super().__init__(stream.detach(), encoding=encoding, errors=errors, line_buffering=buffered)
        self._called = name

    def write(self, text: str) -> int:
        """See TextIOBase."""
        try:
            return super().write(text)
        except OSError as error:
            self._drop(error)
            return len(text)

    def flush(self) -> None:
        """See TextIOBase."""
        try:
            super().flush()
        except OSError as error:
            self._drop(error)

    def _drop(self, error: OSError) -> None:
        if error.errno not in _GONE:
            raise error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())  # what is buffered can be flushed, now and at the end
        os.close(nowhere)
        with contextlib.suppress(OSError, ValueError):
            told = f"spare: {self._called} cannot be written any more ({error.strerror}); the run goes on without it\n"
            os.write(sys.stderr.fileno(), told.encode())


def forgive() -> None:
    """Let both standard streams of this process be lenient from now on."""
    for name, called in (("stdout", "the output"), ("stderr", "the error output")):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper:  # not what a test or another program has put there
            setattr(sys, name, Lenient(stream, called))
