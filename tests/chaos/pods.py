"""Pods: the real agent on a node, its worker on another of the same host; and the backend that makes and ends them."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spare.api import wire
from spare.control.record import read_document
from spare.control.signal import AgentGone, AgentNotStarted, AgentUp
from spare.coordinator.backend import Emit
from spare_runtime.agent.agent import Agent
from spare_runtime.agent.assembling import Assembling, Assembly
from spare_runtime.agent.doors import Doors
from spare_runtime.agent.listening import Serve
from spare_runtime.agent.worker import Worker
from spare_runtime.config import Environment, read_environment
from tests.chaos.core import Node
from tests.chaos.gloo import Meshes
from tests.chaos.net import Channel, Connection, Writer
from tests.chaos.worker import SimWorker

TOKEN = "secret"

StartWorker = Callable[["Pod", Node, Connection, Callable[[int], None]], SimWorker]


class SimDoors(Doors):
    """An agent's sockets."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod

    async def below(self, serve: Serve, uid: str) -> str:
        """See Doors."""
        self._pod.serve_worker = serve
        return "@below"

    async def above(self, serve: Serve, bind: str, port: int) -> wire.Address:
        """See Doors."""
        self._pod.serve_coordinator = serve
        self._pod.listens()
        return self._pod.address

    def signals(self, stop: Callable[[str], None], leave: Callable[..., None]) -> None:
        """See Doors."""
        self._pod.on_sigterm = leave


