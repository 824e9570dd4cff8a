"""Groups as local processes: starts an agent for each pod, watches it, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from spare.api.wire import Address
from spare.control.signal import AgentGone, AgentNotStarted, AgentUp
from spare.coordinator.backend import Emit
from spare.local.launch import AgentMissing, Launch, agent_program
from spare.local.processes import Kin, ending
from spare.local.run_folder import RunFolder

logger = logging.getLogger(__name__)

ANNOUNCE_DEADLINE = 30.0
"""Seconds from the start of an agent until it must have said where it listens; it takes about a quarter of a second."""
END_GRACE = 2.5
"""Seconds that agents get at the end to stop their workers (they give them one second) before all are killed."""
KILL_PATIENCE = 10.0
"""Seconds after which a process that SIGKILL did not end is reported instead of awaited."""


class StillAlive(Exception):
    """Processes that could not be ended; the text has their numbers."""


@dataclass
class _Pod:
    """The agent of one pod."""

    pod: int
    process: asyncio.subprocess.Process | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def signal(self, sig: signal.Signals) -> None:
        """To the process group that the agent leads; that it is gone is fine."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, sig)


@dataclass
class _Started:
    """One incarnation of a group."""

    group: int
    uid: str
    kin: Kin
    pods: list[_Pod]
    doomed: bool = False
    """It is being ended, or a pod of it has ended: the group may be started again."""
    leaving: bool = False
    """It ends by itself: the group may be started again beside it."""
    spare: int | None = None
    """It was started as this spare."""


