"""An event loop whose clock jumps: no test waits for real time, and every run of a test is the same."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.BaseSelector):
    """Nothing is ever ready; a wait with a timeout moves the clock instead."""

    def __init__(self, real: selectors.BaseSelector, advance: Callable[[float], None]) -> None:
        self._real = real
        self._advance = advance

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everything waits and no deadline is set: nothing can ever happen")
        self._advance(max(timeout, 0.0))
        return self._real.select(0)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Any:
        return self._real.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only while nothing else can be done."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(_Selector(selectors.DefaultSelector(), self._advance))

    def _advance(self, seconds: float) -> None:
        self.now += seconds

    def time(self) -> float:
        return self.now


def run(main: Callable[[], Coroutine[Any, Any, T]], *, limit: float = 3600.0) -> T:
    """Run a test's coroutine in virtual time; `limit` virtual seconds are the most it may take."""

    async def limited() -> T:
        async with asyncio.timeout(limit):
            return await main()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(limited())
