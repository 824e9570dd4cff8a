"""One job in the simulated world: built from a seed, run to its end, and judged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spare.api.checkpoint import Terms
from spare.api.exit_codes import ExitCode
from spare.api.ledger import audit
from spare.api.reasons import EventReason
from spare.api.spec import OnWipeOut
from spare.control.config import Config
from spare.coordinator.actor import Coordinator
from spare.coordinator.observe import Event, Snapshot
from spare_runtime.config import Environment
from tests.chaos.core import Core, Node
from tests.chaos.gloo import Meshes
from tests.chaos.keeping import Vault
from tests.chaos.net import Connection, Net
from tests.chaos.pods import TOKEN, Pod, Site
from tests.chaos.rules import Rules
from tests.chaos.store import Stores
from tests.chaos.worker import SimWorker

JOB = "job/1"
LIMIT = 400.0
"""Virtual seconds after which a job that has not ended hangs: every wait of it is shorter."""
HEARTBEAT, DEAD_AFTER, HANG_AFTER = 1.0, 4.0, 20.0
RENDEZVOUS, COLLECTIVE = 30.0, 60.0


@dataclass(frozen=True)
class Shape:
    """A job."""

    groups: int = 4
    redundancy: int = 2
    micro_batches: int = 2
    steps: int = 6
    compute: float = 0.03
    """Seconds of one micro-batch."""
    replace: bool = True
    spares: int = 0
    restart: bool = False
    """A wipe-out is answered by a restart."""
    period: float | None = None
    """Seconds between two checkpoints; None: there are none."""
    overflows: float = 0.0
    """How probable it is that a sum does not fit its scales."""
    refuse_starts: float = 0.0
    """How probable it is that a group cannot be started."""

    @property
    def config(self) -> Config:
        """For the coordinator."""
        return Config(
            JOB,
            self.groups,
            self.redundancy,
            self.micro_batches,
            heartbeat=HEARTBEAT,
            dead_after=DEAD_AFTER,
            hang_after=HANG_AFTER,
            replace=self.replace,
            spares=self.spares if self.replace else 0,
            on_wipe_out=OnWipeOut.RESTART if self.restart else OnWipeOut.FAIL,
            checkpoint="/vault" if self.period is not None else None,
            checkpoint_period=self.period,
        )


@dataclass(frozen=True)
class Verdict:
    """How a run ended."""

    violation: str | None
    exit_code: int | None
    steps: int
    masked: int
    events: int
    seconds: float
    """Virtual."""
    faults: int
    restarts: int
    rejoined: int
    handed_on: int
    """Sums of groups that could not wait for the step's end, taken over by another."""
    handed_waiting: int
    """Those that were offered in a reduction or barrier."""


class _Loud(logging.Handler):
    """What the coordinator survives by telling its log of a defect is a violation here."""

    def __init__(self, core: Core) -> None:
        super().__init__(logging.ERROR)
        self._core = core

    def emit(self, record: logging.LogRecord) -> None:
        """See Handler."""
        error = record.exc_info[1] if record.exc_info else None
        self._core.violated(f"{record.getMessage()}: {error!r}")


_LOG = logging.getLogger("spare.coordinator")


