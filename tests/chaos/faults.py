"""What goes wrong in a run, and when: at a time, or when a group comes to a point of its program."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.pods import Pod
from tests.chaos.worker import SimWorker
from tests.chaos.world import RENDEZVOUS, Shape, World

POINTS = (
    "computing",
    "the reduction",
    "the commit barrier",
    "reaching the leader's store",
    "the exchange",
    "connecting to the other groups",
    "loading the state",
    "taking over the first parameters",
    "between",
    "reduced",
    "committed",
)
"""Where a worker waits or passes: it can be hit in each."""
STORM = (
    *("the reduction", "the commit barrier", "reduced", "committed", "the exchange"),
    *("loading the state", "connecting to the other groups"),
)
"""Points of the protocol."""


@dataclass(frozen=True)
class Fault:
    """One mishap."""

    kind: str
    at: float
    """Virtual seconds; where there is a point, the earliest."""
    point: str | None
    """It happens when `group` comes to wait there."""
    group: int
    other: int
    seconds: float
    """How long it lasts, where it ends by itself."""

    def __str__(self) -> str:
        when = f"at {self.at:.3f} s" if self.point is None else f"after {self.at:.3f} s in {self.point!r}"
        return f"{self.kind} {when}: group {self.group} (other {self.other}, {self.seconds:.2f} s)"


KINDS: dict[str, float] = {
    "kill worker": 5,
    "kill agent": 3,
    "vanish": 2,
    "delete pod": 1,
    "evict": 2,
    "damage": 1,
    "freeze worker": 2,
    "freeze agent": 1,
    "freeze host": 1,
    "cut control": 2,
    "reset control": 2,
    "cut peers": 2,
    "cut joiner": 1,
    "cut all control": 1,
    "glitch": 3,
    "kill coordinator": 3,
    "kill coordinator at record": 3,
    "freeze coordinator": 1,
    "stall": 1,
    "twice": 1,
}
"""Each kind and how often it is drawn."""


def draw(rng: random.Random, shape: Shape) -> tuple[Fault, ...]:
    """A seed's mishaps: few or many, alone or close together."""
    faults: list[Fault] = []
    if rng.random() < 0.4:
        return _storm(rng, shape)
    count = rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6, 8))
    kinds, weights = list(KINDS), list(KINDS.values())
    at, length = 0.0, shape.steps * (shape.micro_batches * shape.compute + 0.01)
    for _ in range(count):
        if not faults or rng.random() < 0.4:
            at = 0.05 + rng.random() * length
        else:
            at += rng.choice((0.0, 0.002, 0.02, 0.1, 0.5, 3.0)) * rng.random()
        group, other = rng.sample(range(shape.groups), 2)
        seconds = rng.choice((0.02, 0.3, 1.5, 6.0, 12.0)) * (0.5 + rng.random())
        point = rng.choice(POINTS) if rng.random() < 0.4 else None
        kind = rng.choices(kinds, weights)[0]
        if kind == "evict":
            seconds = rng.choice((0.06, 0.2, 0.6, 6.0)) * (0.5 + rng.random())
        if kind in ("cut peers", "cut joiner") and rng.random() < 0.3:
            seconds *= 10.0  # longer than they wait for each other
        faults.append(Fault(kind, at, point, group, other, seconds))
    return tuple(faults)


def _storm(rng: random.Random, shape: Shape) -> tuple[Fault, ...]:
    """Several mishaps at points of the protocol, all lying in wait from one moment on: they meet within one step."""
    at = 0.05 + rng.random() * shape.steps * (shape.micro_batches * shape.compute + 0.01)
    kinds = ["kill worker", "kill worker", "glitch", "glitch", "kill agent", "vanish", "freeze worker", "cut peers"]
    kinds += ["kill coordinator", "cut control", "delete pod", "evict"]
    faults = []
    for _ in range(rng.randint(1, 5)):
        group, other = rng.sample(range(shape.groups), 2)
        seconds = rng.choice((0.003, 0.02, 0.3, 6.0)) * (0.5 + rng.random())
        faults.append(Fault(rng.choice(kinds), at, rng.choice(STORM), group, other, seconds))
        at += rng.choice((0.0, 0.0, 0.05, 1.0))
    return tuple(faults)