class LocalBackend:
    """`spare.coordinator.backend.Backend` on the processes of this machine. Belongs to one event loop."""

    def __init__(self, launch: Launch, *, alone: bool = False) -> None:
        """`alone`: this process does nothing but run this job, so all that it has started or adopted is the job's."""
        self.launch = launch
        self._kin = Kin(f"SPARE_JOB={launch.job}", adopted=alone)
        self.folder = RunFolder(launch.folder)
        self.grace = END_GRACE
        """Patience of `close`; 0 kills at once."""
        self._emit: Emit | None = None
        self._started: dict[str, _Started] = {}
        self._newest: dict[int, _Started] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    # --- Backend --------------------------------------------------------------------------------------------------

    async def open(self, emit: Emit) -> None:
        """See `Backend.open`."""
        self._emit = emit

    async def create(self, group: int) -> None:
        """See `Backend.create`. While the group's agents run and nobody has asked to end them, nothing happens."""
        newest = self._newest.get(group)
        if self._closing or (newest is not None and not newest.doomed and not newest.leaving):
            return
        uid = uuid.uuid4().hex
        pods, spare = [_Pod(pod) for pod in range(self.launch.pods)], self.launch.spare(group)
        started = _Started(group, uid, Kin(f"SPARE_UID={uid}"), pods, spare=spare)
        # A scripted failure belongs to the first start: a replacement that met it again would never get past it.
        faults = self.launch.faults.get(group, "") if newest is None else ""
        self._newest[group] = self._started[uid] = started
        for pod in started.pods:
            self._spawn(self._live(started, pod, faults))

    async def take_over(self, group: int, spare: int, uid: str) -> None:
        """See `Backend.take_over`. Its output stays where it is; the group's log says where."""
        started, overtaken = self._started[uid], self._newest.get(group)
        started.group, self._newest[group] = group, started
        if self._newest.get(spare) is started:
            del self._newest[spare]
        for pod in started.pods:
            with self.folder.log(group, self._which(pod)).open("a") as log:
                log.write(f"[spare run] group {group} goes on in {self._log(started, pod).name}\n")
        if overtaken is not None and overtaken is not started and not (overtaken.doomed or overtaken.leaving):
            await self.delete(group, overtaken.uid)

    async def let_go(self, group: int, uid: str) -> None:
        """See `Backend.let_go`."""
        started = self._started.get(uid)
        if started is not None:
            started.leaving = True

    async def delete(self, group: int, uid: str) -> None:
        """See `Backend.delete`. Returns once nothing of it is left, or only what is stuck in the kernel."""
        started = self._started.get(uid)
        if started is None:
            return
        started.doomed = True
        left = await asyncio.to_thread(started.kin.kill, KILL_PATIENCE)
        if left:
            # No reason to end the job: they are out of the plan, and `close` tries again.
            logger.warning("group %d: processes %s are alive %g s after SIGKILL", group, left, KILL_PATIENCE)

    async def record(self, name: str, text: str) -> None:
        """See `Backend.record`."""
        await asyncio.to_thread(self.folder.record, name, text)

    async def close(self) -> None:
        """See `Backend.close`. Agents are asked to stop, and after `grace` seconds everything is killed.

        Raises:
            StillAlive: SIGKILL did not end something.
        """
        self._closing = True
        pods = [pod for started in self._started.values() for pod in started.pods]
        waiting = [pod for pod in pods if pod.process is not None and not pod.gone.is_set()]
        for pod in waiting:
            pod.signal(signal.SIGINT)  # at once; SIGTERM asks an agent to leave in good order
            pod.signal(signal.SIGCONT)  # a stopped agent cannot follow the order
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.grace):
                await asyncio.gather(*(pod.gone.wait() for pod in waiting))
        await asyncio.to_thread(self.kill_all)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)  # each sees its agent's end, so that nothing is left unreaped
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- beyond the protocol ----------------------------------------------------------------------------------------

    def kill_all(self) -> None:
        """SIGKILL to every process of the job, whoever started it. Blocks until none is left.

        Raises:
            StillAlive: SIGKILL did not end something.
        """
        self.grace = 0.0
        for started in self._started.values():
            started.doomed = True
        left = self._kin.kill(KILL_PATIENCE)
        if left:
            raise StillAlive(f"processes {left} are alive {KILL_PATIENCE:g} s after SIGKILL")

    def alive(self) -> list[int]:
        """Processes of the job that live now."""
        return self._kin.pids()

    # --- one agent ----------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _live(self, started: _Started, pod: _Pod, faults: str) -> None:
        """The life of one agent: start, announcement, end."""
        assert self._emit is not None, "open comes before create"
        read, write = os.pipe()
        try:
            try:
                process = await self._start(started, pod, write, faults)
            finally:
                os.close(write)  # so that the agent's end is the pipe's end
        except (OSError, ValueError, AgentMissing) as error:  # ValueError: text that no process can be given
            os.close(read)
            started.doomed = True
            pod.gone.set()
            self._emit(AgentNotStarted(started.group, f"the agent cannot be started: {error}", pod.pod))
            return
        announced = asyncio.create_task(self._announcement(started, pod, read))
        code = await process.wait()
        await announced
        started.doomed = True
        pod.gone.set()
        self._emit(AgentGone(started.group, started.uid, f"the agent {ending(code)}", pod.pod))

    def _which(self, pod: _Pod) -> int | None:
        return pod.pod if self.launch.pods > 1 else None

    def _log(self, started: _Started, pod: _Pod) -> Path:
        if started.spare is not None:
            return self.folder.spare_log(started.spare, started.uid, self._which(pod))
        return self.folder.log(started.group, self._which(pod))

    async def _start(self, started: _Started, pod: _Pod, write: int, faults: str) -> asyncio.subprocess.Process:
        environment = self.launch.environment(started.group, pod.pod, started.uid, write, faults)
        with self._log(started, pod).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                str(agent_program()),
                "--",
                *self.launch.argv,
                cwd=self.launch.cwd,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(write,),
            )
        pod.process = process
        if started.doomed or self._closing:  # deleted while it was being started
            pod.signal(signal.SIGKILL)
        return process

    async def _announcement(self, started: _Started, pod: _Pod, read: int) -> None:
        """Wait for the agent's address and tell of it; an agent that says none is ended."""
        assert self._emit is not None
        why = ""
        try:
            line = await _first_line(read, ANNOUNCE_DEADLINE)
            address = Address.parse(line)
        except TimeoutError:
            why = f"the agent has not said where it listens for {ANNOUNCE_DEADLINE:g} s"
        except ValueError as error:
            why = f"the agent announced nothing usable: {error}"
        except EOFError:
            why = "the agent ended before it listened"
        if not why:
            if not started.doomed:
                self._emit(AgentUp(started.group, started.uid, str(address), pod=pod.pod))
            return
        if started.doomed:
            return
        started.doomed = True
        log = self._log(started, pod)
        tail = await asyncio.to_thread(self.folder.tail, log)
        self._emit(AgentNotStarted(started.group, f"{why}; its log {log} ends:\n{tail}", pod.pod))
        await self.delete(started.group, started.uid)


async def _first_line(read: int, deadline: float) -> str:
    """The first line that comes out of a pipe, without its end. Closes the pipe.

    Raises:
        EOFError: the writer has gone without writing a whole line.
        TimeoutError: nothing came in time.
    """
    reader = asyncio.StreamReader(limit=4096)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb", buffering=0)
    )
    try:
        async with asyncio.timeout(deadline):
            line = await reader.readline()
    finally:
        transport.close()
    if not line.endswith(b"\n"):
        raise EOFError
    return line.decode(errors="replace").strip()
