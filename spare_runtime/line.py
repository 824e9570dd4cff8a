"""The worker's line to its agent: plans and orders in, reports and a heartbeat out, on a thread of its own.

Nothing that the training loop sends waits for the agent: reports go through a queue. The thread's heartbeat tells
that the process is scheduled; the progress that it carries tells whether training moves.
"""

from __future__ import annotations

import collections
import contextlib
import os
import selectors
import socket
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NoReturn, TypeVar

from spare.api import wire
from spare.api.exit_codes import ExitCode
from spare_runtime.config import Environment
from spare_runtime.hand import Hand

ReportT = TypeVar("ReportT", bound=wire.Up)

_CONNECT_DEADLINE = 30.0


def leave(reason: str, code: int) -> NoReturn:
    """End this process at once, from any thread: what it was computing must not leave it."""
    try:
        print(f"spare: {reason}", file=sys.stderr, flush=True)  # noqa: T201
        sys.stdout.flush()
    finally:  # also where nobody reads that any more: the agent, which does, may be what has ended
        os._exit(code)


class Line(ABC):
    """What is said on the line and what is done about what is heard; how it gets there is the subclasses'."""

    def __init__(
        self,
        env: Environment,
        on_plan: Callable[[wire.Plan], None],
        on_finish: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        leave: Callable[[str, int], NoReturn] = leave,
    ) -> None:
        """`clock` and `leave` are replaced by the simulation; the rest is as for `AgentLine`."""
        self.env = env
        self.step, self.phase, self.micros, self.epoch = 0, "starting", 0, 0
        self._clock, self._leave = clock, leave
        self._moved, self._last = clock(), (0, "starting", 0)
        self._on_plan, self._on_finish = on_plan, on_finish
        self.on_save: Callable[[wire.Save], None] = lambda _: None
        """Called for an order to write checkpoints."""
        self.on_hand_on: Callable[[], None] = lambda: None
        """Called when the grace of a group that leaves is nearly over."""
        self.checkpoints: tuple[str, ...] = ()
        """What the hello says of complete checkpoints."""
        self.hand: Hand | None = None
        """Where the agent can see which micro-batch is in hand, whatever ends this process."""

    @abstractmethod
    def start(self, store: str) -> None:
        """Say hello with the address of this worker's store, and listen."""

    @abstractmethod
    def send(self, message: wire.Up) -> None:
        """Queue a report; never blocks."""

    @abstractmethod
    def flush(self, deadline: float) -> bool:
        """Wait until all reports have left, at most `deadline` seconds; whether they have."""

    def report(self, kind: type[ReportT], **fields: object) -> ReportT:
        """A message about this group, of the epoch that it is in."""
        env = self.env
        head = {"job": env.job, "uid": env.uid, "epoch": self.epoch}
        who = {"group": env.group, "pod": env.pod, "rank": env.rank}
        return kind(**head, **who, **fields)  # type: ignore[arg-type]

    def take(self, line: bytes) -> None:
        """Do what a line from the agent asks for."""
        try:
            message = wire.read(line)
        except wire.Refused as error:
            self.send(self.report(wire.Refusal, what="message", reason=str(error)))
            return
        if (why := wire.stale(message, job=self.env.job, uid=self.env.uid)) is not None:
            self.send(self.report(wire.Refusal, what=message.kind, reason=why))
        elif isinstance(message, wire.Plan):
            self._on_plan(message)
        elif isinstance(message, wire.Finish):
            self._on_finish()
        elif isinstance(message, wire.Save):
            self.on_save(message)
        elif isinstance(message, wire.HandOn):
            self.on_hand_on()
        elif isinstance(message, wire.Stop):
            self._leave(f"told to stop: {message.reason}", ExitCode.SIGTERM)

    def alive(self, now: float) -> wire.Alive:
        """The heartbeat, with what it says of progress."""
        state = (self.step, self.phase, self.micros)
        if state != self._last:
            self._last, self._moved = state, now
        return self.report(
            wire.Alive,
            worker="running",
            step=self.step,
            phase=self.phase,
            micros=self.micros,
            still=now - self._moved,
        )

    def agent_is_gone(self, error: str) -> None:
        """The connection to the agent broke."""
        self._leave(
            f"the agent is gone ({error}): a worker without its agent is no member of any plan", ExitCode.SIGKILL
        )


