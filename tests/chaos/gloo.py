"""A plan's meeting as gloo and the leader's store behave (docs/protocol.md, "What gloo does").

A collective completes at a member only when all have entered it. Once one member is dead or has left, each other member
completes or fails by itself, at its own time; within one all-reduce all get the same bits. A member that dies before it
connected leaves the others waiting for it without any error. What a member waits for in here ends within milliseconds
when it is interrupted, and its peers learn of that, too.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from spare.api import wire
from spare_runtime.errors import CollectiveFailed, RendezvousTimeout, Superseded
from tests.chaos.process import Process
from tests.chaos.store import Call, SimStore, Stores
from tests.chaos.training import Cell, Part, Reduced, mixed

_OVERFLOWS_MOST = 3
"""Sums of one step that do not fit, running: gradients that can be repeated need one."""
_DIAL_TIMEOUT, _DIAL_LONGEST = 2.0, 1.0


class Flag:
    """An event of one process."""

    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._set

    def set(self) -> None:
        """Set it."""
        self._set = True


class Collective:
    """One operation of a mesh: who entered with what, and who waits in it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.entered: dict[int, Any] = {}
        self.result: Any = None


class Mesh:
    """The connections between the members of one plan."""

    def __init__(self, world: Meshes, plan: wire.Plan) -> None:
        self.world, self.core = world, world.core
        self.epoch, self.members = plan.epoch, wire.groups_of(plan.members)
        self.seats: dict[int, SimMeeting] = {}
        self.ops: list[Collective] = []

    @property
    def complete(self) -> bool:
        """Whether all members have come to connect."""
        return len(self.seats) == len(self.members)

    def register(self, meeting: SimMeeting) -> None:
        """A member comes to connect."""
        group = meeting.plan.group
        if group in self.seats:
            raise self.core.violated(f"group {group} is in the mesh of plan {self.epoch} twice")
        self.seats[group] = meeting
        if self.complete:
            for each in self.seats.values():
                self._soon(each, each.connected_now)

    def _soon(self, meeting: SimMeeting, call: Callable[..., object], *args: Any) -> None:
        """Let something happen at a member, once all its connections work."""
        heals = max(self.world.net.heals(meeting.host, other.host) for other in self.seats.values())
        self.core.at(heals + self.core.latency(), meeting.process.node, call, args)

    def enter(self, meeting: SimMeeting, kind: str, value: Any) -> Collective:
        """A member enters its next collective."""
        if meeting.position == len(self.ops):
            self.ops.append(Collective(kind))
        op = self.ops[meeting.position]
        if op.kind != kind:
            raise self.core.violated(f"plan {self.epoch}: {meeting.process.node.name} enters {kind}, others {op.kind}")
        op.entered[meeting.plan.group] = value
        if len(op.entered) == len(self.members):
            op.result = self.world.completes(self, op)
            for group in self.members:
                seat = self.seats[group]
                self._soon(seat, seat.completed, op)
        return op

    def left(self, meeting: SimMeeting) -> None:
        """A member's connections are closed: each other learns of it by itself, at its own time or at once."""
        random = self.core.random
        completes, pace = random.choice(((0.0, 0.01), (0.0, 1.0), (1.0, 1.0), (0.5, 1.0), (0.5, 20.0)))
        for other in self.seats.values():
            if other is not meeting and not other.left:
                delay = self.core.latency() * pace
                told = (meeting.plan.group, completes)
                self.core.at(self.core.now + delay, other.process.node, other.peer_left, told)


