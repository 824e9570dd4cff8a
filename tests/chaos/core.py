"""Virtual time: one heap of what will happen, in an order that a seed decides.

A node is a process. What is to happen at it waits while it is frozen and is forgotten when it is dead. Programs that
use asyncio run on a node's own loop; a program that blocks runs on a greenlet, see `tests.chaos.process`. Equal times
are ordered by who asked first, so a run is the same each time, byte for byte.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from asyncio import events
from collections.abc import Callable, Coroutine
from typing import Any, cast

_SPIN = 20_000
"""Happenings at one moment after which something is called endless."""


class Violation(Exception):
    """A rule is broken. The text says which, and by whom."""


class Entry:
    """Something that will happen. Serves asyncio as its handle."""

    __slots__ = ("args", "call", "gone", "node", "when")

    def __init__(self, when: float, node: Node, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.when, self.node, self.call, self.args, self.gone = when, node, call, args, False

    def cancel(self) -> None:
        """It will not happen."""
        self.gone = True

    def cancelled(self) -> bool:
        """Whether it will not."""
        return self.gone


class Node:
    """One process, or the world itself."""

    def __init__(self, core: Core, name: str, host: str) -> None:
        self.core, self.name, self.host = core, name, host
        self.dead = self.frozen = False
        self.backlog: list[Entry] = []
        self.offset = core.random.uniform(0.0, 1e5)  # clocks of two processes have nothing to do with each other
        self.loop = Loop(self)

    def time(self) -> float:
        """Its monotonic clock."""
        return self.core.now + self.offset

    def after(self, seconds: float, call: Callable[..., object], *args: Any) -> Entry:
        """Let something happen here."""
        return self.core.at(self.core.now + seconds, self, call, args)

    def freeze(self) -> None:
        """SIGSTOP."""
        self.frozen = True

    def thaw(self) -> None:
        """SIGCONT: what was to happen meanwhile happens now."""
        self.frozen = False
        backlog, self.backlog = self.backlog, []
        for entry in backlog:
            self.core.push(self.core.now, entry)

    def die(self) -> None:
        """SIGKILL."""
        self.dead = True
        self.backlog.clear()


class Core:
    """The clock, the heap and the seed's generator."""

    def __init__(self, seed: int, trace: bool) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.events = 0
        self.broken: Violation | None = None
        self.log: list[str] | None = [] if trace else None
        self.over = False
        """The seed's verdict is given: nothing said from now on counts."""
        self._heap: list[tuple[float, int, Entry]] = []
        self._count = 0
        self._tasks: list[asyncio.Task[Any]] = []

    def note(self, who: str, text: str) -> None:
        """A line of the trace."""
        if self.log is not None and not self.over:
            self.log.append(f"{self.now:10.6f} {who:8} {text}")

    def violated(self, text: str) -> Violation:
        """End the run with this; to be raised where that is possible."""
        found = Violation(text)
        if self.broken is None and not self.over:
            self.broken = found
            self.note("world", f"VIOLATION {text}")
        return found

    def push(self, when: float, entry: Entry) -> None:
        """Put an entry into the heap (again)."""
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, entry))

    def at(self, when: float, node: Node, call: Callable[..., object], args: tuple[Any, ...] = ()) -> Entry:
        """Let something happen at a node."""
        entry = Entry(when, node, call, args)
        self.push(max(when, self.now), entry)
        return entry

    def latency(self) -> float:
        """Seconds of one message: mostly little, sometimes much."""
        dice = self.random.random()
        return 0.0002 + dice * 0.002 if dice < 0.97 else dice * 0.05

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Remember a task, so that it can be ended with the run."""
        self._tasks.append(task)

    def run(self, done: Callable[[], bool], limit: float) -> None:
        """Let things happen until `done`, a violation, or `limit` (virtual seconds)."""
        heap, pop, enter, turns = self._heap, heapq.heappop, events._set_running_loop, 0
        try:
            while heap and self.broken is None and not done():
                when, _, entry = pop(heap)
                node = entry.node
                if entry.gone or node.dead:
                    continue
                if when > limit:
                    return
                if node.frozen:
                    node.backlog.append(entry)
                    continue
                if when > self.now:
                    self.now, turns = when, 0
                self.events += 1
                turns += 1
                if turns > _SPIN:
                    raise self.violated(f"{node.name} spins: {entry.call} again and again, and time stands still")
                enter(cast(Any, node.loop))
                entry.call(*entry.args)
        except Violation as found:
            self.broken = self.broken or found
        finally:
            enter(None)

    def close(self) -> None:
        """End all tasks, the dead processes' included: nothing of a run may act later, when it is collected."""
        self.over = True
        self.broken = None
        nodes = {}
        for task in self._tasks:
            node = task.get_loop().node  # type: ignore[attr-defined]
            nodes[node.name] = node
            node.dead = node.frozen = False
            if not task.done():
                task.cancel()
        limit = self.now + 100.0
        self.run(lambda: all(task.done() for task in self._tasks), limit)
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.exception()
        for node in nodes.values():
            node.dead = True
        self._heap.clear()
        self._tasks.clear()


class Loop:
    """One node's event loop, as far as asyncio needs one for what runs here."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def time(self) -> float:
        """Its clock."""
        return self.node.core.now + self.node.offset

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        """At this moment, after what is to happen already."""
        return self.node.core.at(self.node.core.now, self.node, callback, args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        """After a delay."""
        return self.node.core.at(self.node.core.now + delay, self.node, callback, args)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        """At a time of this loop's clock."""
        return self.node.core.at(when - self.node.offset, self.node, callback, args)

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=cast(Any, self))

    def create_task(self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Any = None) -> Any:
        """A task of this loop."""
        task = asyncio.Task(coro, loop=cast(Any, self), name=name or "task")
        self.node.core.keep(task)
        return task

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """Always."""
        return True

    def is_closed(self) -> bool:
        """Never."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What asyncio has to complain about is a bug of the program that runs here."""
        node = self.node
        if not node.dead:
            raise node.core.violated(f"{node.name}: {context.get('message')}: {context.get('exception')!r}")
