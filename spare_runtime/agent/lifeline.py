"""No process outlives the one that it works for: Linux's parent-death signal, and orphans that are adopted.

A worker may start processes that leave its session, clear their environment and lose their parent: daemons. The agent
adopts them, so it can end them, and buries those that end before.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Collection

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_BURY_EVERY = 5.0
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


def adopt_orphans(own: Callable[[], Collection[int]]) -> None:
    """Let processes whose parents end become children of this one; bury those that end.

    Args:
        own: Children whose end somebody else here waits for.

    Raises:
        OSError: the kernel refused.
    """
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")
    threading.Thread(target=_bury, args=(own,), name="spare-bury", daemon=True).start()


def _bury(own: Callable[[], Collection[int]]) -> None:
    seen: set[int] = set()
    while True:
        time.sleep(_BURY_EVERY)
        dead = {pid for pid, parent, state in _processes() if parent == os.getpid() and state == "Z"}
        # Only who was dead a pause ago: who has just been started may have ended before `own` knows of it.
        for pid in (dead & seen).difference(own()):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        seen = dead


def end_descendants(patience: float) -> list[int]:
    """SIGKILL everything that descends from this process, again and again, for one may have forked meanwhile.

    Returns:
        Those that are left after `patience` seconds: only a process stuck in the kernel can be.
    """
    until = time.monotonic() + patience
    while left := _descendants():
        if time.monotonic() > until:
            return left
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    return []


def _descendants() -> list[int]:
    alive = [(pid, parent) for pid, parent, state in _processes() if state not in "ZX"]
    family = {os.getpid()}
    while more := {pid for pid, parent in alive if parent in family} - family:
        family |= more
    return sorted(family - {os.getpid()})


def _processes() -> list[tuple[int, int, str]]:
    """(pid, parent, state) of all."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{name}/stat", "rb") as stat:
            state, parent = stat.read().rpartition(b")")[2].split()[:2]
            found.append((int(name), int(parent), state.decode()))
    return found