class Meshes:
    """All meshes, and what must hold of every reduction."""

    def __init__(self, stores: Stores, micro_batches: int) -> None:
        self.stores, self.net, self.core = stores, stores.net, stores.net.core
        self.every = (1 << micro_batches) - 1
        self.overflows = 0.0
        """How probable it is that a sum does not fit its scales."""
        self.on_reduced: Callable[[Mesh, Collective], None] = lambda _mesh, _op: None
        self._overflown: collections.Counter[int] = collections.Counter()
        self._by_plan: dict[tuple[int, str], Mesh] = {}

    def of(self, plan: wire.Plan) -> Mesh:
        """The mesh of a plan: two plans of one epoch never meet."""
        return self._by_plan.setdefault((plan.epoch, plan.digest), Mesh(self, plan))

    def glitch(self, group: int) -> bool:
        """A connection of this group's breaks though nobody died; whether it had one."""
        seats = [m.seats[group] for m in self._by_plan.values() if group in m.seats]
        seats = [s for s in seats if not s.left and not s.process.dead]
        for seat in seats:
            seat.peer_left(group)
        return bool(seats)

    def completes(self, mesh: Mesh, op: Collective) -> Any:
        """All members have entered: what each will get. Exactly once is checked here."""
        if op.kind == "barrier":
            return None
        if op.kind.startswith("broadcast"):
            return op.entered[int(op.kind.split()[1])]
        parts: list[Part] = [op.entered[g] for g in mesh.members]
        union = 0
        for part in parts:
            if part.mask & union:
                twice = part.mask & union
                raise self.core.violated(f"exactly once: {twice:b} twice in step {part.step}, plan {mesh.epoch}")
            union |= part.mask
        if union != self.every:
            raise self.core.violated(f"exactly once: step {parts[0].step}, plan {mesh.epoch} holds only {union:b}")
        whole = [part for part in parts if not part.joining]
        if len({part.step for part in parts}) != 1 or len({part.parameters for part in whole}) != 1:
            raise self.core.violated(f"members of one reduction differ (plan {mesh.epoch}): {parts}")
        bits = mixed("sum", mesh.epoch, mesh.ops.index(op), mesh.members, parts[0].step)
        step = parts[0].step
        over = self.core.random.random() < self.overflows and self._overflown[step] < _OVERFLOWS_MOST
        self._overflown[step] += over
        self.on_reduced(mesh, op)
        return Reduced(bits, step, sum(part.unseen for part in parts), over)


