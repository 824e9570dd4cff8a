"""A member's connection to a rendezvous store; a torch `Store`, so that gloo can use it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed

from spare.api import wire

_CHUNK = 1 << 16
_Store: Any = torch.distributed.Store  # type: ignore[attr-defined]


class StoreClient(_Store):  # type: ignore[misc]  # torch's stubs do not know it
    """A connection to a member's store, usable by gloo as its store. One request at a time."""

    def __init__(self, address: wire.Address, token: str, connect: float, deadline: float) -> None:
        """Connect.

        Args:
            address: Of the store.
            token: The job's.
            connect: Seconds for the connection and its first answer.
            deadline: Seconds for each further answer.

        Raises:
            OSError: nobody listens there, or it does not let us in.
        """
        super().__init__()
        self._turn = threading.Lock()
        self._deadline = deadline
        self._connection = socket.create_connection(address, timeout=connect)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._incoming = bytearray()
        try:
            self._ask({"token": token}, connect)
        except OSError:
            self._connection.close()
            raise

    def shut(self) -> None:
        """End the connection, from any thread: whoever waits for an answer gets an error at once."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it and give the descriptor back, once nobody waits."""
        self.shut()
        with self._turn:
            self._connection.close()

    def _ask(self, request: dict[str, Any], deadline: float) -> Any:
        with self._turn:
            until = time.monotonic() + deadline
            self._connection.settimeout(deadline)
            self._connection.sendall(json.dumps(request).encode() + b"\n")
            while (end := self._incoming.find(b"\n")) < 0:
                self._connection.settimeout(max(0.001, until - time.monotonic()))
                chunk = self._connection.recv(_CHUNK)
                if not chunk:
                    raise ConnectionError("the store closed the connection")
                self._incoming += chunk
            line = bytes(self._incoming[:end])
            del self._incoming[: end + 1]
            return json.loads(line)

    # --- what torch asks of a store -----------------------------------------------------------------------------------

    def set(self, key: str, value: bytes | str) -> None:
        """Write a value."""
        text = value if isinstance(value, str) else bytes(value).decode("latin-1")
        self._ask({"op": "set", "keys": [key], "value": text}, self._deadline)

    def add(self, key: str, amount: int) -> int:
        """Add to a number, which begins as 0; returns what it is then."""
        return int(self._ask({"op": "add", "keys": [key], "value": amount}, self._deadline))

    def get(self, key: str) -> bytes:
        """The value of a key, once it is there."""
        return str(self._ask({"op": "get", "keys": [key]}, self._deadline)).encode("latin-1")

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are there now."""
        return bool(self._ask({"op": "check", "keys": list(keys)}, self._deadline))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are there.

        Raises:
            OSError: they were not in time, or the connection broke.
        """
        seconds = self._deadline if timeout is None else timeout.total_seconds()
        self._ask({"op": "wait", "keys": list(keys)}, seconds)