class SimHandle(Worker):
    """An agent's worker."""

    def __init__(self, pod: Pod) -> None:
        super().__init__(0, pod.node.time)
        self._pod = pod
        self._end: asyncio.Future[int] | None = None

    async def start(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """See Worker."""
        self._end = asyncio.get_running_loop().create_future()
        self.process = self._pod  # type: ignore[assignment]
        self._pod.start_worker()

    def over(self, code: int) -> None:
        """SIGCHLD."""
        if self._end is not None and not self._end.done():
            self._end.set_result(code)

    async def ended(self) -> int:
        """See Worker."""
        assert self._end is not None
        self.code = await self._end
        return self.code

    def _kernel_state(self) -> bytes:
        worker = self._pod.worker
        if self.code is not None or worker is None or worker.process.dead:
            return b"X"
        return b"T" if worker.node.frozen else b"S"

    def send(self, sig: signal.Signals) -> None:
        """See Worker."""
        if self._pod.worker is not None and sig is signal.SIGKILL:
            self._pod.worker.process.end(-9)

    async def end(self, grace: float) -> None:
        """See Worker."""
        self.send(signal.SIGKILL)


class SimAssembling(Assembling):
    """A group of one rank meets nobody."""

    def __init__(self, env: Environment) -> None:
        self._alone = Assembly(env, "", wire.Address("127.0.0.1", 1))

    async def known(self) -> Assembly:
        """See Assembling."""
        return self._alone

    def told(self) -> dict[str, str]:
        """See Assembling."""
        return {}


class SimAgent(Agent):
    """The real agent; what it says goes into the trace."""

    def __init__(self, pod: Pod, env: dict[str, str]) -> None:
        self._pod = pod
        self._handle = SimHandle(pod)
        told = read_environment(env)
        super().__init__(
            told,
            ["train"],
            workers=[self._handle],
            doors=SimDoors(pod),
            assembly=SimAssembling(told),
            clock=pod.node.time,
        )

    def _say(self, text: str) -> None:
        self._pod.core.note(self._pod.node.name, text)


class Pod:
    """One incarnation of a group: an agent and a worker on a host of their own."""

    def __init__(self, site: Site, group: int, uid: str) -> None:
        self.site, self.core, self.group, self.uid = site, site.core, group, uid
        self.node = Node(site.core, f"agent-{uid}", uid)
        self.worker_node = Node(site.core, f"work-{uid}", uid)
        self.address = wire.Address("10.0.0.1", 1 + len(site.pods))
        self.worker: SimWorker | None = None
        self.starts = 0
        self.lines: list[str] = []
        """The ledger of all its workers."""
        self.serve_worker: Serve | None = None
        self.serve_coordinator: Serve | None = None
        self.on_sigterm: Callable[..., None] = lambda _reason, _grace=None: None
        self.connections: list[Connection] = []
        self.doomed = self.leaving = False
        self.up = False
        self.code: int | None = None
        """With which its agent has ended."""
        self.told_gone = False
        self.env = {"SPARE_JOB": site.job, "SPARE_GROUP": str(group), "SPARE_UID": uid, "SPARE_TOKEN": TOKEN}
        self.env |= site.env | {"SPARE_GRACE": "100000"}  # those that are short come with their mishap
        if group >= site.groups:
            self.env["SPARE_SPARE"] = str(group - site.groups)
        self.agent = SimAgent(self, self.env)
        self.node.loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            code = await self.agent.run()
        except Exception as error:
            raise self.core.violated(f"{self.node.name} crashed: {error!r}") from error
        self.end(code)

    def serving(self, serve: Serve, connection: Connection, read: Any, write: Any) -> None:
        """The agent serves a connection."""
        if self.node.dead:
            connection.reset("connection refused")
            return

        async def guarded() -> None:
            try:
                await serve(read, Writer(connection, write))  # type: ignore[arg-type]
            except Exception as error:
                raise self.core.violated(f"{self.node.name} crashed: {error!r}") from error

        self.node.loop.create_task(guarded())

    def start_worker(self) -> None:
        """The agent starts its worker, which dials it once Python and torch are loaded."""
        assert self.serve_worker is not None
        self.starts += 1
        if self.worker is not None:  # it begins again
            self.worker_node = Node(self.core, f"work-{self.uid}-{self.starts}", self.uid)
        connection = Connection(self.site.net, self.worker_node, self.node)
        self.connections.append(connection)
        env = read_environment({**self.env, **self.agent.env.place, "SPARE_AGENT": "@below"})
        if self.worker is not None:
            self.worker.process.bury()
        self.worker = self.site.start_worker(self, self.worker_node, env, connection)
        self.node.after(0.0005, self.serving, self.serve_worker, connection, connection.down, connection.up)

    def worker_ended(self, code: int) -> None:
        """The kernel tells the agent of its child's end."""
        self.node.after(self.core.latency(), self.agent._handle.over, code)

    def listens(self) -> None:
        """The agent has announced its address."""
        self.up = True
        self.site.tell(AgentUp(self.group, self.uid, str(self.address)))

    def end(self, code: int, vanish: bool = False) -> None:
        """The agent ends; its worker gets the parent-death signal."""
        if self.node.dead:
            return
        self.doomed, self.code = True, code
        if vanish:
            self.site.net.vanished.add(self.uid)
        self.node.die()
        self.core.note(self.node.name, f"ended with {code}" + (", host and all" if vanish else ""))
        if self.worker is not None:
            self.worker.process.end(-9, vanish)
        if not vanish:
            for connection in self.connections:
                connection.gone(self.node)
            self.gone(f"the agent ended with {code}")

    def gone(self, reason: str) -> None:
        """The backend notices, a little later."""
        self.site.world.after(self.core.latency() * 5, self._tell_gone, reason)

    def _tell_gone(self, reason: str) -> None:
        if not self.told_gone:
            self.told_gone = True
            self.site.tell(AgentGone(self.group, self.uid, reason, in_order=self.code == 0))


class Site:
    """The place where groups run: `spare.coordinator.backend.Backend` and Transport in one.

    It outlives coordinators, as a cluster does. What it tells while there is none is lost; who comes is told what is.
    """

    def __init__(
        self, meshes: Meshes, job: str, groups: int, env: dict[str, str], start_worker: Callable[..., SimWorker]
    ) -> None:
        self.meshes, self.net, self.core = meshes, meshes.net, meshes.core
        self.job, self.groups, self.env, self.start_worker = job, groups, env, start_worker
        self.world = Node(self.core, "site", "site")
        self.coordinator: Node | None = None
        self.pods: list[Pod] = []
        self.newest: dict[int, Pod] = {}
        self.document: str | None = None
        self.on_record: Callable[[str], None] = lambda _text: None
        self.refuse_starts = 0.0
        """How probable it is that a group cannot be started."""
        self.refused: dict[int, int] = {}
        self._emit: Emit | None = None
        self._heard: dict[int, float] = {}
        """By group: when the last signal of it arrives."""

    def tell(self, what: Any) -> None:
        """A signal for the coordinator, if there is one. Those of one group come in order, as a watch tells them."""
        node, emit = self.coordinator, self._emit
        if node is not None and emit is not None:
            when = max(self.core.now + self.core.latency(), self._heard.get(what.group, 0.0))
            self._heard[what.group] = when
            self.core.at(when, node, emit, (what,))

    # --- Backend ------------------------------------------------------------------------------------------------

    async def open(self, emit: Emit) -> None:
        """See Backend."""
        self._emit = emit
        members = self._adopt()
        for pod in self.pods:
            if pod.up and not pod.node.dead:
                self.tell(AgentUp(pod.group, pod.uid, str(pod.address)))
            elif pod.uid in members and pod.uid not in self.net.vanished:
                why = "its pod was gone when the coordinator came back"
                self.tell(AgentGone(pod.group, pod.uid, why, in_order=pod.code == 0))

    def _adopt(self) -> dict[str, int]:
        """What a backend that comes back makes of the pods that are there: the plan's word counts more than theirs."""
        plan = read_document(self.document)[0] if self.document is not None else None
        members = {member.uid: member.group for member in plan.members} if plan is not None else {}
        for pod in self.pods:
            pod.group = members.get(pod.uid, pod.group)
        self.newest = {pod.group: pod for pod in self.pods if pod.doomed}
        self.newest |= {pod.group: pod for pod in self.pods if not pod.doomed}
        return members

    async def create(self, group: int) -> None:
        """See Backend."""
        await asyncio.sleep(self.core.latency())
        newest = self.newest.get(group)
        if newest is not None and not newest.doomed and not newest.leaving:
            return
        refused = self.refused.get(group, 0)
        if self.core.random.random() < self.refuse_starts and refused < 2:  # four times before the first plan is an end
            self.refused[group] = refused + 1
            self.tell(AgentNotStarted(group, "no room"))
            return
        uid = f"{group}.{sum(pod.uid.startswith(f'{group}.') for pod in self.pods)}"
        pod = Pod(self, group, uid)
        self.pods.append(pod)
        self.newest[group] = pod

    async def take_over(self, group: int, spare: int, uid: str) -> None:
        """See Backend."""
        pod, overtaken = next(pod for pod in self.pods if pod.uid == uid), self.newest.get(group)
        self.newest[group] = pod
        if self.newest.get(spare) is pod:
            del self.newest[spare]
        if self.core.random.random() < 0.7:  # else its label is not changed in time
            pod.group = group
        if overtaken is not None and overtaken is not pod and not (overtaken.doomed or overtaken.leaving):
            await self.delete(group, overtaken.uid)

    async def let_go(self, group: int, uid: str) -> None:
        """See Backend."""
        for pod in self.pods:
            pod.leaving = pod.leaving or pod.uid == uid

    async def delete(self, group: int, uid: str) -> None:
        """See Backend."""
        for pod in self.pods:
            if pod.uid == uid:
                pod.doomed = True
                await asyncio.sleep(self.core.latency())
                pod.end(-9)
                if uid in self.net.vanished:
                    pod._tell_gone("the host is gone")

    async def record(self, name: str, text: str) -> None:
        """See Backend."""
        await asyncio.sleep(self.core.latency())
        self.document = text
        self.on_record(text)
        await asyncio.sleep(self.core.latency())

    async def close(self) -> None:
        """See Backend."""
        for pod in self.pods:
            pod.end(-9)

    # --- Transport ----------------------------------------------------------------------------------------------

    async def connect(self, address: wire.Address) -> Channel:
        """See Transport."""
        pod = self.pods[address.port - 1]
        node = self.coordinator
        assert node is not None
        if pod.uid in self.net.vanished:
            await asyncio.sleep(1e6)  # nobody answers
        heals = self.net.heals(node.host, pod.uid)
        await asyncio.sleep(heals - self.core.now + self.core.latency())
        if pod.node.dead or pod.serve_coordinator is None:
            raise ConnectionRefusedError(f"{address}: connection refused")
        connection = Connection(self.net, node, pod.node)
        pod.connections.append(connection)
        serve = functools.partial(pod.serving, pod.serve_coordinator)
        self.core.at(self.core.now, pod.node, serve, (connection, connection.down, connection.up))
        return Channel(connection)
