"""Waiting for members that come late, or never: what is tried again, for how long, and what is said in the end."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spare_runtime.meeting import Meeting
from spare_runtime.store import StoreServer
from tests.runtime.peers import Peers
from tests.runtime.plans import TOKEN, plan


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_leader_that_never_comes_is_told(two: Peers) -> None:
    """F12, F16: whom, where, for how long, and the last error with its number."""
    nowhere = f"127.0.0.1:{free_port()}"
    alone = two.members[1]
    alone.call("meet", two.plan(1, epoch=7, leader=nowhere), 0.2, 30.0)
    alone.ask("enter")
    answer = alone.answer()

    assert answer.failed == "RendezvousTimeout"
    assert re.fullmatch(
        rf"group 1 waited [\d.]+ s for the store of the leader, group 0, at {nowhere} \(epoch 7\); "
        r"last error: \[Errno 111\] Connection refused",
        answer.text,
    )


def test_members_that_never_come_are_named(three: Peers) -> None:
    """The leader and its store are there, one group is not."""
    three.begin(deadline=0.3, who=three.members[:2])
    for peer in three.members[:2]:
        peer.call("enter")
        peer.ask("exchange", "mine")

    for peer in three.members[:2]:
        answer = peer.answer()
        assert answer.failed == "RendezvousTimeout"
        assert re.search(r"waited [\d.]+ s in the rendezvous of epoch 1 at 127\.0\.0\.1:\d+ for groups 2$", answer.text)


def test_names_that_do_not_resolve_yet_are_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """F10: names of fresh pods take a while to be known; nobody gives up before the deadline."""
    store = StoreServer("127.0.0.1", TOKEN)
    lookups, known = [], socket.getaddrinfo

    def getaddrinfo(host: str, *more: Any, **named: Any) -> Any:
        lookups.append(host)
        if len(lookups) < 5:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return known(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    told = plan(group=1, stores=(f"localhost:{store.port}",), leader_group=0)
    meeting = Meeting(told, store, TOKEN, "127.0.0.1", 30.0, 30.0)
    meeting.enter()
    meeting.drop()

    assert lookups[:5] == ["localhost"] * 5


def test_a_refused_connection_is_tried_again(two: Peers) -> None:
    """F12: the leader's port opens late: who dials it gets through as soon as it does."""
    leader, other = two
    port = free_port()
    other.call("meet", two.plan(1, leader=f"127.0.0.1:{port}"), 30.0, 30.0)
    other.ask("enter")
    other.blocked()
    assert other.busy(0.05)
    with forwarded(port, int(leader.address.rpartition(":")[2])):
        assert other.answer().error is None
        leader.call("meet", two.plan(0), 30.0, 30.0)
        leader.call("enter")
        two.members[0].ask("exchange", "a")
        two.members[1].ask("exchange", "b")

        assert [p.answer().result for p in two] == [{0: "a", 1: "b"}] * 2
        two.all("connect")


@contextmanager
def forwarded(port: int, target: int) -> Iterator[None]:
    """Connections to one port of loopback reach another one."""

    def carry(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(65536):
                sink.sendall(chunk)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", target))
                ends.extend((near, far))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    ends: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", port)) as listener:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
    for end in ends:
        end.close()
