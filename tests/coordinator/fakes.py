"""A backend whose agents and workers live in memory, and train as the protocol says, in virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from spare.api import wire
from spare.control.config import Config
from spare.control.signal import AgentGone, AgentUp
from spare.coordinator.actor import Coordinator
from spare.coordinator.backend import Emit
from spare.coordinator.observe import Event, Snapshot

TOKEN = "secret"
LATENCY = 0.001
"""Seconds that a message takes."""


class Pipe:
    """One direction of a connection."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._sent: deque[bytes] = deque()
        self.open = True

    def put(self, line: bytes) -> None:
        if self.open:
            self._sent.append(line)  # of two timers for one moment the loop may take the later first
            asyncio.get_running_loop().call_later(LATENCY, self._arrive)

    def _arrive(self) -> None:
        self._queue.put_nowait(self._sent.popleft())

    async def get(self) -> bytes:
        return await self._queue.get()

    def shut(self) -> None:
        if self.open:
            self.put(b"")
            self.open = False


class MemoryChannel:
    """The coordinator's end."""

    def __init__(self, down: Pipe, up: Pipe) -> None:
        self.down, self.up = down, up

    async def read(self) -> bytes:
        return await self.up.get()

    async def write(self, data: bytes) -> None:
        if not self.down.open:
            raise BrokenPipeError("the agent is gone")
        self.down.put(data)

    async def close(self) -> None:
        self.down.shut()
        self.up.open = False


@dataclass
class Agent:
    """Agent and worker of one group. Attributes may be set by a test to make it behave badly."""

    world: World
    group: int
    uid: str
    port: int
    plan: wire.Plan | None = None
    committed: int = 0
    phase: wire.Phase = "starting"
    frozen: bool = False
    """Agent and worker stopped (SIGSTOP)."""
    stuck: bool = False
    """The worker computes for ever."""
    dead: bool = False
    token: str = TOKEN
    changed: float = 0.0
    plans: list[wire.Plan] = field(default_factory=list)
    channels: list[tuple[Pipe, Pipe]] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    again: list[bytes] = field(default_factory=list)

    @property
    def head(self) -> dict[str, object]:
        return {"job": self.world.config.job, "uid": self.uid, "group": self.group}

    def message(self, cls: type[wire.Up], **fields: object) -> bytes:
        epoch = self.plan.epoch if self.plan else 0
        return cls.model_validate({**self.head, "epoch": epoch, **fields}).line()

    def tell(self, line: bytes) -> None:
        if not self.frozen and not self.dead:
            for _, up in self.channels[-1:]:
                up.put(line)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.tasks = [loop.create_task(self._beat()), loop.create_task(self._work())]

    async def serve(self, down: Pipe, up: Pipe) -> None:
        first = wire.read(await down.get())
        assert isinstance(first, wire.Attach)
        if first.token != self.world.token or first.uid != self.uid:
            up.put(self.message(wire.Refusal, what="attach", reason="not for this agent"))
            up.shut()
            return
        self.channels.append((down, up))
        store = f"127.0.0.1:{self.port + 10000}"
        up.put(self.message(wire.Hello, token=self.token, pid=self.port, store=store, step=self.committed))
        for line in self.again:
            up.put(line)
        while line := await down.get():
            if not self.frozen and not self.dead:
                self._take(wire.read(line))

    def _take(self, message: wire.Message) -> None:
        match message:
            case wire.Probe():
                self.tell(self._alive(message.nonce))
            case wire.Plan():
                if self.plan is None or message.epoch > self.plan.epoch:
                    self.plan, self.group = message, message.group  # a spare learns it by this
                    self.world.agents[self.group] = self
                    self.plans.append(message)
            case wire.Finish():
                self._say_again(self.message(wire.Exited, code=0))
            case wire.Stop():
                self.die("stopped", tell=False)

    def _alive(self, nonce: int | None = None) -> bytes:
        still = asyncio.get_running_loop().time() - self.changed
        return self.message(
            wire.Alive, nonce=nonce, worker="running", step=self.committed, phase=self.phase, still=still
        )

    def _say_again(self, line: bytes) -> None:
        self.again.append(line)
        self.tell(line)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.world.config.heartbeat)
            self.tell(self._alive())

    def enter(self, phase: wire.Phase) -> None:
        self.phase, self.changed = phase, asyncio.get_running_loop().time()

    async def _work(self) -> None:
        """Compute, meet the others in the reduction, commit; when one of them is gone, suspect and wait for a plan."""
        while self.plan is None:
            await self.world.step()
        while True:
            epoch = self.plan.epoch
            self.enter("rendezvous")
            if not await self._meet(("rendezvous", "compute", "reduce", "barrier", "done"), epoch):
                continue
            self._say_again(self.message(wire.Running, step=self.committed))
            while self.plan.epoch == epoch and self.committed < self.world.steps:
                self.enter("compute")
                await asyncio.sleep(self.world.compute)
                while self.stuck or self.frozen:
                    await self.world.step()
                self.enter("reduce")
                if not await self._meet(("reduce", "barrier"), epoch):
                    break
                await asyncio.sleep(0)
                self.committed += 1
                self.enter("barrier")
                self.tell(self.message(wire.Committed, step=self.committed, loss=1.0 / self.committed))
            if self.plan.epoch == epoch and self.committed == self.world.steps:
                self.enter("done")
                self._say_again(self.message(wire.Done, step=self.committed, digest="d" * 64, loss=0.5))
            while self.plan.epoch == epoch:
                await self.world.step()

    async def _meet(self, phases: tuple[str, ...], epoch: int) -> bool:
        """Wait until every member of the plan is in one of these phases; False when another plan came meanwhile.

        One that is gone is reported, once, when the connection to it drops.
        """
        assert self.plan is not None
        told = False
        while self.plan.epoch == epoch:
            peers = [self.world.agents[g] for g in wire.groups_of(self.plan.members) if g != self.group]
            gone = tuple(peer.group for peer in peers if peer.dead and not self.world.mute)
            if gone and not told and self.phase == "reduce":
                told = True
                self._say_again(
                    self.message(wire.Suspect, step=self.committed, phase="reduce", error="reset", unreachable=gone)
                )
            ahead = [p for p in peers if p.plan and p.plan.epoch == epoch and p.phase in phases and not p.dead]
            met = [p for p in ahead if p.phase != "compute" or "compute" in phases]
            if len(met) == len(peers) and all(p.committed >= self.committed for p in peers):
                return True
            if any(p.plan and p.plan.epoch == epoch and p.committed > self.committed for p in peers):
                return True
            await self.world.step()
        return False

    def die(self, reason: str, *, tell: bool = True) -> None:
        """The whole group is gone at once (agent too); the backend notices it."""
        if self.dead:
            return
        self.dead = True
        for task in self.tasks:
            task.cancel()
        for down, up in self.channels:
            down.shut()
            up.shut()
        if tell and self.world.emit is not None:
            self.world.emit(AgentGone(self.group, self.uid, reason))

    def kill_worker(self, signal: int = 9) -> None:
        """The worker is gone, the agent says so."""
        self.tasks[1].cancel()
        self._say_again(self.message(wire.Exited, signal=signal))
        self.phase = "stopped"


