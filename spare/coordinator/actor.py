"""One actor per job: takes what happened from its inbox, lets `decide` decide, and does what that asks for.

Everything runs in one event loop and one task decides, so no two decisions overlap. Nothing that waits for others is
awaited here, but the record of a plan: it must be written before anybody is told (docs/protocol.md, rule 5). From that
record a coordinator that comes back goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

from spare.api import wire
from spare.api.reasons import EventReason
from spare.control.action import (
    Action,
    Announce,
    Connect,
    CreateGroup,
    DeleteGroup,
    EndJob,
    LetGo,
    Orders,
    ProbeAll,
    PushPlan,
    SendAssemble,
    SendDrain,
    SendFinish,
    SendRenew,
    SendSave,
    SendStop,
    TakeOver,
)
from spare.control.config import Config
from spare.control.decide import Decision, decide
from spare.control.record import Kept, document
from spare.control.resume import resume
from spare.control.signal import AgentNotStarted, Interrupted, Pushed, Refused, Signal, StoodStill, Suspend, Tick
from spare.control.state import State
from spare.coordinator.backend import Backend
from spare.coordinator.link import Events, Identity, Link
from spare.coordinator.meter import Meter
from spare.coordinator.observe import Event, Observer, Snapshot
from spare.coordinator.patience import insist
from spare.coordinator.snapshot import snapshot_of
from spare.coordinator.transport import Tcp, Transport

PLAN_DOCUMENT: Final = "plan.json"
LOOK: Final = 0.05
"""Shortest time between two snapshots for the observers, seconds."""
FAREWELL: Final = 1.0
"""Longest wait at the end for the agents to take their last order, seconds; the backend then ends them."""


class Coordinator:
    """Runs one job on a backend, from the first process to the last."""

    def __init__(
        self,
        config: Config,
        backend: Backend,
        *,
        token: str,
        transport: Transport | None = None,
        observers: Sequence[Observer] = (),
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        recorded: str | None = None,
        incarnation: str | None = None,
        term: int = 0,
    ) -> None:
        """A coordinator of a new job, or of one that another has begun.

        Args:
            config: Of the job.
            backend: Where its groups run.
            token: The job's secret.
            transport: How agents are dialled; default: TCP.
            observers: Told of events and state.
            clock: Must run as the event loop's does; replaced by tests, as `wall` is.
            wall: Seconds since 1970.
            recorded: What the backend last recorded as PLAN_DOCUMENT; None begins the job.
            incarnation: Of this coordinator, for the agents' logs; default: a fresh one.
            term: Number of its leadership, where coordinators follow each other (`wire.Attach.term`).

        Raises:
            ValueError: `recorded` is damaged, or of another job.
        """
        self._config = config
        self._backend = backend
        self._identity = Identity(config.job, token, incarnation or uuid.uuid4().hex, term, config.groups)
        self._transport = transport or Tcp()
        self._observers = observers
        self._clock = clock
        self._wall = wall() - clock()
        self._inbox: list[Signal] = []
        self._since = clock()
        """When the oldest signal in the inbox came."""
        self.meter = Meter()
        self._arrived = asyncio.Event()
        self._links: dict[tuple[int, int], Link] = {}
        """By group and pod."""
        self._parting: list[Link] = []
        """To those that leave, while another may have their number."""
        self._chores: set[asyncio.Task[None]] = set()
        self._broken: list[BaseException] = []
        self._untold: dict[int, set[tuple[int, int]]] = {}
        self._recorded: tuple[int, Kept] | None = None
        self._pushed = 0
        self._looked = float("-inf")
        self._decision: Decision = resume(config, recorded, clock())

    @property
    def state(self) -> State:
        """What is known at this moment."""
        return self._decision.state

    def snapshot(self) -> Snapshot:
        """The job at this moment."""
        return snapshot_of(self.state, self._wall)

    def emit(self, signal: Signal) -> None:
        """Put a signal into the inbox. From the event loop's thread only."""
        if not self._inbox:
            self._since = self._clock()
        self._inbox.append(signal)
        self._arrived.set()

    def stop(self, reason: str) -> None:
        """Ask for the end of the job; `run` returns once everything has ended."""
        self.emit(Interrupted(reason))

    async def run(self) -> Snapshot:
        """Run the job to its end, whatever that is. No process of it lives afterwards.

        Raises:
            OSError: the backend could not be opened.
        """
        try:
            await self._backend.open(self.emit)
            await self._execute(self._decision.actions)
            tick = self._clock()
            while not self.state.ended:
                signals = await self._gather(tick)
                now = self._clock()
                if now >= tick or not signals:
                    signals.append(Tick())
                    tick = now + self._config.heartbeat / 2
                self._decision = decide(self.state, signals, now)
                self.meter.decided(self._clock() - now)
                await self._execute(self._decision.actions)
                self._show()
                if self._broken:
                    raise self._broken[0]
            await self._farewell()
        finally:
            await self._close()
        self._show(last=True)
        return self.snapshot()

    async def _gather(self, tick: float) -> list[Signal]:
        """Everything that is there, waiting for the first of it until the next tick or deadline."""
        wait = min(tick, self._decision.wake) - self._clock()
        due = self._clock() + max(0.0, wait)
        if not self._inbox and wait > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._arrived.wait()
        # Two turns of the loop: what other connections hold at this moment comes along, and makes one decision (F05).
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.meter.waited = self._clock() - self._since if self._inbox else 0.0
        signals, self._inbox = self._inbox, []
        self._arrived.clear()
        late = self._clock() - due
        return [StoodStill(late), *signals] if late > self._config.dead_after / 2 else signals

    # --- doing ----------------------------------------------------------------------------------------------

    async def _execute(self, actions: Sequence[Action]) -> None:
        if actions and not await self._record() and not self.state.ended:
            return  # nobody may be told of a plan that is not written down, and something more urgent has come
        for action in actions:
            match action:
                case CreateGroup(group):
                    self._chore(self._create(group))
                case DeleteGroup(group, uid):
                    self._delete(group, uid)
                case TakeOver(group, spare, uid):
                    self._take_over(group, spare, uid)
                case LetGo(group, uid):
                    self._let_go(group, uid)
                case Connect(group, uid, address, pod):
                    self._connect(group, uid, address, pod)
                case Announce(reason, text, groups):
                    self._tell(reason, text, groups)
                case EndJob():
                    pass  # the state says so, and the loop in `run` ends by it
                case order:
                    self._order(order)

    def _order(self, order: Orders) -> None:
        job, plan = self._config.job, self.state.plan
        epoch = plan.epoch if plan else 0
        match order:
            case PushPlan():
                self._push(order)
            case SendAssemble(group, pods, home, master):
                for link in self._of([group]):
                    if link.pod in pods:
                        link.send(wire.Assemble(job=job, epoch=epoch, uid=link.uid, home=home, master=master))
            case ProbeAll(nonce, groups):
                for link in self._of(groups):
                    link.send(wire.Probe(job=job, epoch=epoch, uid=link.uid, nonce=nonce))
            case SendDrain(group, uid, grace):
                for link in self._to(group, uid):
                    link.send(wire.Drain(job=job, epoch=epoch, uid=uid, grace=grace))
            case SendFinish(groups):
                for link in self._of(groups):
                    link.send(wire.Finish(job=job, epoch=epoch, uid=link.uid))
            case SendSave(group, due, period):
                for link in self._of([group]):
                    link.send(wire.Save(job=job, epoch=epoch, uid=link.uid, due=due, period=period))
            case SendRenew(groups, reason):
                for link in self._of(groups):
                    link.send(wire.Renew(job=job, epoch=epoch, uid=link.uid, reason=reason))
            case SendStop(reason):
                for link in self._all():
                    link.send(wire.Stop(job=job, epoch=epoch, uid=link.uid, reason=reason))

    def _all(self) -> list[Link]:
        return [*self._links.values(), *self._parting]

    def _to(self, group: int, uid: str) -> list[Link]:
        """The links to one incarnation, on its way out or not. Asked for every group of a plan: no search among all."""
        return [link for link in (*self._of([group]), *self._parting) if (link.group, link.uid) == (group, uid)]

    def _of(self, groups: Sequence[int]) -> list[Link]:
        """The links to all agents of some groups."""
        every = ((group, pod) for group in groups for pod in range(self._config.pods))
        return [self._links[at] for at in every if at in self._links]

    async def _record(self) -> bool:
        """Write down what a coordinator that comes back must know, if it has changed; whether that is written."""
        plan, kept = self.state.plan, Kept.of(self.state)
        if plan is None or (
            self._recorded is not None and self._recorded[0] == plan.epoch and kept.same(self._recorded[1])
        ):
            return True
        began, text = self._clock(), document(plan, kept)
        what = f"plan {plan.epoch} could not be written down"
        if not await insist(what, lambda: self._backend.record(PLAN_DOCUMENT, text), self._troubled, self._hopeless):
            return False
        self.meter.wrote(self._clock() - began)
        self._recorded = plan.epoch, kept
        return True

    def _hopeless(self) -> bool:
        """Whether the job is to end, written down or not."""
        state, now = self.state, self._clock()
        # A job that is to stop has so long for it, and not longer because a disk is full.
        ends = [self._since + signal.grace for signal in self._inbox if isinstance(signal, Suspend)]
        ends += [state.halt.until] if state.halt is not None else []
        ends += [state.began + self._config.deadline] if self._config.deadline is not None else []
        asked = any(isinstance(signal, Interrupted) for signal in self._inbox)
        return asked or state.ended or any(now >= end for end in ends)

    def _troubled(self, text: str) -> None:
        self._tell(EventReason.BACKEND_FAILED, text, ())

    def _push(self, action: PushPlan) -> None:
        plan = action.plan
        if plan.epoch > self._pushed:
            self._pushed = plan.epoch
            told = [group for group, uid in action.to if plan.has(group, uid)]
            self._untold = {plan.epoch: {(group, pod) for group in told for pod in range(self._config.pods)}}
        for group, uid in action.to:
            part = plan.part_for(group, uid)
            for link in self._to(group, uid):
                link.send(part)
                self.meter.pushed += 1

    def _sent(self, group: int, pod: int, message: wire.Down) -> None:
        if isinstance(message, wire.Plan):
            self.meter.taken += 1
        if isinstance(message, wire.Plan) and message.epoch in self._untold:
            self._untold[message.epoch].discard((group, pod))
            if not self._untold[message.epoch]:
                del self._untold[message.epoch]
                self.emit(Pushed(message.epoch))

    def _connect(self, group: int, uid: str, address: str, pod: int) -> None:
        old = self._links.get((group, pod))
        if old is not None:
            self._chore(old.close())
        events = Events(self.emit, self._refused, self._sent)
        patience = max(self._config.dead_after, 1.0)
        link = Link(self._identity, group, uid, address, self._transport, events, patience=patience, pod=pod)
        self._links[group, pod] = link
        link.start()

    def _part(self, group: int, uid: str | None = None) -> None:
        """What is left of an incarnation may still be told things, beside the next one."""
        for link in self._of([group]):
            if uid in (None, link.uid):
                self._parting.append(self._links.pop((group, link.pod)))

    def _take_over(self, group: int, spare: int, uid: str) -> None:
        self._part(group)
        for link in self._of([spare]):
            self._links[group, link.pod] = self._links.pop((spare, link.pod))
            link.group = group
        what = f"group {group} could not be given its spare"
        self._chore(insist(what, lambda: self._backend.take_over(group, spare, uid), self._troubled))

    def _let_go(self, group: int, uid: str) -> None:
        self._part(group, uid)
        what = f"group {group} could not be let go"
        self._chore(insist(what, lambda: self._backend.let_go(group, uid), self._troubled))

    def _delete(self, group: int, uid: str) -> None:
        for link in self._to(group, uid):
            if link in self._parting:
                self._parting.remove(link)
            else:
                del self._links[group, link.pod]
            self._chore(self._hang_up(link))
        what = f"what is left of group {group} ({uid}) could not be ended"
        self._chore(insist(what, lambda: self._backend.delete(group, uid), self._troubled))

    async def _hang_up(self, link: Link) -> None:
        """Let a removed agent have the plan that says so, if it takes it now."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.heartbeat):
                    await link.flushed()
        finally:  # also at the job's end, which does not wait for this: a link that is left dials for ever
            await link.close()

    async def _create(self, group: int) -> None:
        try:
            await self._backend.create(group)
        except OSError as error:
            self.emit(AgentNotStarted(group, str(error)))

    def _chore(self, work: Coroutine[None, None, object]) -> None:
        """Do something beside the decisions. A bug in it ends the run, loudly."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001  # raised again by `run`
                self._broken.append(error)
                self._arrived.set()

        task = asyncio.get_running_loop().create_task(guarded())
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    # --- showing --------------------------------------------------------------------------------------------

    def _tell(self, reason: str, text: str, groups: tuple[int, ...]) -> None:
        event = Event(self._wall + self._clock(), reason, text, groups)
        self.meter.rejoined += len(groups) if reason == EventReason.GROUP_REJOINED else 0
        for observer in self._observers:
            observer.event(event)

    def _refused(self, group: int, why: str) -> None:
        self.emit(Refused(group, why))

    def _show(self, *, last: bool = False) -> None:
        now = self._clock()
        if self._observers and (last or now - self._looked >= LOOK):
            self._looked = now
            snapshot = self.snapshot()
            for observer in self._observers:
                observer.state(snapshot)

    # --- end ------------------------------------------------------------------------------------------------

    async def _farewell(self) -> None:
        """Let the last orders go out, and those who hang up do so: a line that we cut may lose what is on its way."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL):
                await asyncio.gather(*(link.flushed() for link in self._all() if link.up))
                while any(link.up for link in self._all()):  # noqa: ASYNC110  # no longer than all of this
                    await asyncio.sleep(LOOK)

    async def _close(self) -> None:
        for link in self._all():
            await link.close()
        await asyncio.sleep(0)  # let each begin: a coroutine that never ran is complained about
        for task in tuple(self._chores):
            task.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        await self._backend.close()
