"""The training loop's side of the protocol: steps, micro-batches, the reduction, the commit (design, section 5)."""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from spare.api import wire
from spare.planner import Placement
from spare_runtime import faults as fault_scripts
from spare_runtime.buffers import GradientBuffers
from spare_runtime.config import Environment, read_environment
from spare_runtime.errors import CollectiveFailed, SessionMisuse, SpareError, StateDiverged, Superseded
from spare_runtime.ledger import Ledger
from spare_runtime.line import AgentLine
from spare_runtime.meeting import Meeting
from spare_runtime.membership import Membership
from spare_runtime.parameters import checksum, digest
from spare_runtime.randomness import seed_all, seed_of
from spare_runtime.regroup import Facts, Outcome, outcome

PLAN_DEADLINE = 3600.0
"""Seconds that a group whose collective failed, or that has finished, waits for the operator. Long: the operator may be
away, and a failure meanwhile waits (design, section 4, rule 5)."""


@dataclass(frozen=True)
class Micro:
    """One micro-batch to compute: forward, then `session.backward(loss)`."""

    step: int
    """From 0."""
    shard: int
    index: int
    """Within the shard, 0 to m - 1."""
    samples: range
    """Ordinal numbers of its samples since the start of training; `session.loader` maps them to a shuffled data set."""


class Step:
    """One optimizer step. Iterating gives this group's micro-batches; when it ends, the step is committed."""

    def __init__(self, session: Session, number: int) -> None:
        self.number = number
        self._session = session

    def __iter__(self) -> Iterator[Micro]:
        return self._session._micros(self.number)


