"""A rank among its siblings and the other groups' ranks: what is needed for a step and for a regroup alike.

The ranks of one group take every decision together, each after what it did with the other groups' ranks of its number
has come to an end, well or not. So they are one member for all others, and all that the protocol says of a member holds
for the group.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, TypeVar

from spare.api import wire
from spare.planner import Placement
from spare_runtime.config import Environment, placed
from spare_runtime.errors import CheckpointDamaged, CollectiveFailed, GroupBroken, RendezvousTimeout, Superseded
from spare_runtime.faults import Faults
from spare_runtime.ledger import Ledger
from spare_runtime.meeting import Meeting
from spare_runtime.membership import Membership
from spare_runtime.surroundings import REAL, Surroundings
from spare_runtime.telling import Commits, begun_again
from spare_runtime.training import Training
from spare_runtime.transfer import Transfer

FLUSH_DEADLINE = 5.0
_LOOK_EVERY = 0.005
DONE: Final = 0
SUPERSEDED: Final = 1
FAILED: Final = 2
"""What came of something done with the other groups."""
Said = list[tuple[int, ...]]
"""What each rank of a group said in an agreement, by rank."""
T = TypeVar("T")


class Standing(ABC):
    """What a rank has to do with others. Its main thread calls everything here; plans arrive through `Membership`."""

    def __init__(self, env: Environment, training: Training, ledger: Ledger, surroundings: Surroundings = REAL) -> None:
        """Connect to the agent and wait for the first plan. `surroundings` are replaced by the simulation."""
        self.env = env
        self.training, self._ledger = training, ledger
        self._around = around = surroundings
        self.membership = Membership(env.uid, around)
        self.faults = Faults(env.faults, ledger, os.getppid(), env.rank)
        self._placement: Placement | None = None
        self._donor = around.donor(env.bind, env.token)
        self._transfer: Transfer | None = None
        self._from = -1  # the group that the transfer is from
        self._admission: int | None = None
        self._begun = False
        """It has met others: what it has is the job's state, and no longer what its script began with."""
        self.siblings = around.siblings(env)
        self._behind = False
        """The script's own code behind the last commit has not run yet."""
        self._spent = 0.0  # seconds of computing for the step in flight
        self._loss: float | None = None
        self._misfit = ""  # why a sibling cannot apply what all hold reduced
        self._why = ""
        self._store = around.store(env.bind, env.token)
        # Before the line: importing its library may take longer than an agent waits for a hello.
        self.keeper = around.keeper(env, env.rank, env.ranks, around.clock)
        self.line = around.line(env, self.membership.on_plan, self.membership.on_finish)
        self._commits = Commits(self.line, around.clock)
        self.keeper.attach(self.line)
        self.line.on_hand_on = self.on_hand_on
        self.line.on_save, self.line.checkpoints = self.keeper.on_save, self.keeper.names()
        self.line.start(str(self._store.address))

    def _take_place(self, group: int) -> None:
        """A spare learns by its first plan whose place it has."""
        if self.env.spare is None:
            return
        self._around.say(f"spare: what waited as spare {self.env.spare} is group {group} now")
        self.env = self.line.env = placed(self.env, group)
        self.keeper.belongs_to(group)
        self._ledger.belongs_to(group)

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

    @abstractmethod
    def on_hand_on(self) -> None:
        """The grace of this group, which was asked to leave, is nearly over. On the line's thread."""

    @abstractmethod
    def regroup(self, why: str) -> None:
        """Act on the plan at hand, or wait for one, until the members of one plan have met."""

    # --- with the siblings ------------------------------------------------------------------------------------------

    def _agree(self, *mine: int) -> Said:
        try:
            return self.siblings.agree(*mine)
        except GroupBroken:
            self.leave()  # the other groups learn of it through us
            self.membership.departs("a rank of this group has gone already")
            raise

    def _any(self, mine: bool) -> bool:
        return any(each for (each,) in self._agree(mine))

    def _try(self, attempt: Callable[[], T]) -> tuple[int, T | None]:
        """Do something with the other groups. That it failed is told at once: siblings may wait for the answer."""
        try:
            return DONE, attempt()
        except Superseded:
            return SUPERSEDED, None
        except CollectiveFailed as error:
            self._suspect(error)
            self._why = f"after {error}"
        except RendezvousTimeout as error:
            if not (self._begun and self.training.whole):
                raise
            self._suspect(CollectiveFailed("the rendezvous", str(error), error.unreachable))
            self._why = f"after {error}"
        except CheckpointDamaged as error:
            self.membership.failed()
            self.line.phase = "failed"
            self.line.send(self.line.report(wire.Unreadable, name=self.plan.checkpoint, error=str(error)))
            self._why = "that begins with another checkpoint"
        return FAILED, None

    def _all_done(self, came: int, *more: int, regroup: bool = True) -> Said:
        """What each rank of this group said of something done with the other groups, if all succeeded; else nothing,
        and it is answered."""
        said = self._agree(came, *more)
        if all(each[0] == DONE for each in said):
            return said
        self._answer(said, regroup=regroup)
        return []

    def _answer(self, said: Said, *, regroup: bool = True) -> None:
        """A failure of one rank is the group's: an urgent plan answers it. Superseded: the plan that did it waits."""
        if all(each[0] != FAILED for each in said):
            return
        if said[self.env.rank][0] != FAILED:
            self.membership.failed()
            self.line.phase = "failed"
            self.leave()
            failed = next(rank for rank, each in enumerate(said) if each[0] == FAILED)
            self._why = f"after a failure of rank {failed} of this group"
        if regroup:
            self.regroup(self._why)

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
        if error.whole != str(error):
            self._around.say(f"spare: {error.whole}")

    def leave(self) -> None:
        """Cut the connections to the other groups."""
        if self.membership.meeting is not None:
            self.membership.meeting.drop()

    # --- what both need -----------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Every member can do the same, whoever dies now: each holds the whole W of this step."""
        self.faults.at(self.training.committed, "step")
        self._donor.withdraw()
        line = self.line
        line.phase = "commit"
        if why := self.training.must_begin_again() or ((self._misfit,) if self._misfit else ()):
            self._around.say(begun_again(self.training.committed, why))
            self.training.begin_again()
            line.micros, line.phase = 0, "compute"
            return
        spent, self._spent = self._spent, 0.0
        after = self._skips().get(self.training.committed + 1, 0)
        computed = self.training.commit(self.micro_batches, self.schedule(), after)
        self._behind = True
        line.step, line.micros, line.phase = self.training.committed, 0, "compute"
        if self._loss is not None:  # each rank's own is that of its part of the group's work
            self.training.loss = self._loss
        ranks = self.plan.placement.groups * self.env.ranks
        self._commits.tell(line.step, self.training.loss, computed, spent, ranks)

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
        what = f"the training state, {transfer.received} bytes, was loaded from group {self._from}"
        self._around.say(f"spare: {what} in {transfer.seconds:.3f} s")
        self.line.micros = 0

    def save(self, deadline: float, unless: Callable[[], bool] = lambda: False) -> bool:
        """Have a checkpoint of the present state before `deadline` seconds are over; whether there is one, as far as
        it is this group's to write. Between two steps only. Not waited for while `unless`."""
        return self.keeper.save_now(self.plan, self.training, deadline, unless)

    def _cancel_transfer(self) -> None:
        if self._transfer is not None:
            self._transfer.cancel()
            self._transfer = None
