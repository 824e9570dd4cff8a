"""Where an agent can be reached: its two listening sockets, and the signals that it gets."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
import ssl
from collections.abc import Callable

from spare.api import wire
from spare_runtime.agent.listening import Entrance, Serve


class Doors:
    """The real ones. The deterministic simulation (tests/chaos) opens its own."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: who is let in above (see `listening`); None: everybody who reaches the address."""
        self._tls = tls

    async def below(self, serve: Serve, uid: str) -> str:
        """Listen for the worker; returns the socket's name, as SPARE_AGENT tells it."""
        path = f"\0spare-{uid}-{secrets.token_hex(4)}"  # abstract: nothing to remove when killed
        await asyncio.start_unix_server(serve, path=path, limit=wire.MAX_LINE)
        return "@" + path[1:]

    async def above(self, serve: Serve, bind: str, port: int) -> wire.Address:
        """Listen for the coordinator.

        Raises:
            OSError: the address cannot be had.
        """
        if self._tls is None:
            server = await asyncio.start_server(serve, bind, port, limit=wire.MAX_LINE)
            return wire.Address(*server.sockets[0].getsockname()[:2])
        listener = socket.create_server((bind, port), family=socket.AF_INET6 if ":" in bind else socket.AF_INET)
        self._entrance = Entrance(listener, serve, self._tls)
        return wire.Address(*listener.getsockname()[:2])

    def signals(self, stop: Callable[[str], None], leave: Callable[[str], None]) -> None:
        """Let SIGINT call `stop`, and SIGTERM `leave`, with the reason.

        Not by the loop's own handlers, which put the default back when the loop ends: a signal that comes then would
        kill the agent before it has ended what it left behind. These stay, and do nothing once nobody reads.
        """
        loop = asyncio.get_running_loop()
        calls = {signal.SIGINT: stop, signal.SIGTERM: leave}
        self._signalled = read, write = socket.socketpair()
        for end in self._signalled:
            end.setblocking(False)

        def came() -> None:
            for number in dict.fromkeys(read.recv(4096)):
                if number in calls:
                    sig = signal.Signals(number)
                    calls[sig](f"{sig.name} received")

        loop.add_reader(read, came)
        signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        for sig in calls:
            signal.signal(sig, lambda *_: None)
            signal.siginterrupt(sig, False)
