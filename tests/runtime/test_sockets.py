"""Cutting connections from outside of who uses them."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spare_runtime.sockets import End, cut, listening

SOON = 10.0


def end(one: socket.socket) -> End:
    """Where a socket is bound to."""
    host, port = one.getsockname()[:2]
    return host, port


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
    with connected(host) as (listener, near, far):
        got: list[bytes] = []
        reading = threading.Thread(target=lambda: got.append(near.recv(1)))
        reading.start()

        assert cut(None, {end(listener)}) == 1
        reading.join(SOON)
        assert got == [b""]
        far.settimeout(SOON)
        assert far.recv(1) == b""


def test_a_child_s_copy_does_not_keep_it_alive() -> None:
    """A forked data loader holds every descriptor of its parent; closing ours would tell the peer nothing."""
    with connected() as (at, near, far), subprocess.Popen(["sleep", "600"], pass_fds=[near.fileno()]) as child:
        cut(None, {end(at)})
        far.settimeout(SOON)

        assert far.recv(1) == b""
        child.kill()


def test_what_is_no_target_is_left_alone() -> None:
    """The user's own connections, made before or after, go on."""
    with connected() as (listener, _, _), connected() as (_, other_near, other_far):
        assert cut(end(listener), {end(listener)}) == 2
        other_near.sendall(b"x")
        other_far.settimeout(SOON)

        assert other_far.recv(1) == b"x"


def test_listeners_are_left_alone() -> None:
    """Gloo's own is its affair, and others come in at the store's."""
    with connected() as (listener, _, _):
        assert cut(end(listener), {end(listener)}) == 2
        with socket.create_connection(listener.getsockname()):
            late, _ = listener.accept()
            late.close()


def test_the_two_ends_of_a_connection_are_told_apart() -> None:
    """One of ours came in at our own address, or goes to another's; what is neither is none of ours."""
    others = listening()  # of tests before this one, in the same process
    with connected() as (listener, near, far):
        assert cut(end(near), set()) == 1
        assert cut(None, {end(far)}) == 1
        assert cut(None, set()) == 0
        assert [each for each in listening() if each not in others] == [(end(listener), listener.family)]


def test_local_and_datagram_sockets_are_left_alone() -> None:
    """The line to the agent, and a lookup of a name under way."""
    one, other = socket.socketpair()
    with one, other, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        datagram.connect(("127.0.0.1", 9))

        assert cut(end(datagram), {("127.0.0.1", 9)}) == 0
        one.sendall(b"x")
        assert other.recv(1) == b"x"


def test_what_is_not_connected_is_no_error() -> None:
    """It has no other end yet, or any more."""
    with connected() as (listener, near, _), socket.socket() as fresh:
        fresh.bind(("127.0.0.1", 0))
        near.shutdown(socket.SHUT_RDWR)
        before = len(os.listdir("/proc/self/fd"))

        cut(end(fresh), {end(listener)})
        assert len(os.listdir("/proc/self/fd")) == before
