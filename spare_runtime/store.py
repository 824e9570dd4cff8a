"""The rendezvous store, where members of a plan leave word for each other: every worker serves one, one is used.

Torch's own TCPStore is not used, for three reasons found by measuring: its client asks the DNS for the name of every
address that it connects to, and stands still for seconds where nobody answers (a cluster without DNS, field case F11);
a client whose server is stopped cannot be freed in time; and whoever reaches its port may write into it. This one
speaks JSON lines, asks nobody for names, ends when its one socket is shut down, and wants the job's token first.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import selectors
import socket
import threading
from dataclasses import dataclass, field
from typing import Any

from spare.api import wire

_BACKLOG = 1024
_CHUNK = 1 << 16
_MOST = 64 << 20
"""Longest request, bytes."""
_GREETING = 4096
"""The same of who has not shown the token yet."""
_STRANGERS = 1024
"""Guests that have not shown it yet; who comes beyond sends the oldest of them away. A member shows it at once."""


def _older(key: str, job: str, before: int) -> bool:
    epoch = key.removeprefix(job).partition("/")[0]
    return key.startswith(job) and epoch.isdigit() and int(epoch) < before


@dataclass(eq=False)
class _Guest:
    """One connection to the server."""

    connection: socket.socket
    incoming: bytearray = field(default_factory=bytearray)
    outgoing: bytearray = field(default_factory=bytearray)
    welcome: bool = False
    awaits: list[str] = field(default_factory=list)
    """Keys of the request that is not answered yet, because they are not all there."""
    wants: str | None = None
    """The key whose value answers it."""


class StoreServer:
    """Serves key and value pairs on a thread of its own, on a port that the kernel chose, bound to one address only."""

    def __init__(self, bind: str, token: str) -> None:
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._listener = socket.socket(family)
        self._listener.bind((bind, 0))
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        self.address = wire.Address(*self._listener.getsockname()[:2])
        self._token = token
        self._lock = threading.Lock()
        self._data: dict[str, str] = {}
        self._guests: dict[_Guest, None] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        threading.Thread(target=self._run, name="spare-store", daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.address.port

    def forget(self, job: str, before: int) -> None:
        """Forget what was left in epochs of the job older than `before`.

        Never what is newer: others may have come to a later rendezvous here, and say their word only once.
        """
        with self._lock:
            self._data = {key: value for key, value in self._data.items() if not _older(key, f"{job}/", before)}

    def _run(self) -> None:
        while True:
            for key, events in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif events & selectors.EVENT_READ:
                    self._read(key.data)
                else:
                    self._flush(key.data)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it left before it was let in
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            guest = _Guest(connection)
            self._guests[guest] = None
            self._selector.register(connection, selectors.EVENT_READ, guest)
            strangers = [g for g in self._guests if not g.welcome]
            if len(strangers) > _STRANGERS:
                self._part(strangers[0])

    def _read(self, guest: _Guest) -> None:
        try:
            chunk = guest.connection.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        guest.incoming += chunk
        if not chunk or len(guest.incoming) > (_MOST if guest.welcome else _GREETING):
            self._part(guest)
            return
        while (end := guest.incoming.find(b"\n")) >= 0:
            line = bytes(guest.incoming[:end])
            del guest.incoming[: end + 1]
            try:
                self._answer(guest, json.loads(line))
            except (ValueError, KeyError, TypeError, RecursionError):
                self._part(guest)  # it speaks something else
                return

    def _part(self, guest: _Guest) -> None:
        if guest in self._guests:
            del self._guests[guest]
            self._selector.unregister(guest.connection)
            guest.connection.close()

    def _answer(self, guest: _Guest, request: dict[str, Any]) -> None:
        if not guest.welcome:
            if not hmac.compare_digest(str(request["token"]).encode(), self._token.encode()):
                raise ValueError("not this job's token")
            guest.welcome = True
            self._say(guest, True)
            return
        kind, keys = request["op"], [str(key) for key in request["keys"]]
        with self._lock:
            if kind == "set":
                self._data[keys[0]] = str(request["value"])
            elif kind == "add":
                self._data[keys[0]] = str(int(self._data.get(keys[0], "0")) + int(request["value"]))
            there = all(key in self._data for key in keys)
        if kind in ("set", "check", "add"):
            self._say(guest, there if kind != "add" else int(self._data[keys[0]]))
            if kind != "check":
                self._serve_waiting()
        elif kind in ("get", "wait"):
            guest.awaits, guest.wants = keys, keys[0] if kind == "get" else None
            self._serve_waiting()
        else:
            raise ValueError(kind)

    def _serve_waiting(self) -> None:
        for guest in [g for g in self._guests if g.awaits]:
            with self._lock:
                ready = all(key in self._data for key in guest.awaits)
                value = self._data[guest.wants] if ready and guest.wants is not None else True
            if ready:
                guest.awaits = []
                self._say(guest, value)

    def _say(self, guest: _Guest, value: object) -> None:
        guest.outgoing += json.dumps(value).encode() + b"\n"
        self._flush(guest)

    def _flush(self, guest: _Guest) -> None:
        try:
            while guest.outgoing:
                del guest.outgoing[: guest.connection.send(guest.outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._part(guest)
            return
        more = selectors.EVENT_WRITE if guest.outgoing else 0
        self._selector.modify(guest.connection, selectors.EVENT_READ | more, guest)
