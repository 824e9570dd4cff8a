"""A worker process: the real membership and micro-batch loop, with a training script of one line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

from spare.api import wire
from spare.api.checkpoint import Terms
from spare.api.exit_codes import ExitCode
from spare_runtime.checkpoint.keeper import Keeper
from spare_runtime.config import Environment
from spare_runtime.errors import Departed, SpareError
from spare_runtime.line import Line
from spare_runtime.member import Member
from spare_runtime.surroundings import Surroundings
from tests.chaos.core import Node, Violation
from tests.chaos.gloo import Meshes, SimMeeting
from tests.chaos.keeping import SimKeeper, Vault
from tests.chaos.net import Connection
from tests.chaos.process import Condition, Process, ProcessEnded
from tests.chaos.store import SimDonor, SimStore, SimTransfer
from tests.chaos.training import OnCommit, SimTraining, State


class SimLine(Line):
    """The line to the agent, over a connection that breaks only with one of the two."""

    def __init__(self, worker: SimWorker, *arguments: Any) -> None:
        self._process = worker.process
        super().__init__(*arguments, clock=worker.node.time, leave=worker.process.leave)
        self._connection = worker.connection
        self._beat: Any = None

    def start(self, store: str) -> None:
        """See Line."""
        own = {"store": store, "checkpoints": self.checkpoints}
        hello = self.report(wire.Hello, pid=1, token=self.env.token, **own)
        self._connection.down.put(hello.line())
        self._heartbeat()

    def _heartbeat(self) -> None:
        self.send(self.alive(self._process.node.time()))
        self._process.node.after(self.env.heartbeat, self._heartbeat)

    def send(self, message: wire.Up) -> None:
        """See Line."""
        self._connection.down.put(message.line())

    def flush(self, deadline: float) -> bool:
        """See Line."""
        self._process.sleep(0.001)
        return True

    def heard(self) -> None:
        """The agent said something, or hung up."""
        here = self._connection.up.here
        while here and not self._process.dead:
            line = here.popleft()
            try:
                if line:
                    self.take(line)
                else:
                    self.agent_is_gone("end of file")
            except ProcessEnded:
                return


class SimWorker:
    """One start of the training script."""

    def __init__(
        self,
        meshes: Meshes,
        node: Node,
        env: Environment,
        connection: Connection,
        ended: Callable[[int], None],
        steps: int,
        compute: float,
        on_compute: Callable[[SimWorker, int], None],
        on_commit: OnCommit,
        on_result: Callable[[SimWorker], None],
        lines: list[str],
        vault: Vault | None,
        terms: Terms,
        on_begin: Callable[[State, str], None],
    ) -> None:
        self.meshes, self.node, self.env, self.connection = meshes, node, env, connection
        self.steps, self.compute, self.on_compute, self.on_result = steps, compute, on_compute, on_result
        self.process = Process(meshes.core, node, ended)
        self.training = SimTraining(meshes.core, env.group, node.name, self._committed, lines)
        self.training.waits = lambda: self.line is not None and self.line.phase in ("reduce", "barrier")
        self._vault, self._terms, self._on_begin = vault, terms, on_begin
        self._on_commit = on_commit
        self.member: Member | None = None
        self.line: SimLine | None = None
        self.process.at_end(functools.partial(connection.gone, connection.dialler))
        self.process.start(self._main)

    def _committed(self, training: SimTraining, bits: str) -> None:
        self._on_commit(training, bits)
        self.process.passes("committed")

    @property
    def group(self) -> int:
        """The group whose place it has; the number that it was started with, while it has none."""
        return self.member.env.group if self.member is not None else self.env.group

    @property
    def plan(self) -> wire.Plan | None:
        """The plan that it runs under."""
        return self.member.membership.plan if self.member is not None else None

    def _surroundings(self) -> Surroundings:
        process, stores, keeper = self.process, self.meshes.stores, Keeper
        if self._vault is not None:
            keeper = cast(Any, functools.partial(SimKeeper, self._vault, self._on_begin, process))
        return Surroundings(
            clock=self.node.time,
            condition=lambda: cast(Any, Condition(process)),
            leave=process.leave,
            say=lambda text: self.meshes.core.note(self.node.name, text),
            store=lambda bind, token: cast(Any, SimStore(stores, process)),
            donor=lambda bind, token: cast(Any, SimDonor(stores, process)),
            transfer=cast(Any, functools.partial(SimTransfer, stores, process)),
            line=self._line,
            meeting=cast(Any, functools.partial(SimMeeting, self.meshes, process)),
            keeper=keeper,
        )

    @property
    def begun_from(self) -> str:
        """The checkpoint that its history began with."""
        return self.plan.checkpoint if self.plan is not None else ""

    def _line(self, *arguments: Any) -> Line:
        self.line = SimLine(self, *arguments)
        self.connection.up.on_line = self.line.heard
        return self.line

    def _main(self) -> int:
        """The script: as `Session` does it, but for the tensors."""
        process, training = self.process, self.training
        member: Member | None = None
        try:
            member = self.member = _Member(self)
            member.keeper.agree(self._terms)
            while training.committed < self.steps:
                member.between_steps()
                for bit in member.work(training.committed):
                    process.at = "computing"
                    process.sleep(self.compute)
                    self.on_compute(self, bit)
                    training.sum.add(bit)
                training.scripted += 1
            member.arrive()
            self.on_result(self)
            member.finish()
        except Violation:
            raise
        except Departed as departed:
            self.meshes.core.note(self.node.name, departed.why)
        except Exception as error:
            if not isinstance(error, SpareError):  # a bug: let it be seen as one
                raise
            self.meshes.core.note(self.node.name, f"raises {type(error).__name__}: {error}")
            if member is not None or self.member is not None:
                self.member.tell_error(error, None)  # type: ignore[union-attr]
            return int(ExitCode.USER_ERROR)
        finally:
            if not process.dead and self.member is not None:
                self.member.leave()
        return 0


class _Member(Member):
    """The real one; it is known to its worker while it is still being made."""

    def __init__(self, worker: SimWorker) -> None:
        worker.member = self
        super().__init__(worker.env, worker.training, worker.training.ledger, worker._surroundings())
