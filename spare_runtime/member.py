"""One rank's part in the protocol: its work, the reduction, the commit, the end (docs/protocol.md)."""

from __future__ import annotations

import contextlib
import struct
import traceback
from collections.abc import Iterator

from spare.api import wire
from spare.planner.words import counted
from spare_runtime.checkpoint.keeper import LAST_DEADLINE
from spare_runtime.config import Environment
from spare_runtime.errors import Departed, JobEnded, SessionMisuse, SpareError, clause
from spare_runtime.ledger import Ledger
from spare_runtime.meeting import Meeting
from spare_runtime.micro import Micro
from spare_runtime.regrouping import PLAN_DEADLINE, Regrouping
from spare_runtime.siblings import broke_inside
from spare_runtime.standing import DONE, FLUSH_DEADLINE, Said
from spare_runtime.surroundings import REAL, Surroundings
from spare_runtime.training import Training


class Member(Regrouping):
    """A worker's membership. Its main thread calls everything here; plans arrive through `Membership`."""

    def __init__(self, env: Environment, training: Training, ledger: Ledger, surroundings: Surroundings = REAL) -> None:
        """Connect to the agent, and wait until the first plan's members have met."""
        super().__init__(env, training, ledger, surroundings)
        try:
            self.regroup("to begin with")
        except SpareError as error:  # the session is not entered yet, and so nobody else would tell of it
            self.tell_error(error, None)
            raise

    def regroup(self, why: str) -> None:
        """See Regrouping. Who has not got the state when the job ends has nothing that a script could go on with."""
        try:
            super().regroup(why)
        except JobEnded as error:
            if self.training.whole:
                raise
            raise Departed(f"{error}; this group never had the training state") from error

    # --- a step -----------------------------------------------------------------------------------------------------

    def work(self, number: int) -> Iterator[int]:
        """Give out step `number`'s micro-batches that are this group's, one at a time, until the step is committed.

        Each is a bit number (shard * m + index); asking for the next one says that its gradient is in the local sum.
        """
        training, self._over = self.training, False
        half = training.todo.bit_count() // 2
        self._script_ran()
        while training.committed == number:
            if self._must_act():
                self.regroup("to act on")
            elif training.todo and self.hands_on:
                self.hand_on()
            elif training.todo:
                if training.todo.bit_count() <= max(half, 1):
                    self.faults.at(number, "compute")
                bit = (training.todo & -training.todo).bit_length() - 1
                began = self._around.clock()
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
                self._spent += self._around.clock() - began
                self.line.micros += 1
            else:
                self.reduce()

    def _must_act(self) -> bool:
        """Whether a plan waits to be acted on at once, at any rank of this group; and whether its grace is nearly over:
        each rank hears of both at another moment, and all of them act on both before the same micro-batch."""
        said = self._agree(self.membership.must_act, self.must_hand_on)
        if any(hands_on for _, hands_on in said):
            self.must_hand_on = True
        return any(act for act, _ in said)

    def reduce(self) -> None:
        """Reduce the step in flight and commit it; what fails is answered by a regroup, and the caller looks again."""
        meeting, epoch, step = self.membership.meeting, self.membership.epoch, self.training.committed
        assert meeting is not None
        began = self._around.clock()
        self.training.settle()
        self._spent += self._around.clock() - began
        self.stand_still()
        came, _ = self._try(lambda: self._sum(meeting, epoch, step))
        if not (said := self._all_done(came, *self._of_the_sum(came))):
            return
        self.training.reduced = epoch  # every rank of this group holds W
        boundary = self._take(said)
        came, _ = self._try(lambda: self._pass_barrier(meeting, step))
        said = self._agree(came)
        if any(each == DONE for (each,) in said):  # whoever passed has proved that we all may commit
            self._commit()
            if boundary and came == DONE:
                self.membership.go_to_newest()
        self._answer(said)

    def _sum(self, meeting: Meeting, epoch: int, step: int) -> None:
        meeting.group()
        tensors = self.training.entering(epoch, unseen=not self.membership.has_seen_newer())
        self.line.phase = "reduce"
        meeting.reduce(tensors, lambda: self.faults.at(step, "reduce"))
        if self._transfer is not None:
            self._load(meeting)  # into zeros only: who passes the barrier can commit

    def _pass_barrier(self, meeting: Meeting, step: int) -> None:
        self.line.phase = "barrier"
        meeting.barrier(lambda: self.faults.at(step, "barrier"))

    def _of_the_sum(self, came: int) -> tuple[int, ...]:
        """What siblings must know of the sum in W: have all seen a newer plan, can it be applied, and the loss."""
        if came != DONE:
            return 0, 0, 0
        training = self.training
        seen, misfit = training.all_have_seen(), bool(training.must_begin_again())
        if self.env.ranks == 1:
            return seen, misfit, 0  # there is nobody to tell
        loss = training.buffers.loss() / (self.micro_batches - training.skipped.bit_count())
        return seen, misfit, *struct.unpack("=q", struct.pack("=d", loss))

    def _take(self, said: Said) -> bool:
        """Take note of the siblings' words of `_of_the_sum`; whether all of all groups have seen a newer plan."""
        self._misfit = ""
        if len(said) > 1:
            self._loss = sum(struct.unpack("=d", struct.pack("=q", bits))[0] for *_, bits in said) / len(said)
            misfits = [rank for rank, (_, _, again, _) in enumerate(said) if again]
            self._misfit = f"the sum of rank {misfits[0]} of this group does not fit" if misfits else ""
        return all(seen for _, seen, _, _ in said)

    def begins(self, until: int) -> None:
        """Say so where the checkpoint that the job goes on from leaves none of `until` steps to do."""
        begun, training = self.keeper.begun_from, self.training
        if begun is not None and begun.step == training.committed >= until and self.plan.leader_group == self.env.group:
            self._around.say(
                f"spare: checkpoint {begun.name} has {counted(training.committed, 'step')} already: of "
                f"steps(until={until}) none is left to do"
            )

    def between_steps(self) -> None:
        """The step before is done with, the next one has not begun: the moment to write a checkpoint."""
        plan, training = self.plan, self.training
        if self.keeper.writes(plan) and all(due for (due,) in self._agree(self.keeper.due(plan, training))):
            self.keeper.write(plan, training)
            self.faults.at(training.committed, "save")

    # --- the end ----------------------------------------------------------------------------------------------------

    def arrive(self) -> None:
        """After the last step, before the script goes on: who was admitted at the last commit loads what all have now.

        Plans that took effect with it are acted on now, and the last checkpoint is of this moment: what the script does
        next may change the model.

        Raises:
            Departed: the job ended before this group had it.
        """
        self._over = True
        self._script_ran()
        membership = self.membership
        with contextlib.suppress(JobEnded):
            while self._any(membership.must_act) or not self._loaded_at_the_end():
                self.regroup("after the last step")
        self.keeper.save_now(self.plan, self.training, LAST_DEADLINE, lambda: membership.must_act, wait=False)

    def finish(self) -> None:
        """After the last step: stay reachable until everybody has committed it."""
        self.training.todo = 0
        with contextlib.suppress(JobEnded):  # a joiner may still be met after all have said that they are done
            while not self._ended():
                self.regroup("after the last step")
        self.line.flush(FLUSH_DEADLINE)

    def _ended(self) -> bool:
        """Say that the last step is committed, and wait: for the end, or for a plan."""
        self._script_ran()
        if not self._loaded_at_the_end():
            return False
        line, training = self.line, self.training
        self.save(LAST_DEADLINE, unless=lambda: self.membership.must_act)
        if self._any(self.membership.must_act):
            return False  # others may wait to meet this group; what is being written goes on
        line.phase = "done"
        sha = training.digest()
        line.send(line.report(wire.Done, step=training.committed, digest=sha, loss=training.loss))
        return self._any(self.membership.wait_for_end(PLAN_DEADLINE))

    def _loaded_at_the_end(self) -> bool:
        """A joiner that came after the last step still needs the state; whether it has it now."""
        meeting = self.membership.meeting
        if self._transfer is None or meeting is None:
            return True
        came, _ = self._try(lambda: self._load(meeting))
        return bool(self._all_done(came, regroup=False))

    def tell_error(self, error: Exception | SystemExit, hand: Micro | None) -> None:
        """Tell the coordinator what the training script raised."""
        inside = self.env.ranks > 1 and broke_inside(error)
        if inside:
            self.leave()  # the other groups learn of it through us, at once
        text = "".join(traceback.format_exception(error))
        self.line.send(
            self.line.report(
                wire.Errored,
                step=self.training.committed - self._behind,  # code behind a commit belongs to that step
                type=type(error).__name__,
                text=_text(error, inside),
                traceback=text[-8000:],
                micro=(hand.shard, hand.index) if hand else None,
                ours=isinstance(error, SpareError) and not isinstance(error, SessionMisuse),
                inside=inside,
            )
        )
        self.line.flush(FLUSH_DEADLINE)


def _text(error: Exception | SystemExit, inside: bool) -> str:
    """What is told of an exception; the traceback beside it has all of its text."""
    if isinstance(error, SystemExit):
        return f"the script exited with code {error.code}"
    return clause(str(error)) if inside else str(error)