class World:
    """The backend, the transport and an observer in one."""

    def __init__(self, config: Config, *, steps: int = 20, compute: float = 0.05) -> None:
        self.config = config
        self.steps, self.compute = steps, compute
        self.token = TOKEN
        self.emit: Emit | None = None
        self.agents: dict[int, Agent] = {}
        self.everyone: list[Agent] = []
        self.mute = False
        self.cut = False
        self.forged: set[int] = set()
        """Groups whose agents do not know the job's token."""
        self.records: list[tuple[str, str]] = []
        self.deleted: list[tuple[int, str]] = []
        self.released: set[str] = set()
        """Incarnations that leave by themselves."""
        self.closed = False
        self.orphaned = False
        """The coordinator's process is killed: nothing that it does at its end happens."""
        self.events: list[Event] = []
        self.snapshots: list[Snapshot] = []

    async def step(self) -> None:
        """Wait a little, as one who polls does."""
        await asyncio.sleep(0.005)

    # --- Backend ----------------------------------------------------------------------------------------------

    async def open(self, emit: Emit) -> None:
        self.emit = emit
        for agent in self.everyone:
            if not agent.dead:
                emit(AgentUp(agent.group, agent.uid, f"127.0.0.1:{agent.port}"))

    async def create(self, group: int) -> None:
        here = self.agents.get(group)
        leaves = here is not None and (here.uid in self.released or (here.group, here.uid) in self.deleted)
        if here is not None and not here.dead and not leaves:
            return
        count = len(self.everyone)
        agent = Agent(self, group, f"uid-{group}-{count}", 20000 + count)
        if group in self.forged:
            agent.token = "guessed"
        self.agents[group] = agent
        self.everyone.append(agent)
        agent.start()
        assert self.emit is not None
        self.emit(AgentUp(group, agent.uid, f"127.0.0.1:{agent.port}"))

    async def delete(self, group: int, uid: str) -> None:
        self.deleted.append((group, uid))
        for agent in self.everyone:
            if agent.uid == uid:
                agent.die("deleted")

    async def let_go(self, group: int, uid: str) -> None:
        self.released.add(uid)

    async def take_over(self, group: int, spare: int, uid: str) -> None:
        self.agents[group] = self.agents.pop(spare)
        assert self.agents[group].uid == uid

    async def record(self, name: str, text: str) -> None:
        self.records.append((name, text))

    async def close(self) -> None:
        if self.orphaned:
            return
        self.closed = True
        for agent in self.everyone:
            agent.die("closed", tell=False)

    # --- Transport --------------------------------------------------------------------------------------------

    async def connect(self, address: wire.Address) -> MemoryChannel:
        await asyncio.sleep(LATENCY)
        agent = next((a for a in self.everyone if a.port == address.port and not a.dead), None)
        if agent is None or self.cut:
            raise ConnectionRefusedError(f"{address}: connection refused")
        down, up = Pipe(), Pipe()
        agent.tasks.append(asyncio.get_running_loop().create_task(agent.serve(down, up)))
        return MemoryChannel(down, up)

    # --- Observer ---------------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        self.events.append(event)

    def state(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    # --- a run ------------------------------------------------------------------------------------------------

    def coordinator(self) -> Coordinator:
        """A coordinator that knows what was recorded."""
        loop = asyncio.get_running_loop()
        recorded = self.records[-1][1] if self.records else None
        return Coordinator(
            self.config,
            self,
            token=TOKEN,
            transport=self,
            observers=(self,),
            clock=loop.time,
            wall=loop.time,
            recorded=recorded,
        )

    async def kill(self, job: asyncio.Task[Snapshot]) -> None:
        """End a coordinator as SIGKILL does."""
        self.orphaned, self.emit = True, None
        job.cancel()
        await asyncio.wait({job})
        self.orphaned = False

    def reached(self, step: int) -> bool:
        return all(agent.committed >= step for agent in self.agents.values() if not agent.dead)

    async def until(self, step: int) -> None:
        """Wait until every live group has committed so many steps."""
        while not self.agents or not self.reached(step):
            await self.step()
