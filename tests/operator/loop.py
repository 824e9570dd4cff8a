"""Virtual time with real sockets: what arrives is handled first, and time passes only when nothing does."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Patient(selectors.DefaultSelector):
    """Looks twice before it lets time pass: bytes on loopback are there when their sender has returned."""

    def __init__(self, advance: Callable[[float], None]) -> None:
        super().__init__()
        self._advance = advance

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            ready = super().select(5.0)  # only another thread can bring something
            if not ready:
                raise AssertionError("everything waits and no deadline is set: nothing can ever happen")
        if not ready and timeout:
            self._advance(timeout)
        return ready


class Loop(asyncio.SelectorEventLoop):
    """An event loop of its own time, from 1,000,000 s on."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        super().__init__(_Patient(self._pass))

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    def time(self) -> float:
        """See asyncio."""
        return self.now


def run(main: Callable[[], Coroutine[Any, Any, T]], *, limit: float = 7200.0) -> T:
    """Run a test's coroutine; `limit`: virtual seconds it may take at most."""

    async def limited() -> T:
        async with asyncio.timeout(limit):
            return await main()

    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(limited())
