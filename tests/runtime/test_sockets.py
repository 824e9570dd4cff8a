"""Cutting connections from outside of who uses them."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spare_runtime.sockets import cut, open_sockets

SOON = 10.0


def name(one: socket.socket) -> str:
    """As `open_sockets` names it."""
    return next(n for n, fd in open_sockets().items() if fd == one.fileno())


@contextmanager
def connected(host: str = "127.0.0.1") -> Iterator[tuple[socket.socket, socket.socket, socket.socket]]:
    """A listener, and both ends of a connection to it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, 0), family=family) as listener,
        socket.create_connection(listener.getsockname()[:2]) as near,
        listener.accept()[0] as far,
    ):
        yield listener, near, far


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_thread_blocked_in_a_read_is_freed(host: str) -> None:
    """It sees the end of the connection, and so does the other side."""
    with connected(host) as (_, near, far):
        got: list[bytes] = []
        reading = threading.Thread(target=lambda: got.append(near.recv(1)))
        reading.start()

        assert cut({name(near)}) == 1
        reading.join(SOON)
        assert got == [b""]
        far.settimeout(SOON)
        assert far.recv(1) == b""


def test_a_child_s_copy_does_not_keep_it_alive() -> None:
    """A forked data loader holds every descriptor of its parent; closing ours would tell the peer nothing."""
    with connected() as (_, near, far), subprocess.Popen(["sleep", "600"], pass_fds=[near.fileno()]) as child:
        cut({name(near)})
        far.settimeout(SOON)

        assert far.recv(1) == b""
        child.kill()


def test_what_is_no_target_is_left_alone() -> None:
    """The user's own connections, made before or after, go on."""
    with connected() as (_, near, far), connected() as (_, other_near, other_far):
        cut({name(near), name(far)})
        other_near.sendall(b"x")
        other_far.settimeout(SOON)

        assert other_far.recv(1) == b"x"


def test_listeners_are_left_alone() -> None:
    """The next epoch's members come in there."""
    with connected() as (listener, near, far):
        assert cut({name(listener), name(near), name(far)}) == 2
        with socket.create_connection(listener.getsockname()):
            late, _ = listener.accept()
            late.close()


def test_guests_of_a_port_are_left_alone() -> None:
    """Connections that others made to our store; our own connection to it is none of them."""
    with connected() as (listener, near, far):
        assert cut({name(near), name(far)}, but_port=listener.getsockname()[1]) == 1


def test_local_and_datagram_sockets_are_left_alone() -> None:
    """The line to the agent, and a lookup of a name under way."""
    one, other = socket.socketpair()
    with one, other, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        datagram.connect(("127.0.0.1", 9))

        assert cut({name(s) for s in (one, other, datagram)}) == 0
        one.sendall(b"x")
        assert other.recv(1) == b"x"


def test_a_closed_target_is_no_error() -> None:
    """It may be gone since it was listed, and its number may belong to something else."""
    with connected() as (_, near, _far):
        gone = name(near)
    before = len(open_sockets())

    assert cut({gone, "socket:[1]"}) == 0
    assert len(open_sockets()) == before
