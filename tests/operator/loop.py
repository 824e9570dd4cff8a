"""Virtual time with real sockets: what was sent arrives first, and time passes only when nothing is under way."""

from __future__ import annotations

import asyncio
import fcntl
import selectors
import struct
import termios
import time
import weakref
from asyncio import selector_events
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_PATIENCE = 2.0
"""Real seconds for which bytes may be under way on loopback; a busy machine takes some milliseconds."""
_Transport: Any = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]


class _Patient(selectors.DefaultSelector):
    """Lets time pass only when nothing is ready and every byte that was sent has arrived."""

    def __init__(self, advance: Callable[[float], None]) -> None:
        super().__init__()
        self._advance = advance
        self.senders: weakref.WeakSet[Any] = weakref.WeakSet()
        """Transports that have sent something that may not have arrived."""
        self.connecting = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        began = time.monotonic()
        while not ready and timeout != 0 and self._under_way() and time.monotonic() < began + _PATIENCE:
            ready = super().select(0.0005)
        if not ready:
            ready = super().select(0)
        if not ready and timeout is None:
            ready = super().select(_PATIENCE)  # only another thread can bring something
            if not ready:
                raise AssertionError("everything waits and no deadline is set: nothing can ever happen")
        if not ready and timeout:
            self._advance(timeout)
        return ready

    def _under_way(self) -> bool:
        for transport in tuple(self.senders):
            if transport.is_closing() or not _unacknowledged(transport._sock_fd):
                self.senders.discard(transport)
        return bool(self.senders) or self.connecting > 0


def _unacknowledged(descriptor: int) -> int:
    """Bytes that the other side's kernel has not taken."""
    try:
        answer = fcntl.ioctl(descriptor, termios.TIOCOUTQ, b"\0" * 4)
    except OSError:
        return 0
    count: int = struct.unpack("i", answer)[0]
    return count


class Loop(asyncio.SelectorEventLoop):
    """An event loop of its own time, from 1,000,000 s on."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.patient = _Patient(self._pass)
        super().__init__(self.patient)

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    def time(self) -> float:
        """See asyncio."""
        return self.now

    async def sock_connect(self, *arguments: Any) -> None:
        """See asyncio."""
        self.patient.connecting += 1
        try:
            await super().sock_connect(*arguments)
        finally:
            self.patient.connecting -= 1


def _counted(name: str) -> None:
    """Let transports tell their loop that they send."""
    method = getattr(_Transport, name)

    def told(self: Any, *arguments: Any) -> None:
        if isinstance(self._loop, Loop):
            self._loop.patient.senders.add(self)
        method(self, *arguments)

    setattr(_Transport, name, told)


_counted("write")
_counted("writelines")


def run(main: Callable[[], Coroutine[Any, Any, T]], *, limit: float = 7200.0) -> T:
    """Run a test's coroutine; `limit`: virtual seconds it may take at most."""

    async def limited() -> T:
        async with asyncio.timeout(limit):
            return await main()

    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(limited())
