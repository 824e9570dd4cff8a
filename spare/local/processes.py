"""The processes of an agent or a whole job, found in /proc by what they cannot take off: environment, session, descent.

An agent starts its worker in a session of its own, and a worker may start more. Whoever inherits the environment
carries the mark; whoever cleared it is still in the session of a marked process, or descends from one. Who took off all
three (a daemon) has been adopted by its agent, or, if that is gone, by this process, once it asks for orphans.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)  # it ended meanwhile, or it is somebody else's


@dataclass(frozen=True)
class Kin:
    """Processes that carry one environment variable, with everything in the sessions that they are in."""

    mark: str
    """`NAME=VALUE`, unique to the agent or the job."""
    adopted: bool = False
    """Count in all that this process has started or adopted: only where it does nothing but run one job."""

    def pids(self) -> list[int]:
        """Those alive now, stopped ones included; zombies are not, for there is nothing left of them to end."""
        return self._scan(set())

    def _scan(self, sessions: set[int]) -> list[int]:
        """As `pids`; `sessions` grows by those that these processes are in, and counts them in by itself."""
        alive, me, own = list(_alive()), os.getpid(), os.getsid(0)
        members = {each.pid for each in alive if each.session in sessions or self._marked(each.pid)}
        roots = members | {me} if self.adopted else set(members)
        while True:
            found = {each.pid for each in alive if each.parent in roots or each.session in sessions} - roots
            sessions.update(each.session for each in alive if each.pid in members | found and each.session != own)
            if not found:
                return sorted((members | roots) - {me})
            roots |= found

    def kill(self, patience: float) -> list[int]:
        """SIGKILL all, again and again, for one may have forked meanwhile. Blocks; call it in a thread.

        Returns:
            Those that are left after `patience` seconds: only a process stuck in the kernel can be.
        """
        deadline = time.monotonic() + patience
        pause = 0.001
        sessions: set[int] = set()  # a marked leader may end before those it leads; never kept longer, ids come again
        while left := self._scan(sessions):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                return left
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return []

    def _marked(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                return self.mark.encode() in environ.read().split(b"\0")
        except _GONE:
            return False


class _Alive(NamedTuple):
    pid: int
    parent: int
    session: int


def _alive() -> Iterator[_Alive]:
    """Every process that is not a zombie."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                state, parent, _, session = stat.read().rpartition(b")")[2].split()[:4]
        except _GONE:
            continue
        if state not in (b"Z", b"X"):
            yield _Alive(int(name), int(parent), int(session))


def adopt_orphans() -> None:
    """Let processes whose parents end become children of this one, and not of the system's first.

    Raises:
        OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def ending(code: int) -> str:
    """How a process ended, in words, from its return code (negative: a signal)."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
