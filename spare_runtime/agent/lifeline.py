"""No process outlives the one that it works for: Linux's parent-death signal."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int, sig: signal.Signals = signal.SIGKILL) -> None:
    """Let this process get `sig` when `parent`, which started it, ends; at once if it has ended already.

    Raises:
        OSError: the kernel refused.
    """
    if _libc.prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it ended before the line above
        os.kill(os.getpid(), sig)
