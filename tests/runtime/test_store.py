"""The rendezvous store: values, waits, and who may not speak to it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from spare_runtime.store import StoreServer
from spare_runtime.store_client import StoreClient


@pytest.fixture(name="server")
def a_server() -> StoreServer:
    """One store for a test."""
    return StoreServer("127.0.0.1", "secret")


@contextlib.contextmanager
def client(server: StoreServer) -> Iterator[StoreClient]:
    """A connection to it."""
    made = StoreClient(server.address, "secret", 5.0, 5.0)
    try:
        yield made
    finally:
        made.close()


def test_every_byte_comes_back(server: StoreServer) -> None:
    """Gloo writes addresses in binary."""
    with client(server) as one, client(server) as other:
        one.set("k", bytes(range(256)))

        assert other.get("k") == bytes(range(256))
        assert other.check(["k"])
        assert not other.check(["k", "l"])


def test_a_value_that_is_not_there_yet_is_waited_for(server: StoreServer) -> None:
    """The answer comes when somebody else writes it."""
    with client(server) as one, client(server) as other:
        found: list[bytes] = []
        reader = threading.Thread(target=lambda: found.append(other.get("late")))
        reader.start()
        one.set("other", b"1")
        one.set("late", b"2")
        reader.join(5.0)

        assert found == [b"2"]


def test_a_wait_ends_at_its_deadline(server: StoreServer) -> None:
    """An error, not an endless wait."""
    with client(server) as one, pytest.raises(TimeoutError):
        one.wait(["never"], timedelta(milliseconds=20))


def test_shutting_a_client_frees_who_waits_in_it(server: StoreServer) -> None:
    """From another thread, at once."""
    with client(server) as one:
        told: list[BaseException] = []

        def read() -> None:
            try:
                one.get("never")
            except OSError as error:
                told.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        while not server._guests or not any(guest.awaits for guest in server._guests):
            pass  # until the request has arrived
        one.shut()
        reader.join(5.0)

        assert len(told) == 1


def test_nobody_gets_in_without_the_token(server: StoreServer) -> None:
    """Field case F59: whoever reaches the port can neither read nor write."""
    with pytest.raises(ConnectionError):
        StoreClient(server.address, "guess", 5.0, 5.0)
    with socket.create_connection(server.address) as raw:
        raw.sendall(b'{"op": "set", "keys": ["k"], "value": "1"}\n')
        assert raw.recv(10) == b""
    with client(server) as one:
        assert not one.check(["k"])


def test_earlier_epochs_are_forgotten(server: StoreServer) -> None:
    """A store lives as long as its worker; what is in it must not grow with every plan."""
    with client(server) as one:
        for epoch in (1, 2, 3, 10):
            one.set(f"name/run/{epoch}/a", b"1")
        server.forget("name/run", 2)

        assert [one.check([f"name/run/{epoch}/a"]) for epoch in (1, 2, 3, 10)] == [False, True, True, True]


@pytest.mark.parametrize(
    "said", [b"x" * 100_000, b"[" * 4000 + b"\n"], ids=["a long greeting", "one that is nested deeply"]
)
def test_a_stranger_is_heard_for_a_line_only(server: StoreServer, said: bytes) -> None:
    """Who has not shown the token uses up no memory, and whatever it says, the others are served (F59)."""
    with socket.create_connection((server.address.host, server.port)) as stranger:
        stranger.settimeout(5.0)
        with contextlib.suppress(ConnectionError):
            stranger.sendall(said)
            assert stranger.recv(1) == b""

    with client(server) as one:
        one.set("k", b"v")
        assert one.get("k") == b"v"


def test_strangers_that_say_nothing_are_few(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are sent away; who has shown the token stays."""
    monkeypatch.setattr("spare_runtime.store._STRANGERS", 2)
    with client(server) as one, contextlib.ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection((server.address.host, server.port))) for _ in range(4)
        ]
        for stranger in strangers[:2]:
            stranger.settimeout(5.0)
            assert stranger.recv(1) == b""
        one.set("k", b"v")
        assert one.get("k") == b"v"
