"""The worker as its agent sees it: a child process, what it last said, and the tail of its stderr."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from spare.api import wire
from spare_runtime.agent.lifeline import die_with

TAIL_LINES = 40
TAIL_CHARACTERS = 4000


class Worker:
    """One start of the training command, in a session (process group) of its own so that all of it can be ended."""

    def __init__(self) -> None:
        self.process: asyncio.subprocess.Process | None = None
        self.code: int | None = None
        """As `Process.returncode`: negative is a signal; None while it runs."""
        self._last_bytes = b""
        self._pump: asyncio.Task[None] | None = None

    async def start(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it.

        Raises:
            OSError: the command cannot be run; the text names it.
        """
        parent = os.getpid()
        # A pipe of ours: with asyncio's own, `wait` waits until the worker's children closed it, too (Python 3.11).
        reader, writer = os.pipe()
        try:
            self.process = await asyncio.create_subprocess_exec(
                *command,
                env=dict(env),
                stdin=asyncio.subprocess.DEVNULL,
                stderr=writer,
                start_new_session=True,
                preexec_fn=lambda: die_with(parent),  # this process has one thread
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
        if self.process is None or self.code is not None:
            return False
        try:
            with open(f"/proc/{self.process.pid}/stat", "rb") as stat:
                return stat.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
        except (FileNotFoundError, ProcessLookupError):
            return False

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

    def exited(self, group: int, job: str, uid: str, epoch: int) -> wire.Exited:
        """The report of its end."""
        assert self.code is not None
        return wire.Exited(
            job=job,
            uid=uid,
            epoch=epoch,
            group=group,
            code=self.code if self.code >= 0 else None,
            signal=-self.code if self.code < 0 else None,
            tail=self.tail() if self.code != 0 else "",
        )