class World:
    """Everything of one run."""

    def __init__(self, seed: int, shape: Shape, trace: bool = False) -> None:
        self.core = core = Core(seed, trace)
        self.shape = shape
        self.vault = Vault() if shape.period is not None else None
        self._loud = _Loud(core)
        _LOG.addHandler(self._loud)
        self.net = Net(core)
        self.meshes = Meshes(Stores(self.net), shape.groups * shape.micro_batches)
        self.meshes.overflows = shape.overflows
        env = {
            "SPARE_HEARTBEAT": str(HEARTBEAT),
            "SPARE_DEAD_AFTER": str(DEAD_AFTER),
            "SPARE_COLLECTIVE_TIMEOUT": str(COLLECTIVE),
            "SPARE_RENDEZVOUS_TIMEOUT": str(RENDEZVOUS),
        }
        self.site = Site(self.meshes, JOB, shape.groups, env, self._start_worker)
        self.site.refuse_starts = shape.refuse_starts
        self.rules = Rules(core, self.site)
        self.site.on_record = self.rules.recorded
        self.meshes.on_reduced = self.rules.reduced
        self.coordinators = 0
        self.coordinator: Coordinator | None = None
        self.final: Snapshot | None = None
        self.touched: set[int] = set()
        """Groups that something was done to."""
        self.asked: set[int] = set()
        """Groups that were asked to leave."""
        self.parted = False
        """Some groups could not reach each other for longer than they wait."""
        self.faults = self.rejoined = 0
        self.on_point: Callable[[SimWorker, str], None] | None = None

    # --- building -----------------------------------------------------------------------------------------------

    def _start_worker(self, pod: Pod, node: Node, env: Environment, connection: Connection) -> SimWorker:
        shape = self.shape
        worker = SimWorker(
            self.meshes,
            node,
            env,
            connection,
            pod.worker_ended,
            shape.steps,
            shape.compute,
            self.rules.computed,
            self.rules.committed,
            self.rules.result,
            pod.lines,
            self.vault,
            Terms(shape.groups, shape.micro_batches, 1, 0),
            self.rules.saved,
        )
        if self.on_point is not None:
            hook = self.on_point
            worker.process.on_point = lambda point: hook(worker, point)
        return worker

    def start_coordinator(self) -> None:
        """A coordinator comes (back), and reads what was recorded."""
        self.coordinators += 1
        node = Node(self.core, f"coord-{self.coordinators}", "control")
        self.site.coordinator = node
        self.core.at(self.core.now, node, self._begin, (node,))

    def _begin(self, node: Node) -> None:
        coordinator = self.coordinator = Coordinator(
            self.shape.config,
            self.site,
            token=TOKEN,
            transport=self.site,
            observers=(self,),
            clock=node.time,
            wall=node.time,
            recorded=self.site.document,
            incarnation=node.name,
        )
        tell = coordinator._sent

        def sent(group: int, pod: int, message: Any) -> None:
            self.rules.sent(message)
            tell(group, pod, message)

        coordinator._sent = sent  # type: ignore[method-assign]
        node.loop.create_task(self._conduct(node, coordinator))

    async def _conduct(self, node: Node, coordinator: Coordinator) -> None:
        try:
            self.final = await coordinator.run()
        except Exception as error:
            raise self.core.violated(f"{node.name} crashed: {error!r}") from error

    def kill_coordinator(self) -> None:
        """SIGKILL: its connections close, its record stays."""
        node = self.site.coordinator
        if node is None or node.dead or self.final is not None:
            return
        node.die()
        self.site.coordinator = None
        self.core.note(node.name, "killed")
        for pod in self.site.pods:
            for connection in pod.connections:
                if connection.dialler is node:
                    connection.gone(node)

    # --- observer -----------------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """See Observer."""
        self.rejoined += event.reason == EventReason.GROUP_REJOINED
        self.core.note("control", f"{event.reason}: {event.text.splitlines()[0]}")

    def state(self, snapshot: Snapshot) -> None:
        """See Observer."""

    # --- a run --------------------------------------------------------------------------------------------------

    def run(self) -> Verdict:
        """Until the job has ended or a rule is broken."""
        core = self.core
        self.start_coordinator()
        core.run(lambda: self.final is not None, LIMIT)
        violation = str(core.broken) if core.broken is not None else self._judge()
        if violation is not None and core.log is not None and core.broken is None:
            core.note("world", f"VIOLATION {violation}")
        final = self.final
        verdict = Verdict(
            violation,
            final.exit_code if final else None,
            self.rules.steps,
            final.masked if final else 0,
            core.events,
            core.now,
            self.faults,
            final.restarts if final else 0,
            self.rejoined,
            self.rules.handed_on,
            self.rules.handed_waiting,
        )
        self.close()
        return verdict

    def close(self) -> None:
        """Nothing of this run acts any more."""
        self.core.close()
        _LOG.removeHandler(self._loud)
        for pod in self.site.pods:
            if pod.worker is not None:
                pod.worker.process.bury()

    def _judge(self) -> str | None:
        """What is wrong with a run that broke no rule on its way."""
        if self.final is None:
            return f"the job hangs: {self._waits()}"
        code, verdict = self.final.exit_code, self.final.verdict.splitlines()[0]
        found = audit(
            {pod.uid: pod.lines for pod in self.site.pods if pod.worker is not None},
            self.shape.groups,
            self.shape.micro_batches,
        )
        if found.problems or found.lost or found.doubled:
            return f"the ledgers are not exact: {'; '.join(found.problems)}"
        if found.repeated:
            return f"{found.repeated} micro-batches were computed again"
        if code == ExitCode.COMPLETE:
            if found.steps != self.shape.steps:
                return f"complete after {found.steps} of {self.shape.steps} steps"
            return None
        if code == ExitCode.WIPE_OUT:
            return self._unjust()
        if code == ExitCode.SIGTERM and self.asked and (self._all_touched() or self._unjust() is None):
            return None  # whoever was left was asked to leave: all stop after the same step, as the rules have seen
        if code == ExitCode.STALLED and "no checkpoint can be read by all" in verdict and self.vault is not None:
            return None if set(self.vault.kept) <= self.vault.damaged else verdict
        if code == ExitCode.STALLED and "had not stopped" in verdict and self.asked:
            return None  # the grace was too short to stop in good order
        late = code == ExitCode.STALLED and "not ready after" in verdict
        if late and self.net.vanished and not self.rules.steps:
            return None  # a host that vanished while the job started, and nothing told of it: the start has a deadline
        if code == ExitCode.STALLED and "RendezvousTimeout" in verdict and not self.rules.steps and self.parted:
            return None  # a job whose groups cannot reach each other when it starts says so, and ends
        return f"the job ended with {code}: {verdict}"

    def _all_touched(self) -> bool:
        return self.touched >= set(range(self.shape.groups))

    def _unjust(self) -> str | None:
        """A wipe-out is legitimate where all hosts of a shard were hit."""
        plan = self.rules.plans[max(self.rules.plans)]
        for row in plan.schedule.placement.host_table:
            if set(row) <= self.touched:
                return None
        return f"a wipe-out though only groups {sorted(self.touched)} were touched"

    def _waits(self) -> str:
        parts = []
        for pod in self.site.pods:
            if pod.worker is not None and not pod.worker.process.dead:
                worker = pod.worker
                plan = worker.plan.epoch if worker.plan else 0
                parts.append(
                    f"{pod.uid} in {worker.process.at!r} of plan {plan}, step {worker.training.committed}"
                    f"{', frozen' if worker.node.frozen else ''}"
                )
        state = self.coordinator.state if self.coordinator is not None else None
        groups = "; ".join(f"{g.group}: {g.state.value} {g.uid} {g.reason}" for g in state.groups) if state else ""
        plan_epoch = state.plan.epoch if state and state.plan else 0
        return f"{'; '.join(parts) or 'no worker lives'}; coordinator in plan {plan_epoch}: {groups}"