class SimMeeting:
    """What `spare_runtime.meeting.Meeting` is to a member."""

    def __init__(
        self,
        meshes: Meshes,
        process: Process,
        plan: wire.Plan,
        own_store: SimStore,
        token: str,
        bind: str,
        deadline: float,
        timeout: float,
        column: int = 0,
    ) -> None:
        self.plan, self.process, self.host = plan, process, process.node.host
        self.members = wire.groups_of(plan.members)
        self.interrupted = Flag()
        self.position = 0
        self.left = False
        self._meshes, self._core = meshes, process.core
        self._own_store = own_store
        self._deadline, self._timeout = deadline, timeout
        self._inside = False
        self._connected = False
        self._broken = ""
        self._pending: Collective | None = None
        self._result: Any = None
        self._mesh = meshes.of(plan)
        process.at_end(self._leave)

    # --- told from outside ------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """See Meeting."""
        if not self.interrupted.is_set():
            self.interrupted.set()
            if self._inside or not self._connected:
                self._leave()
            self.process.poke()

    def drop(self) -> None:
        """See Meeting."""
        self.interrupted.set()
        self._leave()

    def _leave(self) -> None:
        if not self.left:
            self.left = True
            if self._mesh.seats.get(self.plan.group) is self:
                self._mesh.left(self)

    def connected_now(self) -> None:
        """All connections of this member stand."""
        if not self._broken:
            self._connected = True
            self.process.poke()

    def peer_left(self, group: int, completes: float = 0.5) -> None:
        """A peer is gone; what is under way completes with that probability.

        Before one's own connections stand that may pass unnoticed, until one waits in vain.
        """
        random = self._core.random
        if self._broken or (not self._connected and not (self._mesh.complete and random.random() < 0.7)):
            return
        self._broken = f"Connection closed by peer {group}"
        op = self._pending
        if op is not None and len(op.entered) == len(self.members) and random.random() < completes:
            self._finish(op)
        self.process.poke()

    def completed(self, op: Collective) -> None:
        """A collective reaches its end at this member."""
        if not self._broken and self._pending is op:
            self._finish(op)
            self.process.poke()

    def _finish(self, op: Collective) -> None:
        self._pending, self._result = None, op.result

    # --- the member's own -------------------------------------------------------------------------------------------

    @contextmanager
    def _blocking(self, what: str, unreachable: tuple[int, ...] = ()) -> Iterator[None]:
        self.process.at = what
        self._inside = True
        try:
            if self.interrupted.is_set():
                raise Superseded(what)
            yield
        except (RuntimeError, OSError) as error:
            if self.interrupted.is_set():
                raise Superseded(what) from error
            raise CollectiveFailed(what, str(error), unreachable) from error
        finally:
            self._inside = False
            self.process.at = "between"

    def _wait(self, ready: Callable[[], bool], deadline: float, what: str) -> bool:
        """Until ready; False when the deadline has passed. Raises Superseded when interrupted."""
        until = self.process.node.time() + deadline
        while not ready():
            if self.interrupted.is_set():
                raise Superseded(what)
            if self.process.node.time() >= until:
                return False
            self.process.pause(until)
        return True

    def _answered(self, call: Call, deadline: float, what: str) -> bool:
        return self._wait(lambda: call.ended, deadline, what)

    def enter(self) -> None:
        """See Meeting."""
        leader = self.plan.leader_group
        with self._blocking("reaching the leader's store", (leader,)):
            self._dial()
        if leader == self.plan.group:
            self._own_store.forget(self.plan.job, self.plan.epoch - 1)
        self.process.node.after(self._core.latency(), self._register)

    def _register(self) -> None:
        if not self.left:
            self._mesh.register(self)

    def _dial(self) -> None:
        address, began, pause = self.plan.stores[0], self.process.node.time(), 0.01
        while True:
            call = self._meshes.stores.call(self.process, address, "hello")
            if self._answered(call, _DIAL_TIMEOUT, "reaching the leader's store") and call.error is None:
                return
            if self.process.node.time() - began > self._deadline:
                late = f"waited {self._deadline:.0f} s for the store at {address}: {call.error}"
                raise RendezvousTimeout(late, (self.plan.leader_group,))
            self._wait(lambda: False, pause, "reaching the leader's store")
            pause = min(2 * pause, _DIAL_LONGEST)

    def exchange(self, mine: str) -> dict[int, str]:
        """See Meeting."""
        plan, what, prefix = self.plan, "the exchange", self._prefix
        keys = [f"{prefix}/fact/{g}" for g in self.members]
        with self._blocking(what, (plan.leader_group,)):
            self._ask("set", [f"{prefix}/fact/{plan.group}"], mine)
            if plan.leader_group == plan.group:
                facts = self._ask("get", keys)
                self._ask("set", [f"{prefix}/facts"], "\n".join(facts))
            else:
                facts = self._ask("get", [f"{prefix}/facts"])[0].split("\n")
            return dict(zip(self.members, facts, strict=True))

    def _ask(self, kind: str, keys: list[str], value: str = "") -> list[str]:
        call = self._meshes.stores.call(self.process, self.plan.stores[0], kind, keys, value)
        if not self._answered(call, self._deadline, "the exchange"):
            late = f"waited {self._deadline:.0f} s in the rendezvous of epoch {self.plan.epoch}"
            raise RendezvousTimeout(late, self._missing())
        if call.error is not None:
            raise OSError(call.error)
        return call.values

    def _missing(self) -> tuple[int, ...]:
        said = self._meshes.stores.at(self.plan.stores[0]).keys()
        return tuple(g for g in self.members if f"{self._prefix}/fact/{g}" not in said)

    @property
    def _prefix(self) -> str:
        return f"{self.plan.job}/{self.plan.epoch}/{self.plan.digest[:16]}"

    def group(self) -> Any:
        """See Meeting."""
        if not self._connected:
            with self._blocking("connecting to the other groups"):
                limit = min(self._deadline, self._timeout)
                if not self._wait(lambda: self._connected or self._broken != "", limit, "connecting"):
                    raise RuntimeError("timed out connecting")
                if not self._connected:
                    raise RuntimeError(self._broken)
        return self

    def _do(self, kind: str, what: str, value: Any, entered: Callable[[], None]) -> Any:
        self.group()
        with self._blocking(what):
            if self._broken:
                raise RuntimeError(self._broken)
            op = self._pending = self._mesh.enter(self, kind, value)
            entered()
            done = self._wait(lambda: self._pending is not op or self._broken != "", self._timeout, what)
            if self._pending is op:
                self._pending = None
                raise RuntimeError(self._broken if done else "timed out")
            self.position += 1
            return self._result

    connected = False
    """No part is sent early: until the rest has come, too, nobody can tell it from one who has not entered."""

    def reduce(self, tensors: list[Any], entered: Callable[[], None]) -> None:
        """See Meeting."""
        tensors[0].result = self._do("reduce", "the reduction", tensors[0], entered)
        self.process.passes("reduced")

    def barrier(self, entered: Callable[[], None]) -> None:
        """See Meeting."""
        self._do("barrier", "the commit barrier", None, entered)

    def broadcast(self, tensors: list[Cell], source: int) -> None:
        """See Meeting."""
        cell: Cell = self._do(f"broadcast {source}", "taking over the first parameters", tensors[0], lambda: None)
        tensors[0].value = cell.value
