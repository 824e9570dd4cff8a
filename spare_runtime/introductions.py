"""Which connections are gloo's: told by their ends.

Every member's gloo listens at one address, which it publishes through the store; each of its connections either came
in at our own or goes to another member's. When a connection appeared tells nothing: the training script may open its
own at any moment.
"""

from __future__ import annotations

import socket
import struct
from datetime import timedelta
from typing import Any

import torch.distributed

from spare_runtime.sockets import End, listening

_Store: Any = torch.distributed.Store  # type: ignore[attr-defined]  # torch's stubs do not know it


class Introductions(_Store):  # type: ignore[misc]
    """The store that gloo is given: passes everything on, and notes at which address each member's gloo listens.

    Gloo publishes a `sockaddr` inside of bytes whose layout is its own affair. Our own is known from the kernel, so it
    can be looked for; the others' stand at the same place of what they published.
    """

    def __init__(self, store: Any) -> None:
        super().__init__()
        self._store = store
        self._at = -1
        self.own: End | None = None
        """Where this process's gloo listens; None until it has said so."""
        self.others: frozenset[End] = frozenset()
        """Where the other members' gloo listen, as far as they have been read."""

    def set(self, key: str, value: bytes | str) -> None:
        """See torch's Store; what gloo says of itself."""
        raw = value.encode("latin-1") if isinstance(value, str) else bytes(value)
        for end, family in listening():
            if (at := raw.find(_sockaddr(family, *end))) >= 0:
                self.own, self._at = end, at
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        """See torch's Store; what gloo hears of the others."""
        value: bytes = self._store.get(key)
        if self._at >= 0 and (end := _end_of(value[self._at :])) is not None and end != self.own:
            self.others |= {end}
        return value

    def check(self, keys: list[str]) -> bool:
        """See torch's Store."""
        return bool(self._store.check(keys))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """See torch's Store."""
        self._store.wait(keys) if timeout is None else self._store.wait(keys, timeout)


def _sockaddr(family: int, host: str, port: int) -> bytes:
    """Family in the machine's order, port in the network's; with IPv6, the flow comes before the host."""
    flow = bytes(4) if family == socket.AF_INET6 else b""
    return struct.pack("=H", family) + struct.pack("!H", port) + flow + socket.inet_pton(family, host)


def _end_of(raw: bytes) -> End | None:
    """The inverse of `_sockaddr`; None where there is none."""
    if len(raw) < 24:
        return None
    family, port = struct.unpack_from("=H", raw)[0], struct.unpack_from("!H", raw, 2)[0]
    if family == socket.AF_INET:
        return socket.inet_ntop(family, raw[4:8]), port
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, raw[8:24]), port
    return None
