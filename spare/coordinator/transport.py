"""How bytes reach an agent, behind two small protocols: TCP and TLS here, memory in tests."""

from __future__ import annotations

import asyncio
import ssl
from typing import Protocol

from spare.api import wire


class Channel(Protocol):
    """One open connection to an agent."""

    async def read(self) -> bytes:
        """The next line, newline included; empty when the other side has closed. Raises OSError, or Refused if it is
        longer than any message may be."""

    async def write(self, data: bytes) -> None:
        """Send, and wait while the other side takes nothing. Raises OSError."""

    async def close(self) -> None:
        """Drop the connection; that it is broken already is fine."""


class Transport(Protocol):
    """Opens connections."""

    async def connect(self, address: wire.Address) -> Channel:
        """Raises OSError when nobody listens there."""


class TcpChannel:
    """A plain socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """See Channel."""
        try:
            return await self._reader.readline()
        except ValueError as error:
            raise wire.Refused(f"a line longer than {wire.MAX_LINE} bytes") from error

    async def write(self, data: bytes) -> None:
        """See Channel."""
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        """See Channel. Does not wait for unsent bytes: who does not read them must not hold us up."""
        self._writer.close()
        try:
            async with asyncio.timeout(0.1):  # what the socket takes at once is still sent
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()


class Tcp:
    """Transport over TCP."""

    async def connect(self, address: wire.Address) -> TcpChannel:
        """See Transport."""
        reader, writer = await asyncio.open_connection(address.host, address.port, limit=wire.MAX_LINE)
        return TcpChannel(reader, writer)


class Tls:
    """Transport over TLS, both sides showing a certificate of the job's own authority."""

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        """`context`: our certificate, and whom to believe; `name`: what the agents' certificate must be made out to.

        The name is the same for all agents of a job: pods have no name that lasts, and their addresses come late.
        """
        self._context = context
        self._name = name

    async def connect(self, address: wire.Address) -> TcpChannel:
        """See Transport. A handshake that fails raises OSError as well (`ssl.SSLError` is one)."""
        reader, writer = await asyncio.open_connection(
            address.host, address.port, limit=wire.MAX_LINE, ssl=self._context, server_hostname=self._name
        )
        return TcpChannel(reader, writer)
