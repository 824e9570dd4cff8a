"""One group's part in the protocol: reduce, commit, regroup, end (design, sections 5 and 6)."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator

from spare.api import wire
from spare.planner import Placement, WipeOut
from spare_runtime.checkpoint.keeper import LAST_DEADLINE, Keeper
from spare_runtime.config import Environment
from spare_runtime.errors import (
    CheckpointDamaged,
    CollectiveFailed,
    Departed,
    SessionMisuse,
    SpareError,
    StateDiverged,
    StateLost,
    Superseded,
)
from spare_runtime.faults import Faults
from spare_runtime.ledger import Ledger
from spare_runtime.meeting import Meeting
from spare_runtime.membership import Membership
from spare_runtime.micro import Micro
from spare_runtime.regroup import Facts, Outcome, outcome
from spare_runtime.surroundings import REAL, Surroundings
from spare_runtime.training import Training
from spare_runtime.transfer import Offer, Transfer

PLAN_DEADLINE = 3600.0
"""Seconds that a group whose collective failed, or that has finished, waits for the operator. Long: the operator may
be away, and a failure meanwhile waits (design, section 4, rule 5)."""
FLUSH_DEADLINE = 5.0
_LOOK_EVERY = 0.005


def begun_again(step: int, why: tuple[str, ...]) -> str:
    """Why a step is computed again, for people."""
    more = f", and {len(why) - 1} more" if len(why) > 1 else ""
    return f"spare: step {step} is begun again: {why[0]}{more}"


class Member:
    """A worker's membership. Its main thread calls everything here; plans arrive through `Membership`."""

    def __init__(self, env: Environment, training: Training, ledger: Ledger, surroundings: Surroundings = REAL) -> None:
        """Connect to the agent and wait for the first plan. `surroundings` are replaced by the simulation."""
        self.env = env
        self.training = training
        self._around = around = surroundings
        self.membership = Membership(env.uid, around)
        self.faults = Faults(env.faults, ledger, os.getppid())
        self._placement: Placement | None = None
        self._donor = around.donor(env.bind, env.token)
        self._transfer: Transfer | None = None
        self._from = -1  # the group that the transfer is from
        self._admission: int | None = None
        self._begun = False
        """It has met others: what it has is the job's state, and no longer what its script began with."""
        self._store = around.store(env.bind, env.token)
        self.line = around.line(env, self.membership.on_plan, self.membership.on_finish)
        self.keeper = Keeper(env, clock=around.clock)
        self.keeper.attach(self.line)
        self.line.on_save, self.line.checkpoints = self.keeper.on_save, self.keeper.names()
        self.line.start(str(self._store.address))
        self.regroup("to begin with")

    @property
    def plan(self) -> wire.Plan:
        """This group's part of the plan that it runs under."""
        plan = self.membership.plan
        assert plan is not None
        return plan

    @property
    def micro_batches(self) -> int:
        """N * m: micro-batches of one step, over all groups."""
        return self.plan.placement.groups * self.plan.micro_batches

    def schedule(self) -> int:
        """This group's micro-batches of a step under the present plan, as a bit mask."""
        mask, m = 0, self.plan.micro_batches
        for shard, first, count in self.plan.schedule:
            mask |= ((1 << count) - 1) << (shard * m + first)
        return mask

    def _skips(self) -> dict[int, int]:
        """Micro-batches that the present plan leaves out of the sum, as a bit mask for each step that has some."""
        skips: dict[int, int] = {}
        for step, shard, index in self.plan.skipped:
            skips[step] = skips.get(step, 0) | 1 << shard * self.plan.micro_batches + index
        return skips

    # --- a step -----------------------------------------------------------------------------------------------------

    def work(self, number: int) -> Iterator[int]:
        """Give out step `number`'s micro-batches that are this group's, one at a time, until the step is committed.

        Each is a bit number (shard * m + index); asking for the next one says that its gradient is in the local sum.
        """
        training = self.training
        half = training.todo.bit_count() // 2
        while training.committed == number:
            if self.membership.must_act:
                self.regroup("to act on")
            elif training.todo:
                if training.todo.bit_count() <= max(half, 1):
                    self.faults.at(number, "compute")
                bit = (training.todo & -training.todo).bit_length() - 1
                if (hand := self.line.hand) is not None:
                    hand.take(number, *divmod(bit, self.plan.micro_batches))
                meeting = self.membership.meeting
                if training.todo == 1 << bit and meeting is not None and meeting.connected:
                    training.arm(bit, self.membership.epoch, meeting.send)
                yield bit
                training.disarm()
                training.add(bit)
                if hand is not None:
                    hand.empty()
                self.line.micros += 1
            else:
                self.reduce()

    def reduce(self) -> None:
        """Reduce the step in flight and commit it; what fails is answered by a regroup, and the caller looks again."""
        meeting, epoch, step = self.membership.meeting, self.membership.epoch, self.training.committed
        assert meeting is not None
        try:
            meeting.group()
            tensors = self.training.entering(epoch, unseen=not self.membership.has_seen_newer())
            self.line.phase = "reduce"
            meeting.reduce(tensors, lambda: self.faults.at(step, "reduce"))
            if self._transfer is not None:
                self._load(meeting)  # into zeros only: who passes the barrier can commit
            self.training.reduced = epoch
            self.line.phase = "barrier"
            meeting.barrier(lambda: self.faults.at(step, "barrier"))
        except Superseded:
            return  # the plan that did it is waiting
        except CollectiveFailed as error:
            self._suspect(error)
            self.regroup(f"after {error}")
            return
        boundary = self.training.all_have_seen()
        self._commit()
        if boundary:
            self.membership.go_to_newest()

    def _commit(self) -> None:
        """Every member can do the same, whoever dies now: each holds the whole W of this step."""
        self.faults.at(self.training.committed, "step")
        self._donor.withdraw()
        line = self.line
        if why := self.training.must_begin_again():
            self._around.say(begun_again(self.training.committed, why))
            self.training.begin_again()
            line.micros, line.phase = 0, "compute"
            return
        after = self._skips().get(self.training.committed + 1, 0)
        computed = self.training.commit(self.micro_batches, self.schedule(), after)
        line.step, line.micros, line.phase = self.training.committed, 0, "compute"
        loss = self.training.loss
        line.send(line.report(wire.Committed, step=line.step, loss=loss, computed=computed))

    def _suspect(self, error: CollectiveFailed) -> None:
        self.membership.failed()
        phase, self.line.phase = self.line.phase, "failed"
        self.leave()  # at the first error: who waits on others than the dead one learns of it through us
        if not self.membership.must_act:
            self.line.send(
                self.line.report(
                    wire.Suspect,
                    step=self.training.committed,
                    phase=phase,
                    error=str(error),
                    unreachable=error.unreachable,
                )
            )

    def between_steps(self) -> None:
        """The step before is done with, the next one has not begun: the moment to write a checkpoint."""
        self.keeper.between_steps(self.plan, self.training)

    def save(self, deadline: float) -> bool:
        """Have a checkpoint of the present state before `deadline` seconds are over; whether there is one, as far as
        it is this group's to write. Between two steps only."""
        return self.keeper.save_now(self.plan, self.training, deadline)

    # --- regroup ----------------------------------------------------------------------------------------------------

    def regroup(self, why: str) -> None:
        """Act on the plan at hand, or wait for one, until the members of one plan have met."""
        while True:
            plan = self._next_plan(why)
            began = self._around.clock()
            self._donor.withdraw()  # before anything of this step may change
            self._cancel_transfer()
            if self.membership.meeting is not None:
                self.membership.meeting.drop()
            seconds = {"abort": self._around.clock() - began}
            self.line.epoch, self.line.phase = plan.epoch, "rendezvous"
            env = self.env
            meeting = self._around.meeting(
                plan, self._store, env.token, env.bind, env.rendezvous_timeout, env.collective_timeout
            )
            self.membership.meet(meeting)
            try:
                self._carry_out(self._meet(plan, meeting, seconds), meeting)
            except Superseded:
                continue
            except CollectiveFailed as error:
                self._suspect(error)
                why = f"after {error}"
                continue
            except CheckpointDamaged as error:
                self.membership.failed()
                self.line.phase = "failed"
                self.line.send(self.line.report(wire.Unreadable, name=plan.checkpoint, error=str(error)))
                why = "that begins with another checkpoint"
                continue
            self._begun = True
            if plan.halt:  # some have stopped where we are now
                self._halt(plan)
            self.membership.go_on()
            self.line.phase = "compute"
            todo, step = self.training.todo.bit_count(), self.training.committed
            self.line.send(self.line.report(wire.Running, step=step, seconds=seconds, patches=todo))
            return

    def _next_plan(self, why: str) -> wire.Plan:
        """The plan to act on, waiting for it; the end of this process if that is what it says."""
        try:
            plan = self.membership.next_plan(PLAN_DEADLINE, why)
        except Departed:
            self._depart(self.line.report(wire.Left, step=self.training.committed))
            raise
        if plan.halt and plan.base != plan.epoch:
            self._halt(plan)
        return plan

    def _halt(self, plan: wire.Plan) -> None:
        """Every member stands at this commit: save it, and end."""
        self.line.phase = "stopped"
        saved = self.save(LAST_DEADLINE)
        self._depart(self.line.report(wire.Halted, step=self.training.committed, saved=saved))
        raise Departed(f"halted by plan {plan.epoch}: {plan.reason}")

    def _depart(self, last_words: wire.Up) -> None:
        self.line.phase = "stopped"
        self._donor.withdraw()
        self._cancel_transfer()
        self.line.send(last_words)
        self.line.flush(FLUSH_DEADLINE)

    def _meet(self, plan: wire.Plan, meeting: Meeting, seconds: dict[str, float]) -> Outcome:
        if plan.admission != self._admission:
            if self._begun or plan.admission != plan.origin:
                self.training.forget()
            else:
                self.keeper.begin(plan, self.training)
                self.line.step, self.line.phase = self.training.committed, "rendezvous"
            self.training.begins(plan.origin, plan.checkpoint)
            self._admission = plan.admission
        self.training.buffers.expect(plan.placement.groups * plan.micro_batches)
        began = self._around.clock()
        meeting.enter()
        seconds["store"] = self._around.clock() - began
        began = self._around.clock()
        heard = meeting.exchange(self.training.facts(self.env.group, str(self._donor.address)).to_text())
        self.faults.at(self.training.committed, "regroup")
        seconds["exchange"] = self._around.clock() - began
        facts = {group: Facts.of_text(text) for group, text in heard.items()}
        try:
            result = outcome(
                self.env.group, facts, self._place(plan.placement), plan.micro_batches, self.schedule(), self._skips()
            )
        except WipeOut as error:
            raise StateLost(f"{error}: its hosts that are left have not loaded the training state yet") from error
        if result.load_from is not None:
            self._from = result.load_from
            address = wire.Address.parse(facts[self._from].serves)
            self._transfer = self._around.transfer(address, self.env.token, plan.epoch, self.env.rendezvous_timeout)
        return result

    def _place(self, rule: wire.PlacementRule) -> Placement:
        if self._placement is None or self._placement.offsets != rule.offsets:  # it is widened in order to fetch
            ring = rule.ring if rule.ring is not None else tuple(range(rule.groups))
            self._placement = Placement(rule.groups, rule.redundancy, rule.offsets, rule.strategy, ring)
        return self._placement

    def _carry_out(self, result: Outcome, meeting: Meeting) -> None:
        if result.wiped_out:
            raise StateLost(f"no member of plan {self.plan.epoch} has the training state")
        if result.mixed is not None:
            raise SessionMisuse(result.mixed)
        if result.diverged is not None:
            raise StateDiverged(result.diverged)
        if result.align is not None:  # all start from one group's parameters, as data-parallel training does
            copies = self.training.copies()  # a broadcast that fails must leave nothing half done
            meeting.broadcast(copies, result.align)
            self.training.replace(copies)
        if result.commit:
            self._commit()
        if not result.held:
            self.training.drop_held()
        self.training.todo, self.training.skipped = result.assigned, result.skipped
        if result.load_from is not None:  # take part from this step on, with nothing of its own in it
            self.training.committed = self.line.step = result.step
        if result.gives:
            self._donor.offer(Offer(self.plan.epoch, self.training.state()))
            self.faults.at(self.training.committed, "give")

    def _load(self, meeting: Meeting) -> None:
        """Wait for the training state and take it over.

        Raises:
            Superseded, CollectiveFailed
        """
        transfer = self._transfer
        assert transfer is not None
        self.line.phase = "load"
        while not transfer.wait(_LOOK_EVERY):
            self.line.micros = transfer.received  # progress: who loads for long does not hang
            if meeting.interrupted.is_set():
                raise Superseded("loading the state")
        self._transfer = None
        if transfer.error is not None:
            if meeting.interrupted.is_set():
                raise Superseded("loading the state")
            raise CollectiveFailed("joining", transfer.error, (self._from,))
        self.training.load(transfer.state)
        self.line.micros = 0

    def _cancel_transfer(self) -> None:
        if self._transfer is not None:
            self._transfer.cancel()
            self._transfer = None

    # --- the end ----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """After the last step: stay reachable until everybody has committed it."""
        line, training = self.line, self.training
        training.todo = 0
        while True:
            if not self._loaded_at_the_end():
                continue
            self.save(LAST_DEADLINE)
            line.phase = "done"
            sha = training.digest()
            line.send(line.report(wire.Done, step=training.committed, digest=sha, loss=training.loss))
            if self.membership.wait_for_end(PLAN_DEADLINE):
                break
            self.regroup("after the last step")
        line.flush(FLUSH_DEADLINE)

    def _loaded_at_the_end(self) -> bool:
        """A joiner that came after the last step still needs the state: it says what it ends with."""
        meeting = self.membership.meeting
        if self._transfer is None or meeting is None:
            return True
        try:
            self._load(meeting)
        except (Superseded, CollectiveFailed) as error:
            if isinstance(error, CollectiveFailed):
                self._suspect(error)
            self.regroup("after the last step")
            return False
        return True

    def tell_error(self, error: Exception | SystemExit, hand: Micro | None) -> None:
        """Tell the coordinator what the training script raised."""
        text = "".join(traceback.format_exception(error))
        self.line.send(
            self.line.report(
                wire.Errored,
                step=self.training.committed,
                type=type(error).__name__,
                text=f"the script exited with code {error.code}" if isinstance(error, SystemExit) else str(error),
                traceback=text[-8000:],
                micro=(hand.shard, hand.index) if hand else None,
                ours=isinstance(error, SpareError) and not isinstance(error, SessionMisuse),
            )
        )
        self.line.flush(FLUSH_DEADLINE)

    def leave(self) -> None:
        """Cut the connections to the other groups."""
        if self.membership.meeting is not None:
            self.membership.meeting.drop()
