"""The processes of an agent or of a whole job, found in /proc by what they cannot take off: environment and session.

An agent starts its worker in a session of its own, and a worker may start more. Whoever inherits the environment
carries the mark; whoever cleared it is still in the session of a marked process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)  # it ended meanwhile, or it is somebody else's


@dataclass(frozen=True)
class Kin:
    """Processes that carry one environment variable, with everything in the sessions that they are in."""

    mark: str
    """`NAME=VALUE`, unique to the agent or the job."""

    def pids(self) -> list[int]:
        """Those alive now, stopped ones included; zombies are not, for there is nothing left of them to end."""
        return self._scan(set())

    def _scan(self, sessions: set[int]) -> list[int]:
        """As `pids`; `sessions` grows by those that marked processes are in, and counts them in by itself."""
        alive = list(_alive())
        marked = [(pid, session) for pid, session in alive if self._marked(pid)]
        sessions.update(session for _, session in marked if session != os.getsid(0))
        members = {pid for pid, _ in marked} | {pid for pid, session in alive if session in sessions}
        return sorted(members - {os.getpid()})

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


def _alive() -> Iterator[tuple[int, int]]:
    """(pid, session) of every process that is not a zombie."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                state, _, _, session = stat.read().rpartition(b")")[2].split()[:4]
        except _GONE:
            continue
        if state not in (b"Z", b"X"):
            yield int(name), int(session)


def ending(code: int) -> str:
    """How a process ended, in words, from its return code (negative: a signal)."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
