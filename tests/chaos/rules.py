"""What must always hold (docs/protocol.md), looked at whenever something happens that could break it."""

from __future__ import annotations

from spare.api import wire
from spare.api.checkpoint import Name
from spare.control.plan import Plan
from spare.control.record import read_document
from spare.planner.judge import check
from tests.chaos.core import Core
from tests.chaos.gloo import Collective, Mesh
from tests.chaos.pods import Site
from tests.chaos.training import SimTraining, State
from tests.chaos.worker import SimWorker


class Rules:
    """The invariants, and what has been seen so far. Exactly once is checked by the meshes themselves."""

    def __init__(self, core: Core, site: Site) -> None:
        self.core, self.site = core, site
        self.plans: dict[int, Plan] = {}
        """Every plan that was ever written down."""
        self.histories: dict[int, dict[int, tuple[str, str, str]]] = {}
        """By origin (each restart begins a history) and step: the reduction it was committed from, the parameters after
        it, and who was the first."""
        self.told: dict[str, int] = {}
        """By incarnation: the newest epoch that its agent was told."""
        self.commits = self.handed_on = self.handed_waiting = 0

    def recorded(self, text: str) -> None:
        """A plan is written down: one digest for each epoch, epochs grow, and the judge accepts the schedule."""
        plan, _ = read_document(text)
        known = self.plans.get(plan.epoch)
        if known is None:
            newest = max(self.plans, default=0)
            if plan.epoch != newest + 1:
                raise self.core.violated(f"plan {plan.epoch} is written after plan {newest}")
            problems = check(plan.schedule)
            if problems:
                raise self.core.violated(f"plan {plan.epoch} is no valid plan: {problems}")
            self.plans[plan.epoch] = plan
            self.core.note("site", f"plan {plan.epoch} (base {plan.base}) written: {plan.reason}")
        elif known.digest != plan.digest:
            raise self.core.violated(f"plan {plan.epoch} is written with two digests")

    def sent(self, message: wire.Down) -> None:
        """A plan leaves the coordinator: it has been written down, as it is."""
        if isinstance(message, wire.Plan):
            known = self.plans.get(message.epoch)
            if known is None or known.digest != message.digest:
                raise self.core.violated(f"plan {message.epoch} is told before it is written down")

    def reduced(self, mesh: Mesh, op: Collective) -> None:
        """All have entered a reduction: each is the incarnation that its plan names."""
        plan = self.plans[mesh.epoch]
        for group in mesh.members:
            uid = mesh.seats[group].process.node.host
            if not plan.has(group, uid):
                raise self.core.violated(
                    f"fencing: {uid} is in the reduction of plan {mesh.epoch}, which has not got it"
                )
        self.core.note("mesh", f"step {op.entered[mesh.members[0]].step} of plan {mesh.epoch} is reduced")

    def computed(self, worker: SimWorker, bit: int) -> None:
        """A micro-batch is computed: no live member of this step holds it, that both call a member."""
        mine, step = worker.plan, worker.training.committed
        assert mine is not None
        for pod in self.site.pods:
            other = pod.worker
            if other is None or other is worker or other.process.dead or other.plan is None:
                continue
            held = other.training
            if not (held.whole and held.committed == step and held.held >> bit & 1):
                continue
            if held.begun_again != worker.training.begun_again:
                continue
            here, there = self.plans[mine.epoch], self.plans[other.plan.epoch]
            if here.has(other.plan.group, pod.uid) and there.has(mine.group, worker.env.uid):
                raise self.core.violated(
                    f"computed again: {worker.node.name} computes {bit} of step {step}, which {other.node.name} holds"
                )

    def result(self, worker: SimWorker) -> None:
        """A script comes to the code after its loop: what it would save there is the result."""
        training = worker.training
        name = Name.parse(worker.begun_from) if worker.begun_from else None
        origin, last = training.origin, None
        if name is not None and name.step == worker.steps:
            origin = name.origin  # there was nothing left to do
        last = self.histories.get(origin, {}).get(worker.steps - 1)
        if not training.whole or last is None or training.parameters != last[1]:
            raise self.core.violated(f"{training.name} comes out of its loop with {training.parameters}, not {last}")

    def committed(self, training: SimTraining, bits: str) -> None:
        """A step is committed: everybody who ever does, the dead included, does so from the same bits, in order."""
        step, after = training.committed, training.parameters
        self.handed_on, training.inherited = self.handed_on + training.inherited, 0
        self.handed_waiting, training.inherited_waiting = self.handed_waiting + training.inherited_waiting, 0
        bits_of = self.histories.setdefault(training.origin, {})
        self.commits += 1
        self.core.note(training.name, f"commits step {step}: {after}")
        if step not in bits_of:
            first = self._first(training.origin)
            if step != (max(bits_of) + 1 if bits_of else first):
                there = f"of its history, from step {first}, there are {sorted(bits_of)}"
                raise self.core.violated(f"{training.name} commits step {step}; {there}")
            bits_of[step] = (bits, after, training.name)
        elif bits_of[step][:2] != (bits, after):
            known = bits_of[step]
            raise self.core.violated(
                f"all or none: {training.name} commits step {step} as {bits}, {after}; {known[2]} did as {known[:2]}"
            )

    def _first(self, origin: int) -> int:
        """The step that a history begins with."""
        name = self.plans[origin].checkpoint if origin in self.plans else ""
        return Name.parse(name).step if name else 0

    def saved(self, state: State, name: str) -> None:
        """A checkpoint is begun with: it holds what was committed, and nothing older or newer."""
        told = Name.parse(name)
        known = self.histories.get(told.origin, {}).get(told.step - 1)
        if state.step != told.step or known is None or known[1] != state.parameters:
            raise self.core.violated(f"checkpoint {name} holds step {state.step}, {state.parameters}, not {known}")

    @property
    def steps(self) -> int:
        """Steps committed, in the newest history and what led to it."""
        newest = self.histories[max(self.histories)] if self.histories else {}
        return max(newest, default=-1) + 1