class Mishaps:
    """Carries faults out in a world."""

    def __init__(self, world: World, faults: tuple[Fault, ...]) -> None:
        self.world, self.core = world, world.core
        self._armed: list[Fault] = []
        self._at_record: list[Fault] = []
        for fault in faults:
            self.core.note("fault", f"planned: {fault}")
            self.core.at(fault.at, world.site.world, self._due, (fault,))
        world.on_point = self._comes_to
        recorded = world.site.on_record

        def on_record(text: str) -> None:
            recorded(text)
            self._recording()

        world.site.on_record = on_record

    def _due(self, fault: Fault) -> None:
        if fault.kind == "kill coordinator at record":
            self._at_record.append(fault)
        elif fault.point is None:
            self.happens(fault)
        else:
            self._armed.append(fault)

    def _comes_to(self, worker: SimWorker, point: str) -> None:
        for fault in tuple(self._armed):
            if (fault.group, fault.point) == (worker.group, point):
                self._armed.remove(fault)
                self.happens(fault)

    def _recording(self) -> None:
        """Between writing and telling, at once or a moment later."""
        if self._at_record:
            fault = self._at_record.pop(0)
            self.core.at(self.core.now + fault.seconds * 0.001, self.world.site.world, self._coordinator_dies, (fault,))

    def _pod(self, group: int) -> Pod | None:
        pod = self.world.site.newest.get(group)
        return None if pod is None or pod.node.dead else pod

    def happens(self, fault: Fault) -> None:
        """Now."""
        self.core.note("fault", str(fault))
        self.world.faults += 1
        do: Callable[[Fault, Pod | None], None] = getattr(self, "_" + fault.kind.replace(" ", "_"))
        do(fault, self._pod(fault.group))

    def _touch(self, *groups: int) -> None:
        self.world.touched.update(groups)

    # --- pods ---------------------------------------------------------------------------------------------------

    def _kill_worker(self, fault: Fault, pod: Pod | None) -> None:
        self._touch(fault.group)
        if pod is not None and pod.worker is not None:
            pod.worker.process.end(-9)

    def _kill_agent(self, fault: Fault, pod: Pod | None) -> None:
        self._touch(fault.group)
        if pod is not None:
            pod.end(-9)

    def _vanish(self, fault: Fault, pod: Pod | None) -> None:
        self._touch(fault.group)
        if pod is not None:
            pod.end(-9, vanish=True)
            if fault.seconds < 3.0:  # else nothing ever tells of it
                self.core.at(self.core.now + fault.seconds, self.world.site.world, pod.gone, ("node lost",))

    def _delete_pod(self, fault: Fault, pod: Pod | None) -> None:
        """By hand: SIGTERM, and SIGKILL a little later."""
        self._touch(fault.group)
        if pod is not None:
            self.world.asked.add(fault.group)
            pod.on_sigterm("SIGTERM received")
            self.core.at(self.core.now + fault.seconds, self.world.site.world, pod.end, (-9,))

    def _evict(self, fault: Fault, pod: Pod | None) -> None:
        """It is told how long it has, and killed then: perhaps in the middle of a step."""
        self._touch(fault.group)
        if pod is not None:
            self.world.asked.add(fault.group)
            pod.on_sigterm("evicted", fault.seconds)
            self.core.at(self.core.now + fault.seconds, self.world.site.world, pod.end, (-9,))

    def _damage(self, fault: Fault, pod: Pod | None) -> None:
        """The newest checkpoint cannot be read any more."""
        vault = self.world.vault
        if vault is not None and vault.kept:
            vault.damaged.add(str(vault.complete()[0]))

    # --- standstill ---------------------------------------------------------------------------------------------

    def _freeze(self, *nodes: object, seconds: float) -> None:
        for node in nodes:
            node.freeze()  # type: ignore[attr-defined]
            self.core.at(self.core.now + seconds, self.world.site.world, node.thaw)  # type: ignore[attr-defined]

    def _freeze_worker(self, fault: Fault, pod: Pod | None) -> None:
        self._touch(fault.group)
        if pod is not None:
            self._freeze(pod.worker_node, seconds=fault.seconds)

    def _freeze_agent(self, fault: Fault, pod: Pod | None) -> None:
        self._touch(fault.group)
        if pod is not None:
            self._freeze(pod.node, seconds=fault.seconds)

    def _freeze_host(self, fault: Fault, pod: Pod | None) -> None:
        self._touch(fault.group)
        if pod is not None:
            self._freeze(pod.node, pod.worker_node, seconds=fault.seconds)

    def _freeze_coordinator(self, fault: Fault, pod: Pod | None) -> None:
        self._touch(*range(self.world.shape.groups))
        node = self.world.site.coordinator
        if node is not None:
            self._freeze(node, seconds=fault.seconds)

    def _stall(self, fault: Fault, pod: Pod | None) -> None:
        """Everything stands still: a machine that swaps, a hypervisor that pauses it; all clocks jump."""
        self._touch(*range(self.world.shape.groups))
        pods = [each for each in self.world.site.pods if not each.node.dead]
        nodes = [node for each in pods for node in (each.node, each.worker_node)]
        control = self.world.site.coordinator
        self._freeze(*nodes, *([control] if control is not None else []), seconds=fault.seconds)

    # --- network ------------------------------------------------------------------------------------------------

    def _cut_control(self, fault: Fault, pod: Pod | None) -> None:
        self._touch(fault.group)
        if pod is not None:
            self.world.net.cut("control", pod.uid, fault.seconds)

    def _cut_all_control(self, fault: Fault, pod: Pod | None) -> None:
        self._touch(*range(self.world.shape.groups))
        for each in self.world.site.pods:
            self.world.net.cut("control", each.uid, fault.seconds)

    def _reset_control(self, fault: Fault, pod: Pod | None) -> None:
        """What is on its way is lost; agent and coordinator may notice at different times."""
        for connection in pod.connections if pod is not None else ():
            if connection.dialler.host == "control":
                connection.reset("connection reset by peer")

    def _cut_peers(self, fault: Fault, pod: Pod | None) -> None:
        self._touch(fault.group, fault.other)
        peer = self._pod(fault.other)
        self.world.parted |= fault.seconds > RENDEZVOUS
        if pod is not None and peer is not None:
            self.world.net.cut(pod.uid, peer.uid, fault.seconds)

    def _cut_joiner(self, fault: Fault, pod: Pod | None) -> None:
        """The newest that has come back reaches none of the others."""
        back = [each for each in self.world.site.pods if not each.node.dead and not each.uid.endswith(".0")]
        for other in self.world.site.pods if back else ():
            if other is not back[-1]:
                self._touch(back[-1].group)
                self.world.net.cut(back[-1].uid, other.uid, fault.seconds)

    def _glitch(self, fault: Fault, pod: Pod | None) -> None:
        self.world.meshes.glitch(fault.group)

    def _twice(self, fault: Fault, pod: Pod | None) -> None:
        """From now on messages to and from this agent come twice now and then."""
        for connection in pod.connections if pod is not None else ():
            if connection.dialler.host == "control":
                connection.up.twice = connection.down.twice = 0.5

    # --- control ------------------------------------------------------------------------------------------------

    def _kill_coordinator(self, fault: Fault, pod: Pod | None) -> None:
        self._coordinator_dies(fault)

    def _coordinator_dies(self, fault: Fault) -> None:
        if fault.kind == "kill coordinator at record":
            self.core.note("fault", str(fault))
            self.world.faults += 1
        self._touch(*range(self.world.shape.groups))
        if self.world.site.coordinator is not None and self.world.final is None:
            self.world.kill_coordinator()
            self.core.at(self.core.now + fault.seconds, self.world.site.world, self._comes_back)

    def _comes_back(self) -> None:
        if self.world.site.coordinator is None and self.world.final is None:
            self.world.start_coordinator()