class Session:
    """Membership of one training process in a SPARe job.

    Use it as a context manager around the training loop. Between two steps every group holds the same parameters.

    Args:
        model: Its parameters that require a gradient when the session is entered are trained.
        optimizer: One or several; stepped by the session at each commit.
        micro_batch_size: Samples in a micro-batch; gives `Micro.samples` its length.
        on_gradients: Called with the reduced gradient in place, before the optimizers step: the place for clipping.
        seed: Of the job; default: the job file's.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer],
        *,
        micro_batch_size: int = 1,
        on_gradients: Callable[[], None] | None = None,
        seed: int | None = None,
    ) -> None:
        if micro_batch_size < 1:
            raise ValueError(f"micro_batch_size must be at least 1, not {micro_batch_size}")
        self.model = model
        self._optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
        self.micro_batch_size = micro_batch_size
        self._on_gradients = on_gradients
        self._env = read_environment()
        self.seed = self._env.seed if seed is None else seed
        self.committed = 0
        """Steps committed so far."""
        self.loss: float | None = None
        """Mean loss over all micro-batches of the last committed step, the same on every group."""
        self._membership = Membership(self._env.uid)
        self._placement: Placement | None = None
        self._held = self._computed = self._todo = self._again = 0
        self._reduced: int | None = None
        self._hand: Micro | None = None
        self._given = False
        self._ended = False

    # --- entering and leaving ---------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._buffers = GradientBuffers(self.model.parameters())
        self._ledger = Ledger(self._env.directory, self._env.group, self._env.uid)
        self._faults = fault_scripts.Faults(self._env.faults, self._ledger, os.getppid())
        self._store, address = serve_store(self._env)
        self._line = AgentLine(self._env, self._membership.on_plan, self._membership.on_finish)
        self._line.start(str(address))
        self._regroup("the first one")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._finish()
            elif isinstance(error, Exception):
                self._tell_error(error)
        finally:
            if self._membership.meeting is not None:
                self._membership.meeting.drop()

    def _tell_error(self, error: Exception) -> None:
        text = "".join(traceback.format_exception(error))
        self._line.send(
            self._line.report(
                wire.Errored,
                step=self.committed,
                type=type(error).__name__,
                text=str(error),
                traceback=text[-8000:],
                micro=(self._hand.shard, self._hand.index) if self._hand else None,
                ours=isinstance(error, SpareError) and not isinstance(error, SessionMisuse),
            )
        )
        self._line.flush(5.0)

    # --- what the plan says -----------------------------------------------------------------------------------------

    @property
    def plan(self) -> wire.Plan:
        """This group's part of the plan that it runs under."""
        plan = self._membership.plan
        if plan is None:
            raise SessionMisuse("the session has no plan yet: use it inside `with Session(...) as session`")
        return plan

    @property
    def group(self) -> int:
        """This group's number; it never changes."""
        return self._env.group

    @property
    def micro_batches_in_step(self) -> int:
        """N * m: micro-batches in one step over all groups; gradients are averaged over them."""
        return self.plan.placement.groups * self.plan.micro_batches

    def _schedule(self) -> int:
        mask, m = 0, self.plan.micro_batches
        for shard, first, count in self.plan.schedule:
            mask |= ((1 << count) - 1) << (shard * m + first)
        return mask

    # --- the loop ---------------------------------------------------------------------------------------------------

    def steps(self, until: int) -> Iterator[Step]:
        """The steps from the first that is not committed yet to number `until` - 1."""
        while self.committed < until:
            number = self.committed
            yield Step(self, number)
            if self.committed == number:
                raise SessionMisuse(f"the loop left step {number} before all its micro-batches were computed")

    def backward(self, loss: Tensor, **arguments: Any) -> None:
        """Compute the gradient of this micro-batch's mean loss and add it to the step's sum.

        Raises:
            SessionMisuse: outside of a micro-batch, or gradients were thrown away in the middle of a step.
        """
        if self._hand is None:
            raise SessionMisuse("session.backward() outside of `for micro in step`")
        self._buffers.check_attached(empty=self._held == 0 and not self._given)
        loss.backward(**arguments)  # type: ignore[no-untyped-call]
        self._buffers.add_loss(loss)
        self._given = True

    def _micros(self, number: int) -> Iterator[Micro]:
        if number != self.committed:
            raise SessionMisuse(f"step {number} is over; {self.committed} steps are committed")
        half = self._todo.bit_count() // 2
        while self.committed == number:
            if self._membership.must_act:
                self._regroup("")
            elif self._todo:
                if self._todo.bit_count() <= half or half == 0:
                    self._faults.at(number, "compute")
                yield from self._one(number)
            else:
                self._reduce(number)

    def _one(self, number: int) -> Iterator[Micro]:
        bit = (self._todo & -self._todo).bit_length() - 1
        shard, index = divmod(bit, self.plan.micro_batches)
        first = (number * self.micro_batches_in_step + bit) * self.micro_batch_size
        self._enter_phase("compute")
        seed_all(seed_of(self.seed, number, shard, index))
        self._given = False
        self._hand = Micro(number, shard, index, range(first, first + self.micro_batch_size))
        yield self._hand
        if not self._given:
            raise SessionMisuse(f"micro-batch {index} of shard {shard} was not given to session.backward()")
        self._hand = None
        self._given = False
        mask = 1 << bit
        self._again += bool(self._computed & mask)
        self._held |= mask
        self._computed |= mask
        self._todo &= ~mask
        self._line.micros += 1

    def _enter_phase(self, phase: wire.Phase) -> None:
        self._line.phase = phase

    def _reduce(self, number: int) -> None:
        meeting, epoch = self._membership.meeting, self._membership.epoch
        assert meeting is not None
        try:
            meeting.group()
            tensors = self._buffers.fill(unseen=not self._membership.has_seen_newer())
            self._reduced = None  # entering a reduction forgets the last one
            self._ledger.entering(number, epoch, self._held)
            self._enter_phase("reduce")
            meeting.reduce(tensors, lambda: self._faults.at(number, "reduce"))
            self._reduced = epoch
            self._enter_phase("barrier")
            meeting.barrier(lambda: self._faults.at(number, "barrier"))
        except Superseded:
            return  # the plan that did it is waiting
        except CollectiveFailed as error:
            self._suspect(error)
            return
        boundary = self._buffers.all_have_seen()
        self._commit()
        if boundary:
            self._membership.go_to_newest()

    def _commit(self) -> None:
        """Apply the reduced gradient in W. Every member can do the same, whoever dies now."""
        number = self.committed
        self._faults.at(number, "step")
        assert self._reduced is not None
        self.loss = self._buffers.loss() / self.micro_batches_in_step
        with torch.no_grad():
            self._buffers.apply(1.0 / self.micro_batches_in_step)
        if self._on_gradients is not None:
            self._on_gradients()
        for optimizer in self._optimizers:
            optimizer.step()
        self._buffers.clear()
        self._buffers.attach()
        proof = digest(self.model) if self._env.digests else None
        self._ledger.committed(number, self._reduced, self._computed, self._again, proof)
        computed = self._computed.bit_count() + self._again
        self.committed += 1
        self._held = self._computed = self._again = 0
        self._reduced = None
        self._todo = self._schedule()
        self._line.step, self._line.micros = self.committed, 0
        self._enter_phase("compute")
        self._line.send(self._line.report(wire.Committed, step=self.committed, loss=self.loss, computed=computed))

    # --- regroup ----------------------------------------------------------------------------------------------------

    def _suspect(self, error: CollectiveFailed) -> None:
        phase = self._line.phase
        self._membership.failed()
        self._enter_phase("failed")
        if not self._membership.must_act:
            self._line.send(
                self._line.report(
                    wire.Suspect,
                    step=self.committed,
                    phase=phase,
                    error=str(error),
                    unreachable=error.unreachable,
                )
            )
        self._regroup(f"after {error}")

    def _regroup(self, why: str) -> None:
        """Act on the plan at hand, or wait for it, until the members of one plan have met."""
        while True:
            plan = self._membership.next_plan(PLAN_DEADLINE, why)
            began = time.monotonic()
            if self._membership.meeting is not None:
                self._membership.meeting.drop()
            seconds = {"abort": time.monotonic() - began}
            self._line.epoch = plan.epoch
            self._enter_phase("rendezvous")
            env = self._env
            meeting = Meeting(plan, self._store, env.bind, env.rendezvous_timeout, env.collective_timeout)
            self._membership.meet(meeting)
            try:
                result = self._meet(plan, meeting, seconds)
                self._carry_out(result, meeting)
            except Superseded:
                continue
            except CollectiveFailed as error:
                self._membership.failed()
                self._enter_phase("failed")
                self._line.send(
                    self._line.report(
                        wire.Suspect,
                        step=self.committed,
                        phase="rendezvous",
                        error=str(error),
                        unreachable=error.unreachable,
                    )
                )
                why = f"after {error}"
                continue
            self._membership.go_on()
            self._enter_phase("compute")
            self._line.send(
                self._line.report(wire.Running, step=self.committed, seconds=seconds, patches=self._todo.bit_count())
            )
            return

    def _meet(self, plan: wire.Plan, meeting: Meeting, seconds: dict[str, float]) -> Outcome:
        rule = plan.placement
        if self._placement is None:
            ring = rule.ring if rule.ring is not None else tuple(range(rule.groups))
            self._placement = Placement(rule.groups, rule.redundancy, rule.offsets, rule.strategy, ring)
        if plan.admission != plan.origin:
            raise SpareError(f"plan {plan.epoch} admits this group as a joiner, which this version cannot do")
        began = time.monotonic()
        meeting.enter()
        seconds["store"] = time.monotonic() - began
        mine = Facts(
            group=self._env.group,
            committed=self.committed,
            reduced=self._reduced,
            whole=True,
            held=self._held,
            checksum=checksum(self.model.parameters()),
        )
        began = time.monotonic()
        heard = meeting.exchange(mine.to_text())
        self._faults.at(self.committed, "regroup")
        seconds["exchange"] = time.monotonic() - began
        facts = {group: Facts.of_text(text) for group, text in heard.items()}
        return outcome(self._env.group, facts, self._placement, plan.micro_batches, self._schedule())

    def _carry_out(self, result: Outcome, meeting: Meeting) -> None:
        if result.diverged is not None:
            raise StateDiverged(result.diverged)
        if result.align:
            self._align(meeting)
        if result.commit:
            self._commit()
        if not result.held and self._held:
            self._buffers.clear()
            self._held = 0
        self._todo = result.assigned

    def _align(self, meeting: Meeting) -> None:
        """Before the first step: start from the lowest member's parameters, as data-parallel training does."""
        parameters = list(self.model.parameters())
        copies = [p.detach().clone() for p in parameters]  # a broadcast that fails must leave nothing half done
        meeting.broadcast(copies)
        with torch.no_grad():
            for p, copy in zip(parameters, copies, strict=True):
                p.copy_(copy)

    def _finish(self) -> None:
        """After the last step: stay reachable until everybody has committed it."""
        while not self._ended:
            self._enter_phase("done")
            self._line.send(
                self._line.report(wire.Done, step=self.committed, digest=digest(self.model), loss=self.loss)
            )
            if self._membership.wait_for_end(PLAN_DEADLINE):
                self._ended = True
            else:
                self._regroup("after the last step")
        self._line.flush(5.0)


def serve_store(env: Environment) -> tuple[TCPStore, wire.Address]:
    """This process's own rendezvous store, listening on `env.bind` only, on a port that the kernel chose."""
    family = socket.AF_INET6 if ":" in env.bind else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((env.bind, 0))
        listener.listen(1024)
        address = wire.Address(*listener.getsockname()[:2])
        store = TCPStore(
            address.host,
            address.port,
            None,
            True,
            timedelta(seconds=env.collective_timeout),
            wait_for_workers=False,
            master_listen_fd=os.dup(listener.fileno()),
        )
    return store, address
