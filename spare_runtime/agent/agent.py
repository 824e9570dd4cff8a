"""The agent of one pod: starts its workers, keeps the line to the coordinator, and answers for all of them.

The coordinator dials in; plans and orders pass down to the workers, reports pass up. The line may break and come back,
to the same coordinator or to another: meanwhile training goes on, and what must not be lost (a suspicion, an error,
an exit, the end) is said again to whoever attaches next (docs/protocol.md, rule 5).
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
from typing import Any

from spare.api import wire
from spare.api.exit_codes import ExitCode
from spare_runtime.agent.assembling import Assembling, Assembly
from spare_runtime.agent.doors import Doors
from spare_runtime.agent.leaving import Leaving
from spare_runtime.agent.listening import tls_context
from spare_runtime.agent.wanted import Wanted
from spare_runtime.agent.worker import Worker
from spare_runtime.config import Environment, placed

STOP_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL of a worker that was told to stop; it answers an order in milliseconds."""
LAST_WORDS = 0.5
"""Seconds in which the line of a worker that has ended must have been read to its end; it takes microseconds."""
LINGER = 30.0
"""Seconds that an agent whose worker has ended waits for a coordinator to take note."""
REPEATED = ("suspect", "errored", "exited", "done", "running", "saved", "left", "halted", "unreadable")
"""Kinds of report of which the last one is said again to a coordinator that attaches."""