class AgentLine(Line):
    """Connection to the agent at `env.agent`."""

    def __init__(self, env: Environment, on_plan: Callable[[wire.Plan], None], on_finish: Callable[[], None]) -> None:
        """Connect; `start` begins to listen.

        Args:
            env: Who we are and where the agent is.
            on_plan: Called on the line's thread for every plan of this job and incarnation.
            on_finish: Called on the line's thread when the job has ended well.

        Raises:
            OSError: the agent does not answer; the text names its socket.
        """
        assert env.agent is not None
        super().__init__(env, on_plan, on_finish)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_CONNECT_DEADLINE)
        try:
            self._socket.connect("\0" + env.agent[1:] if env.agent.startswith("@") else env.agent)
        except OSError as error:
            self._socket.close()
            raise OSError(
                error.errno, f"the agent of group {env.group} does not answer at {env.agent}: {error}"
            ) from error
        self._queue: collections.deque[bytes] = collections.deque()
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._flushed = threading.Event()
        self._queueing = threading.Lock()
        """Held where the queue and `_flushed` are changed or compared together."""
        self._thread = threading.Thread(target=self._live, name="spare-agent-line", daemon=True)

    def start(self, store: str) -> None:
        """Say hello with the address of this worker's store, and listen."""
        self.hand = Hand()
        own = {"store": store, "hand": self.hand.path, "checkpoints": self.checkpoints}
        hello = self.report(wire.Hello, pid=os.getpid(), token=self.env.token, **own)
        self._socket.sendall(hello.line())
        self._socket.setblocking(False)
        self._thread.start()

    def send(self, message: wire.Up) -> None:
        """Queue a report; never blocks."""
        line = message.line()
        with self._queueing:
            self._flushed.clear()
            self._queue.append(line)
        self._poke()

    def flush(self, deadline: float) -> bool:
        """Wait until all reports have left, at most `deadline` seconds; whether they have."""
        return self._flushed.wait(deadline)

    def _poke(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full of wake-ups: one is enough
            os.write(self._waker, b"x")

    # --- the thread -------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            self._run()
        except Exception:  # noqa: BLE001  # without this thread the worker would neither hear of plans nor be heard
            traceback.print_exc()
            self._leave("the line to the agent failed, a defect of this program, please report it", ExitCode.SIGKILL)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            outgoing, incoming, beat = bytearray(), bytearray(), 0.0
            while True:
                now = time.monotonic()
                if now >= beat:
                    outgoing += self.alive(now).line()
                    beat = now + self.env.heartbeat
                while self._queue:
                    outgoing += self._queue.popleft()
                self._write(outgoing)
                want = selectors.EVENT_READ | (selectors.EVENT_WRITE if outgoing else 0)
                selector.modify(self._socket, want)
                for key, _ in selector.select(max(0.0, beat - time.monotonic())):
                    if key.fd == self._wake:
                        os.read(self._wake, 4096)
                    else:
                        self._read(incoming)

    def _write(self, outgoing: bytearray) -> None:
        try:
            while outgoing:
                del outgoing[: self._socket.send(outgoing)]
        except BlockingIOError:
            return
        except OSError as error:
            self.agent_is_gone(str(error))
        with self._queueing:
            if not self._queue:
                self._flushed.set()

    def _read(self, incoming: bytearray) -> None:
        try:
            chunk = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            chunk = b""
            self.agent_is_gone(str(error))
        if not chunk:
            self.agent_is_gone("end of file")
        incoming += chunk
        while (end := incoming.find(b"\n")) >= 0:
            self.take(bytes(incoming[: end + 1]))
            del incoming[: end + 1]
