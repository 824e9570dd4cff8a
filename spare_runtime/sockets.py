"""The sockets of a process group, found and cut from outside.

Gloo offers no way to interrupt a pending operation (torch 2.13: `abort` does not). Shutting its connections down does,
and frees even a rank whose peer is stopped. `shutdown` acts on the connection, not on the file descriptor, so it works
where a forked child still holds a copy.
"""

from __future__ import annotations

import contextlib
import os
import socket


def open_sockets() -> dict[str, int]:
    """Sockets of this process: `socket:[inode]` to a descriptor. The inode tells a socket from a later one that reuses
    its number."""
    found: dict[str, int] = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:"):
                found[target] = int(name)
    return found


def cut(targets: set[str]) -> int:
    """Shut down those of `targets` that are connected over IP; returns how many. Listeners are left alone."""
    done = 0
    for target, number in open_sockets().items():
        if target not in targets:
            continue
        try:
            with socket.socket(fileno=os.dup(number)) as copy:
                if copy.family in (socket.AF_INET, socket.AF_INET6):
                    copy.getpeername()  # fails on a listener, and on what is not connected yet
                    copy.shutdown(socket.SHUT_RDWR)
                    done += 1
        except OSError:
            continue  # not connected, or gone meanwhile: nothing to cut
    return done
