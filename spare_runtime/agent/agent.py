"""The agent of one group: starts its worker, keeps the line to the coordinator, and answers for both.

The coordinator dials in; plans and orders pass down to the worker, reports pass up. The line may break and come back,
to the same coordinator or to another: meanwhile training goes on, and what must not be lost (a suspicion, an error,
an exit, the end) is said again to whoever attaches next (design, section 4, rule 5).
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence

from spare.api import wire
from spare.api.exit_codes import ExitCode
from spare_runtime.agent.doors import Doors
from spare_runtime.agent.listening import tls_context
from spare_runtime.agent.worker import Worker
from spare_runtime.config import Environment

STOP_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL of a worker that was told to stop; it answers an order in milliseconds."""
LINGER = 30.0
"""Seconds that an agent whose worker has ended waits for a coordinator to take note."""
REPEATED = ("suspect", "errored", "exited", "done", "running")
"""Kinds of report of which the last one is said again to a coordinator that attaches."""


class Agent:
    """State of one agent process. `run` returns its exit code."""

    def __init__(
        self,
        env: Environment,
        command: Sequence[str],
        *,
        worker: Worker | None = None,
        doors: Doors | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`worker`, `doors` and `clock` are replaced by the simulation. Raises BadEnvironment where the TLS files are
        not usable."""
        self.env = env
        self.command = list(command)
        self.worker = worker or Worker()
        self._doors = doors or Doors(tls_context(env.tls))
        self._clock = clock
        self.plan: wire.Plan | None = None
        self.finished = False
        self.last: dict[str, bytes] = {}
        self.hello: wire.Hello | None = None
        self.seen: wire.Alive | None = None
        self.heard = self._clock()
        self.stopping: asyncio.Event = asyncio.Event()
        self.stop_reason = ""
        self.term = 0
        """Leadership of the latest coordinator that attached."""
        self._up: asyncio.StreamWriter | None = None
        self._down: asyncio.StreamWriter | None = None
        self._serving: set[asyncio.Task[None]] = set()

    # --- life ---------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until the worker has ended and that is known, or until told to stop."""
        self._doors.signals(self._stop)
        below = await self._doors.below(self._serve_worker, self.env.uid)
        self._announce(await self._doors.above(self._serve_coordinator, self.env.bind, self.env.port))
        try:
            await self.worker.start(self.command, self._worker_environment(below))
        except OSError as error:
            self._say(f"cannot start {self.command[0]!r}: {error}")
            self.worker.code = 127
            return await self._ended(str(error))
        heart = asyncio.create_task(self._beat())
        ended = asyncio.create_task(self.worker.ended())
        stopped = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                self._say(f"stopping: {self.stop_reason}")
                await self.worker.end(STOP_GRACE)
                return int(ExitCode.SIGTERM)
            return await self._ended()
        finally:
            self.worker.send(signal.SIGKILL)  # children that the worker left behind
            for task in (heart, ended, stopped):
                task.cancel()
            await self._hang_up()

    async def _ended(self, why: str = "") -> int:
        """The worker is gone: tell the coordinator, and stay until it took note or the linger time is over."""
        code = self.worker.code
        assert code is not None
        report = self.worker.exited(self.env.group, self.env.job, self.env.uid, self._epoch())
        self._report(report if not why else report.model_copy(update={"tail": why}))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                await self.stopping.wait()
        return code if code >= 0 else 128 - code

    async def _hang_up(self) -> None:
        """End both lines, and let their tasks see it: what was written is sent first."""
        for writer in (self._up, self._down):
            if writer is not None:
                writer.close()
        if self._serving:
            await asyncio.wait(self._serving, timeout=STOP_GRACE)

    def _worker_environment(self, below: str) -> dict[str, str]:
        return {**os.environ, "SPARE_AGENT": below}

    def _announce(self, address: wire.Address) -> None:
        self._say(f"group {self.env.group} listens on {address}")
        if self.env.announce_fd is not None:
            os.write(self.env.announce_fd, f"{address}\n".encode())
            os.close(self.env.announce_fd)

    def _stop(self, reason: str) -> None:
        self.stop_reason = self.stop_reason or reason
        self.stopping.set()

    def _say(self, text: str) -> None:
        print(f"[agent {self.env.group}] {text}", file=sys.stderr, flush=True)  # noqa: T201

    # --- up: to the coordinator -----------------------------------------------------------------------------------

    def _epoch(self) -> int:
        return self.plan.epoch if self.plan else 0

    def _write(self, line: bytes) -> None:
        if self._up is not None and not self._up.is_closing():
            self._up.write(line)

    def _report(self, report: wire.Up) -> None:
        line = report.line()
        if report.kind in REPEATED:
            self.last[report.kind] = line
        self._write(line)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.env.heartbeat)
            self._write(self._alive().line())

    def _alive(self, nonce: int | None = None) -> wire.Alive:
        """What is known of the worker at this moment."""
        base = self.seen or wire.Alive(job=self.env.job, uid=self.env.uid, epoch=0, group=self.env.group, worker="none")
        silent = self._clock() - self.heard if self.hello else 0.0
        if not self.worker.alive():
            worker = "exited" if self.worker.process is not None or self.worker.code is not None else "none"
        elif self.hello is None:
            worker = "none"
        else:
            worker = "silent" if silent > 2 * self.env.heartbeat else "running"
        more = {"nonce": nonce, "worker": worker, "silent_for": silent, "still": base.still + silent}
        return base.model_copy(update=more)

    def _keep_task(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve_coordinator(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._keep_task()
        try:
            async with asyncio.timeout(self.env.dead_after):
                first = wire.read(await reader.readline())
            if not isinstance(first, wire.Attach):
                raise wire.Refused(f"the first message must be 'attach', not {first.kind!r}")
            if (why := self._refuses(first)) is not None:
                raise wire.Refused(why)
            if self._up is not None:
                self._up.close()  # the newest to attach with the token is the coordinator
            self._up, self.term = writer, first.term
            self._welcome()
            while line := await reader.readline():
                self._take(line)
        except (wire.Refused, TimeoutError, ValueError) as error:
            self._say(f"connection refused: {error or 'nothing was said'}")
            refusal = self._refusal("attach", str(error)).line()
            writer.write(refusal)
            if self._up is not writer:
                self._write(refusal)  # the coordinator counts who tried (field case F59)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            self._say(f"line to the coordinator broke: {error}; training goes on")
        finally:
            if self._up is writer:
                self._up = None
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            writer.close()

    def _refuses(self, first: wire.Attach) -> str | None:
        if not self._knows_us(first.token):
            return "'attach' without this job's token"
        if first.term < self.term:
            return f"'attach' of leadership {first.term}; the coordinator of leadership {self.term} has been here"
        return wire.stale(first, job=self.env.job, uid=self.env.uid)

    def _knows_us(self, token: str) -> bool:
        # As bytes: texts that are not ASCII cannot be compared in constant time.
        return hmac.compare_digest(token.encode(errors="replace"), self.env.token.encode(errors="replace"))

    def _welcome(self) -> None:
        base = self.hello or wire.Hello(job=self.env.job, uid=self.env.uid, epoch=0, group=self.env.group)
        now = {"token": self.env.token, "epoch": self._epoch()}
        if self.seen is not None:
            now |= {"step": self.seen.step, "phase": self.seen.phase, "epoch": self.seen.epoch}
        self._write(base.model_copy(update=now).line())
        self._write(self._alive().line())
        for line in self.last.values():
            self._write(line)

    # --- down: from the coordinator ----------------------------------------------------------------------------------

    def _take(self, line: bytes) -> None:
        try:
            message = wire.read(line)
        except wire.Refused as error:
            self._report(self._refusal("message", str(error)))
            return
        known = self._epoch() if isinstance(message, wire.Plan) else 0
        if (why := wire.stale(message, job=self.env.job, uid=self.env.uid, epoch=known)) is not None:
            self._report(self._refusal(message.kind, why))
        elif isinstance(message, wire.Plan):
            self._take_plan(message, line)
        elif isinstance(message, wire.Probe):
            self._write(self._alive(message.nonce).line())
        elif isinstance(message, wire.Finish):
            self.finished = True
            self._pass_down(line)
        elif isinstance(message, wire.Stop):
            self._pass_down(line)
            self._stop(message.reason)
        else:
            self._report(self._refusal(message.kind, f"{message.kind!r} is not for an agent"))

    def _take_plan(self, plan: wire.Plan, line: bytes) -> None:
        if self.plan is not None and plan.epoch == self.plan.epoch:
            if plan.digest != self.plan.digest:
                why = f"plan {plan.epoch} with digest {plan.digest[:12]}; mine has {self.plan.digest[:12]}"
                self._report(self._refusal("plan", why))
            return  # the same one again: a coordinator that came back
        self.plan = plan
        for kind in ("suspect", "running"):
            self.last.pop(kind, None)  # of an older epoch now
        self._pass_down(line)

    def _refusal(self, what: str, reason: str) -> wire.Refusal:
        env = self.env
        return wire.Refusal(job=env.job, uid=env.uid, epoch=self._epoch(), group=env.group, what=what, reason=reason)

    # --- below: the worker ----------------------------------------------------------------------------------------

    def _pass_down(self, line: bytes) -> None:
        if self._down is not None and not self._down.is_closing():
            self._down.write(line)

    async def _serve_worker(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._keep_task()
        try:
            async with asyncio.timeout(self.env.dead_after):
                hello = wire.read(await reader.readline())
            if not isinstance(hello, wire.Hello) or not self._knows_us(hello.token):
                raise wire.Refused(f"a worker must open with 'hello' and the token, not {hello.kind!r}")
            if (why := wire.stale(hello, job=self.env.job, uid=self.env.uid)) is not None:
                raise wire.Refused(why)
            self._down, self.hello, self.heard = writer, hello, self._clock()
            self._write(hello.line())
            if self.plan is not None:
                writer.write(self.plan.line())
            while line := await reader.readline():
                self._hear(line)
        except (wire.Refused, TimeoutError, ValueError) as error:
            self._say(f"worker refused: {error or 'it said nothing'}")
        except ConnectionError as error:
            self._say(f"line to the worker broke: {error}")
        finally:
            if self._down is writer:
                self._down = None
            writer.close()

    def _hear(self, line: bytes) -> None:
        message = wire.read(line)
        self.heard = self._clock()
        if isinstance(message, wire.Alive):
            self.seen = message  # the agent's own heartbeat carries it
            return
        if message.kind in REPEATED:
            self.last[message.kind] = line
        self._write(line)