class Agent:
    """State of one agent process. `run` returns its exit code."""

    def __init__(
        self,
        env: Environment,
        command: Sequence[str],
        *,
        workers: Sequence[Worker] = (),
        doors: Doors | None = None,
        assembly: Assembling | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`workers`, `doors`, `assembly` and `clock` are replaced by the simulation. Raises BadEnvironment where the
        TLS files are not usable."""
        self.env = env
        self.command = list(command)
        first = env.pod * env.procs
        self.workers = list(workers) or [Worker(rank, clock) for rank in range(first, first + env.procs)]
        self._doors = doors or Doors(tls_context(env.tls))
        self._clock = clock
        self.plan: wire.Plan | None = None
        self.assembly = assembly or Assembling(env)
        self.stopping: asyncio.Event = asyncio.Event()
        self.stop_reason = ""
        self.renewed = 0
        """Epoch of the newest order to start the workers again."""
        self.leaving = Leaving(clock, self._hand_on, self._stop)
        self._wanted = Wanted(clock, self._stop)
        self.term = 0
        """Leadership of the latest coordinator that attached."""
        self._up: asyncio.StreamWriter | None = None
        self._serving: set[asyncio.Task[None]] = set()

    # --- life ---------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until all workers have ended and that is known, or until told to stop."""
        self._doors.signals(self._stop, self._leave)
        below = await self._doors.below(self._serve_worker, self.env.uid)
        self._announce(await self._doors.above(self._serve_coordinator, self.env.bind, self.env.port))
        tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._work(below))]
        stopped = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({*tasks, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()  # without heartbeats the group is lost: say why
            if not tasks[1].done():
                self._say(f"stopping: {self.stop_reason}")
                await asyncio.gather(*(worker.end(STOP_GRACE) for worker in self.workers))
                waited = self.env.spare is not None  # for nothing, and that is no failure
                return int(ExitCode.COMPLETE if waited or self._departed() else ExitCode.SIGTERM)
            tasks[1].result()
            return int(ExitCode.COMPLETE) if self._departed() else await self._ended()
        finally:
            self.leaving.close()
            for worker in self.workers:
                worker.send(signal.SIGKILL)  # children that it left behind
            for task in (*tasks, stopped):
                task.cancel()
            await self._hang_up()

    async def _work(self, below: str) -> None:
        """Start the workers, as soon as it is known where the ranks of the group meet, and tell of each one's end."""
        assembly = await self.assembly.known()
        await asyncio.gather(*(self._one(worker, assembly, below) for worker in self.workers))

    async def _over(self, worker: Worker) -> None:
        """Wait for a worker's end. What it said last (why it ends) is read and told before that it has ended."""
        if await worker.ended() >= 0 and worker.hello is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS):
                    await worker.heard_out.wait()

    async def _one(self, worker: Worker, assembly: Assembly, below: str) -> None:
        why = ""
        try:
            while True:
                env = assembly.environment(worker.rank, below, self.renewed)
                await worker.start(self.command, {**os.environ, **self.env.place, **env})
                await self._over(worker)
                if not worker.renewing:
                    break
                worker.forget()
        except OSError as error:
            why = str(error)
            self._say(f"cannot start {self.command[0]!r}: {why}")
            worker.code = 127
        report = worker.exited(self._head(worker.rank))
        self._report(report if not why else report.model_copy(update={"tail": why}))

    async def _ended(self) -> int:
        """The workers are gone, and that was told: stay until a coordinator took note or the linger time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                await self.stopping.wait()
        codes = [worker.code for worker in self.workers if worker.code is not None]
        code = next((code for code in codes if code), 0)
        return code if code >= 0 else 128 - code

    async def _hang_up(self) -> None:
        """End both lines, and let their tasks see it: what was written is sent first."""
        for writer in (self._up, *(worker.down for worker in self.workers)):
            if writer is not None:
                writer.close()
        if self._serving:
            await asyncio.wait(self._serving, timeout=STOP_GRACE)

    def _announce(self, address: wire.Address) -> None:
        of = f", pod {self.env.pod}" if self.env.pods > 1 else ""
        self._say(f"{self.env.called}{of} listens on {address}")
        if self.env.announce_fd is not None:
            os.write(self.env.announce_fd, f"{address}\n".encode())
            os.close(self.env.announce_fd)

    def _stop(self, reason: str) -> None:
        self.stop_reason = self.stop_reason or reason
        self.stopping.set()

    def _leave(self, reason: str, grace: float | None = None) -> None:
        """Ask for a plan without this group; end at once where it takes part in nothing yet."""
        here = self.plan is not None and (
            self.plan.admission is not None or self.plan.drained
        )  # it still ends its step
        if not here or not any(worker.alive() for worker in self.workers):
            self._stop(reason)
        elif self.leaving.ask(reason, self.env.grace if grace is None else grace):
            self._say(f"leaving: {reason}")
            self._tell_leave()

    def _tell_leave(self) -> None:
        if not self._departed():
            for report in self.leaving.reports([self._head(worker.rank) for worker in self.workers]):
                self._write(report.line())

    def _hand_on(self) -> None:
        """Let the workers offer what they hold; without anybody who could make a plan they rather go on computing."""
        if self._up is not None:
            self._pass_down(wire.HandOn(job=self.env.job, uid=self.env.uid, epoch=self._epoch()).line())

    def _departed(self) -> bool:
        """Whether the workers have said their last words, after which their end is nobody's business."""
        drained = self.plan is not None and self.plan.drained
        return all({"left", "halted"} & {*each.last} or (drained and each.code == 0) for each in self.workers)

    def _say(self, text: str) -> None:
        of = f".{self.env.pod}" if self.env.pods > 1 else ""
        with contextlib.suppress(OSError):  # a disk full of logs must not keep an agent from its work
            print(f"[agent {self.env.name}{of}] {text}", file=sys.stderr, flush=True)  # noqa: T201

    # --- up: to the coordinator -----------------------------------------------------------------------------------

    def _epoch(self) -> int:
        return self.plan.epoch if self.plan else 0

    def _write(self, line: bytes) -> None:
        if self._up is not None and not self._up.is_closing():
            self._up.write(line)

    def _report(self, report: wire.Up) -> None:
        line = report.line()
        if report.kind in REPEATED:
            self._of(report).last[report.kind] = line
        self._write(line)

    def _of(self, report: wire.Up) -> Worker:
        return next(worker for worker in self.workers if worker.rank == report.rank)

    def _head(self, rank: int) -> dict[str, Any]:
        """What every report of a rank has."""
        env = self.env
        return {
            "job": env.job,
            "uid": env.uid,
            "epoch": self._epoch(),
            "group": env.group,
            "pod": env.pod,
            "rank": rank,
        }

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.env.heartbeat)
            self._beat_once()
            self._wanted.look(self._up is not None or self.plan is not None)

    def _beat_once(self, nonce: int | None = None) -> None:
        for worker in self.workers:
            self._write(worker.state(self._head(worker.rank), self.env.heartbeat, nonce).line())

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
            while (line := await reader.readline()) and self._up is writer:  # who was followed gives no orders any more
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
        for worker in self.workers:
            head = self._head(worker.rank)
            now = {"token": self.env.token, "epoch": self._epoch(), "group": self.env.group, **self.assembly.told()}
            if worker.seen is not None:
                now |= {"step": worker.seen.step, "phase": worker.seen.phase, "epoch": worker.seen.epoch}
            self._write((worker.hello or wire.Hello(**head)).model_copy(update=now).line())
        self._beat_once()
        for worker in self.workers:
            for line in worker.last.values():
                self._write(line)
        self._tell_leave()

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
            self._beat_once(message.nonce)
        elif isinstance(message, wire.Assemble):
            self.assembly.heard(message)
        elif isinstance(message, wire.Finish | wire.Save):
            self._pass_down(line)
        elif isinstance(message, wire.Renew):
            self._renew(message)
        elif isinstance(message, wire.Drain):
            self._leave("asked by the coordinator", message.grace)
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
        self.plan, self.env = plan, placed(self.env, plan.group)
        for worker in self.workers:
            worker.answered(plan)
        self._pass_down(line)

    def _renew(self, order: wire.Renew) -> None:
        """End the workers and start them again, as if this agent had just begun. One that never had a plan is fresh."""
        if order.epoch <= self.renewed or (self.plan is None and self.env.pods == 1):
            return
        self.renewed = order.epoch
        self._say(f"starting the worker again: {order.reason}")
        self.plan = None
        for worker in self.workers:
            worker.renew()

    def _refusal(self, what: str, reason: str) -> wire.Refusal:
        return wire.Refusal(**self._head(self.workers[0].rank), what=what, reason=reason)

    # --- below: the workers ---------------------------------------------------------------------------------------

    def _pass_down(self, line: bytes) -> None:
        for worker in self.workers:
            worker.tell(line)

    async def _serve_worker(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._keep_task()
        worker: Worker | None = None
        try:
            async with asyncio.timeout(self.env.dead_after):
                hello = wire.read(await reader.readline())
            worker = self._welcome_worker(hello)
            worker.down, worker.heard = writer, self._clock()
            self._write(hello.line())
            if self.plan is not None:
                writer.write(self.plan.line())
            while (line := await reader.readline()) and worker.down is writer:
                self._hear(worker, line)
        except (wire.Refused, TimeoutError, ValueError) as error:
            self._say(f"worker refused: {error or 'it said nothing'}")
        except ConnectionError as error:
            self._say(f"line to the worker broke: {error}")
        finally:
            if worker is not None and worker.down is writer:
                worker.down = None
                worker.heard_out.set()
            writer.close()

    def _welcome_worker(self, hello: wire.Message) -> Worker:
        """Which of the workers this is.

        Raises:
            wire.Refused: none.
        """
        if not isinstance(hello, wire.Hello) or not self._knows_us(hello.token):
            raise wire.Refused(f"a worker must open with 'hello' and the token, not {hello.kind!r}")
        if (why := wire.stale(hello, job=self.env.job, uid=self.env.uid)) is not None:
            raise wire.Refused(why)
        for worker in self.workers:
            if worker.rank == hello.rank and hello.pod == self.env.pod:
                worker.welcome(hello)
                return worker
        raise wire.Refused(f"'hello' of pod {hello.pod}, rank {hello.rank}: not one of pod {self.env.pod}'s workers")

    def _hear(self, worker: Worker, line: bytes) -> None:
        message = wire.read(line)
        worker.heard = self._clock()
        if isinstance(message, wire.Alive):
            worker.seen = message  # the agent's own heartbeat carries it
            return
        if isinstance(message, wire.Leave):
            self.leaving.offered(message)
            self._tell_leave()
            return
        if message.kind in REPEATED:
            worker.last[message.kind] = line
        self._write(line)
