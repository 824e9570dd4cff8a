"""A program that blocks, on a greenlet: it runs until it waits, and goes on when it is poked or its time has come."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import greenlet

from tests.chaos.core import Core, Node


class ProcessEnded(BaseException):
    """Unwinds the program of a process that has ended."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Process:
    """One worker's process. `ended` is told the exit code (negative: a signal), once."""

    def __init__(self, core: Core, node: Node, ended: Callable[[int], None]) -> None:
        self.core, self.node = core, node
        self.at = "starting"
        """Where it waits, for people and for failures at chosen points."""
        self.on_point: Callable[[str], None] | None = None
        self._ended = ended
        self._greenlet: Any = None
        self._turn = 0
        self._waiting = False
        self._poked = False
        self._farewells: list[Callable[[], None]] = []

    @property
    def dead(self) -> bool:
        """Whether it has ended."""
        return self.node.dead

    def start(self, main: Callable[[], int]) -> None:
        """Run `main`; what it returns is the exit code."""

        def body() -> None:
            try:
                code = main()
            except ProcessEnded as ended:
                code = ended.code
            self.end(code)

        self._greenlet = greenlet.greenlet(body)
        self._waiting = True
        self.node.after(0.0, self._resume, self._turn)

    def at_end(self, farewell: Callable[[], None]) -> None:
        """What the kernel does when the process is gone: connections are closed."""
        self._farewells.append(farewell)

    def passes(self, point: str) -> None:
        """The program comes to a point at which something may happen to it."""
        if self.on_point is not None:
            self.on_point(point)
        if self.dead:
            raise ProcessEnded(-9)

    def pause(self, until: float = math.inf) -> None:
        """Wait until poked or until the node's clock shows `until`. Only the process itself calls this."""
        self._poked = False
        self.passes(self.at)
        if self._poked:  # by what happened at this very point
            return
        self._turn += 1
        self._waiting = True
        timer = None
        if until < math.inf:
            timer = self.core.at(until - self.node.offset, self.node, self._resume, (self._turn,))
        self._greenlet.parent.switch()
        if timer is not None:
            timer.gone = True
        if self.dead:
            raise ProcessEnded(-9)

    def sleep(self, seconds: float) -> None:
        """Wait, whatever happens."""
        until = self.node.time() + seconds
        while self.node.time() < until - 1e-12:
            self.pause(until)

    def poke(self) -> None:
        """Let it look again at what it waits for."""
        if self._waiting and not self._poked and not self.dead:
            self.node.after(0.0, self._resume, self._turn)
        self._poked = True

    def _resume(self, turn: int) -> None:
        if self._waiting and turn == self._turn:
            self._waiting = False
            self._greenlet.parent = greenlet.getcurrent()
            self._greenlet.switch()

    def leave(self, reason: str, code: int) -> NoReturn:
        """`os._exit`, from whichever thread."""
        self.core.note(self.node.name, f"leaves with {int(code)}: {reason}")
        self.end(int(code))
        raise ProcessEnded(int(code))

    def end(self, code: int, vanish: bool = False) -> None:
        """End now. `vanish`: its host is gone with it, so nobody closes its connections."""
        if self.dead:
            return
        self.node.die()
        self.core.note(self.node.name, f"ended with {code} in {self.at!r}" + (", host and all" if vanish else ""))
        if not vanish:
            for farewell in self._farewells:
                farewell()
        self._ended(code)

    def bury(self) -> None:
        """Unwind what is left of a dead process. Not from within itself."""
        g = self._greenlet
        if g is not None and not g.dead and g is not greenlet.getcurrent():
            self.node.dead = True
            g.parent = greenlet.getcurrent()
            if g:
                g.throw(ProcessEnded(-9))


class Condition:
    """`threading.Condition` of a process whose other threads are the world's callbacks."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def __enter__(self) -> Condition:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def wait(self, timeout: float) -> None:
        """Until notified, at most so long."""
        self._process.pause(self._process.node.time() + timeout)

    def notify_all(self) -> None:
        """Let the process look again."""
        self._process.poke()
