"""The connections of a process group, found and cut from outside.

Gloo offers no way to interrupt a pending operation (torch 2.13: `abort` does not). Shutting its connections down does,
and frees even a rank whose peer is stopped. `shutdown` acts on the connection, not on the file descriptor, so it works
where a forked child still holds a copy.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection

End = tuple[str, int]
"""Host and port, as `getsockname` gives them."""


def listening() -> list[tuple[End, socket.AddressFamily]]:
    """Where this process listens for TCP connections."""
    found = []
    for number in _sockets():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as one:  # closed meanwhile
            if _is_tcp(one) and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                host, port = one.getsockname()[:2]
                found.append(((host, port), socket.AddressFamily(one.family)))
    return found


def cut(own: End | None, others: Collection[End]) -> int:
    """Shut down the connections that came in at `own` or go to one of `others`; returns how many.

    Listeners are left alone, and so is what is still being connected: it has no other end yet.
    """
    done = 0
    for number in _sockets():
        with contextlib.suppress(OSError):  # closed meanwhile, a listener, or not connected: nothing to cut
            done += _shut(os.dup(number), own, others)
    return done


def _shut(copy: int, own: End | None, others: Collection[End]) -> bool:
    # Everything is asked of the copy: the number itself may belong to something else by now.
    with socket.socket(fileno=copy) as one:
        if not _is_tcp(one):
            return False
        there = one.getpeername()[:2]
        if one.getsockname()[:2] != own and there not in others:
            return False
        one.shutdown(socket.SHUT_RDWR)
        return True


def _is_tcp(one: socket.socket) -> bool:
    return one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM


def _sockets() -> list[int]:
    """Descriptors of this process that are sockets."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                found.append(int(name))
    return found
