"""Whom the agent lets in: with TLS, only who shows a certificate for callers, signed by the job's own authority."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable

from spare.api import wire
from spare_runtime.config import BadEnvironment, Tls

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

WAITING = 128
"""Callers that may be in their handshake at once; each holds a quarter of a megabyte of asyncio's buffers."""
HANDSHAKE = 10.0
"""Seconds that a handshake may take; it takes milliseconds."""
BACKLOG = 512
NO_DESCRIPTORS = 0.1
"""Seconds until the next try after a connection could not be taken."""


def tls_context(tls: Tls | None) -> ssl.SSLContext | None:
    """The agent's side of TLS; None without it.

    OpenSSL checks that a caller's certificate is meant for callers (`clientAuth`): the agents' own, which every pod
    has, is not, so a pod cannot pose as the coordinator.

    Raises:
        BadEnvironment: the files do not hold what they should.
    """
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(tls.ca)
        context.load_cert_chain(tls.certificate, tls.key)
    except (ssl.SSLError, OSError) as error:
        raise BadEnvironment(f"SPARE_TLS_CA, SPARE_TLS_CERT and SPARE_TLS_KEY name no usable files: {error}") from error
    return context


class Entrance:
    """A listening socket where callers show their certificates, and wait no longer than they need for that.

    Whoever reaches the address can begin a handshake and leave it at that. Were all of them kept, they would use up the
    pod's memory, and the kernel would kill the group. So only the newest `WAITING` are: who has a certificate is in
    long before as many others have come, or tries again.
    """

    def __init__(self, listener: socket.socket, serve: Serve, tls: ssl.SSLContext) -> None:
        """`listener`: bound; `serve` gets who is let in."""
        self._listener, self._serve, self._tls = listener, serve, tls
        self._waiting: dict[asyncio.Task[None], None] = {}
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._task = asyncio.get_running_loop().create_task(self._accept())

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:  # it left again, or there are no descriptors
                await asyncio.sleep(NO_DESCRIPTORS)
                continue
            task = loop.create_task(self._shake_hands(connection))
            self._waiting[task] = None
            task.add_done_callback(lambda done: self._waiting.pop(done, None))
            if len(self._waiting) > WAITING:
                oldest = next(iter(self._waiting))
                del self._waiting[oldest]  # at once: its end takes some turns, and others come meanwhile
                oldest.cancel()
            await asyncio.sleep(0)  # a queue of callers must not keep the others' turn

    async def _shake_hands(self, connection: socket.socket) -> None:
        reader = asyncio.StreamReader(limit=wire.MAX_LINE)
        with contextlib.suppress(OSError):  # a stranger, or one that is too slow
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: asyncio.StreamReaderProtocol(reader, self._serve),
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE,
            )
