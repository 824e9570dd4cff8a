"""The worker as its agent sees it: a child process, what it last said, and the tail of its stderr."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spare.api import wire
from spare_runtime.agent.lifeline import die_with
from spare_runtime.agent.memory import oom_kills
from spare_runtime.hand import Page

ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
"""Let glibc keep memory that is freed: the gradients that a commit lets go of are wanted by the next backward, and to
take their pages from the kernel again costs some 5 % of a step (docs/decisions/0014-steady-state.md). The second is
the most that glibc allows: larger blocks come from the kernel each time. What the job or the image sets for itself
stands."""
TAIL_LINES = 40
TAIL_CHARACTERS = 4000


class Worker:
    """One start of the training command, in a session (process group) of its own so that all of it can be ended."""

    def __init__(self, rank: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self.rank = rank
        """Of the group's workers, over all its pods."""
        self.hello: wire.Hello | None = None
        """Its own, once it is ready."""
        self._page: Page | None = None
        self.seen: wire.Alive | None = None
        """Its newest heartbeat."""
        self.last: dict[str, bytes] = {}
        """The newest of each kind of report that must not be lost."""
        self.heard = clock()
        self.down: asyncio.StreamWriter | None = None
        """The line to it."""
        self.heard_out = asyncio.Event()
        """All that it said on the line has been read."""
        self.renewing = False
        """It is being ended in order to be started again: its end tells nothing."""
        self._clock = clock
        self.process: asyncio.subprocess.Process | None = None
        self.code: int | None = None
        """As `Process.returncode`: negative is a signal; None while it runs."""
        self._oom_kills: int | None = None
        """Of its container when it was started."""
        self._last_bytes = b""
        self._pump: asyncio.Task[None] | None = None

    def welcome(self, hello: wire.Hello) -> None:
        """It is ready, and says where it can be seen which micro-batch it has in hand."""
        self.hello, self._page = hello, None
        if hello.hand:
            try:
                self._page = Page(hello.hand)
            except OSError as error:
                print(f"[agent] what worker {self.rank} has in hand will not be known: {error}", file=sys.stderr)  # noqa: T201

    async def start(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it.

        Raises:
            OSError: the command cannot be run; the text names it.
        """
        parent, self._oom_kills = os.getpid(), oom_kills()
        # A pipe of ours: with asyncio's own, `wait` waits until the worker's children closed it, too (Python 3.11).
        reader, writer = os.pipe()
        try:
            self.process = await asyncio.create_subprocess_exec(
                *command,
                env={**ALLOCATOR, **env},
                stdin=asyncio.subprocess.DEVNULL,
                stderr=writer,
                start_new_session=True,
                preexec_fn=lambda: die_with(parent),  # no lock is needed for it
            )
        except OSError:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        self._pump = asyncio.create_task(self._copy_stderr(reader))

    async def _copy_stderr(self, pipe: int) -> None:
        stream = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(pipe, "rb", buffering=0)
        )
        try:
            while chunk := await stream.read(65536):
                with contextlib.suppress(
                    OSError
                ):  # a disk full of logs; unread, the worker would wait for room for ever
                    sys.stderr.buffer.write(chunk)
                    sys.stderr.buffer.flush()
                self._last_bytes = (self._last_bytes + chunk)[-4 * TAIL_CHARACTERS :]
        finally:
            transport.close()

    async def ended(self) -> int:
        """Wait for the end. A signal's death is told at once; after any other, stderr is first read to its end."""
        assert self.process is not None
        self.code = await self.process.wait()
        if self.code >= 0 and self._pump is not None:
            with contextlib.suppress(TimeoutError):  # a grandchild may hold the pipe open: the tail is then shorter
                async with asyncio.timeout(0.5):
                    await asyncio.shield(self._pump)
        return self.code

    def alive(self) -> bool:
        """Whether the process runs, asked of the kernel now (a probe must not trust what was true a moment ago)."""
        return self._kernel_state() not in (b"Z", b"X")

    def _kernel_state(self) -> bytes:
        """One letter, as in proc(5); `X` where there is no such process."""
        if self.process is None or self.code is not None:
            return b"X"
        try:
            with open(f"/proc/{self.process.pid}/stat", "rb") as stat:
                return stat.read().rpartition(b")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return b"X"

    def stopped(self) -> bool:
        """Whether the process is stopped (SIGSTOP): then it does nothing, and cannot say so."""
        return self._kernel_state() == b"T"

    def state(self, head: Mapping[str, Any], heartbeat: float, nonce: int | None = None) -> wire.Alive:
        """What is known of it at this moment. `head`: what every report of this rank has."""
        base = self.seen or wire.Alive(**head, worker="none")
        silent = self._clock() - self.heard if self.hello or self.stopped() else 0.0
        if not self.alive():
            worker = "exited" if self.process is not None or self.code is not None else "none"
        elif silent > 2 * heartbeat and self.stopped():
            worker = "silent"
        else:
            # Where native code holds Python's lock nothing is said either: no progress, but no death.
            worker = "running" if self.hello else "none"
        more = {
            "nonce": nonce,
            "group": head["group"],
            "worker": worker,
            "silent_for": silent,
            "still": base.still + silent,
        }
        return base.model_copy(update=more)

    def answered(self, plan: wire.Plan) -> None:
        """A newer plan has come: what it answers is not said again. A suspicion is answered by an urgent one only."""
        for kind, newer in (("suspect", plan.base), ("running", plan.epoch)):
            if kind in self.last and wire.read(self.last[kind]).epoch < newer:
                del self.last[kind]

    def tell(self, line: bytes) -> None:
        """Send it a message, if there is a line to it."""
        if self.down is not None and not self.down.is_closing():
            self.down.write(line)

    def tail(self) -> str:
        """The last lines of its stderr."""
        lines = self._last_bytes.decode(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])[-TAIL_CHARACTERS:]

    def send(self, sig: signal.Signals) -> None:
        """Signal all its processes; that there are none left is fine."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, sig)

    async def end(self, grace: float) -> None:
        """SIGTERM, and SIGKILL to whatever is left after `grace` seconds."""
        if self.process is None:
            return
        if self.code is None and grace > 0:
            self.send(signal.SIGTERM)
            self.send(signal.SIGCONT)  # a stopped process cannot end by itself
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self.process.wait()
        self.send(signal.SIGKILL)

    def renew(self) -> None:
        """End it with all its children; whoever waits for its end starts it again."""
        self.renewing = True
        self.hello = self.seen = self.down = None  # what the old one still says is not heard
        self.last.clear()
        self.send(signal.SIGKILL)

    def forget(self) -> None:
        """It has ended in order to be started again: be as at first."""
        self.renewing, self.process, self.code, self._last_bytes = False, None, None, b""
        self.heard_out = asyncio.Event()

    def exited(self, head: Mapping[str, Any]) -> wire.Exited:
        """The report of its end."""
        assert self.code is not None
        tail = self.tail() if self.code != 0 else ""
        if self.code == -signal.SIGKILL and self._oom_kills is not None and oom_kills() > self._oom_kills:
            tail = wire.OUT_OF_MEMORY
        return wire.Exited(
            **head,
            code=self.code if self.code >= 0 else None,
            signal=-self.code if self.code < 0 else None,
            micro=self._page.read() if self._page is not None else None,
            tail=tail,
        )
