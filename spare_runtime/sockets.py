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


def cut(targets: set[str], but_port: int = 0) -> int:
    """Shut down those of `targets` that are connected by TCP; returns how many. Listeners are left alone, and so are
    connections that came in at `but_port`."""
    done = 0
    for target, number in open_sockets().items():
        if target in targets:
            with contextlib.suppress(OSError):  # not connected, or gone meanwhile: nothing to cut
                done += _shut(target, os.dup(number), but_port)
    return done


def _shut(target: str, copy: int, but_port: int) -> bool:
    try:
        if f"socket:[{os.fstat(copy).st_ino}]" != target:
            os.close(copy)
            return False  # the number belongs to something else by now
        connection = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
    with connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
            return False
        connection.getpeername()  # fails on a listener, and on what is not connected yet
        if connection.getsockname()[1] == but_port:
            return False
        connection.shutdown(socket.SHUT_RDWR)
        return True
