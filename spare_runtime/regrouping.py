"""Regroup: the members of one plan meet, and go on from what they hold (docs/protocol.md)."""

from __future__ import annotations

import math
from dataclasses import replace

from torch import Tensor

from spare.api import wire
from spare.planner import Placement, WipeOut
from spare_runtime.checkpoint.keeper import LAST_DEADLINE
from spare_runtime.errors import Departed, JobEnded, SessionMisuse, StateDiverged, StateLost
from spare_runtime.legacy import Legacies
from spare_runtime.regroup import Facts, Outcome, outcome
from spare_runtime.standing import FLUSH_DEADLINE, Said
from spare_runtime.transfer import Offer, copied

PLAN_DEADLINE = 3600.0
"""Seconds that a group whose collective failed, or that has finished, waits for the operator. Long: the operator may
be away, and a failure meanwhile waits (docs/protocol.md, rule 5)."""


_ENDED = -1
"""In place of a plan's epoch: the job has ended well."""


class Regrouping(Legacies):
    """How a rank goes from one plan to the next."""

    _owes = False
    """The training state is to be given as soon as the script's own code behind the last commit has run."""
    _stops: wire.Plan | None = None
    """A plan by which this group halts then."""
    _over = False
    """The script has come to the end of its loop over steps: what it does next may change the model."""

    def regroup(self, why: str) -> None:
        """Act on the plan at hand, or wait for one, until the members of one plan have met.

        Raises:
            JobEnded, Departed: there is nothing to go on with.
        """
        while True:
            plan = self._next_plan(why)
            if self._stops is not None:
                return
            self._take_place(plan.group)
            began = self._around.clock()
            self._donor.withdraw()  # before anything of this step may change
            self.may_change()
            self._owes = False
            self._cancel_transfer()
            self.leave()
            seconds = {"abort": self._around.clock() - began}
            self.line.epoch, self.line.phase = plan.epoch, "rendezvous"
            came, _ = self._try(lambda plan=plan: self._begin(plan))  # type: ignore[misc]
            if not (said := self._all_done(came, *self._of_the_step(), regroup=False)):
                why = self._why
                continue
            self._be_alike(said)
            self.inherit(plan)
            self.stand_still()
            came, met = self._try(lambda plan=plan, seconds=seconds: self._meet(plan, seconds))  # type: ignore[misc]
            if not self._all_done(came, regroup=False):
                why = self._why
                continue
            assert met is not None
            self._carry_out(*met)
            self._begun = True
            if plan.halt:  # some have stopped where we are now
                self._halt(plan)
                return
            self.membership.go_on()
            self.line.phase = "compute"
            todo, step = self.training.todo.bit_count(), self.training.committed
            self.line.send(self.line.report(wire.Running, step=step, seconds=seconds, patches=todo))
            return

    def _next_plan(self, why: str) -> wire.Plan:
        """The plan to act on, waiting for it: the newest that any rank of this group has to act on; the end of this
        process if that is what it says."""
        least = 0
        # The first plan waits for nodes, quotas and queues, maybe for days: as long as the agent, which ends this
        # process if nobody asks for it (`agent.wanted`).
        deadline = PLAN_DEADLINE if self.membership.plan is not None else math.inf
        if self.env.spare is not None:
            self._around.say(f"spare: ready, and waits for a place as spare {self.env.spare}")
        while True:
            plan = self.membership.next_plan(deadline, why, least)
            epochs = {epoch for (epoch,) in self._agree(_ENDED if plan is None else plan.epoch)}
            if plan is None or _ENDED in epochs:
                raise JobEnded(f"the job ended before there was a plan{', ' * bool(why)}{why}")
            if len(epochs) == 1:
                break
            least = max(epochs)
        try:
            self.membership.act_on(plan)
        except Departed:
            self.given()
            self._depart(self.line.report(wire.Left, step=self.training.committed))
            raise
        if plan.halt and plan.base != plan.epoch:
            self._halt(plan)
        return plan

    def _halt(self, plan: wire.Plan) -> None:
        """Every member stands at this commit: save it, and end; once the script's own code behind it has run."""
        if self._behind:
            self._stops, self.line.phase = plan, "compute"
            return
        self.line.phase = "stopped"
        saved = self.save(LAST_DEADLINE)
        self._depart(self.line.report(wire.Halted, step=self.training.committed, saved=saved))
        raise Departed(f"halted by plan {plan.epoch}: {plan.reason}")

    def _depart(self, last_words: wire.Up) -> None:
        self.line.phase = "stopped"
        self._donor.withdraw()
        self.may_change()
        self._cancel_transfer()
        self.line.send(last_words)
        self.line.flush(FLUSH_DEADLINE)

    def _begin(self, plan: wire.Plan) -> None:
        """Drop what another admission left behind, or take over the checkpoint that the plan begins with.

        Raises:
            CheckpointDamaged
        """
        if plan.admission != self._admission:
            if self._begun or plan.admission != plan.origin:
                self.training.forget()
            else:
                self.keeper.begin(plan, self.training)
                self.line.step, self.line.phase = self.training.committed, "rendezvous"
            self.training.begins(plan.origin, plan.checkpoint)
            self._admission = plan.admission
        self.training.buffers.expect(plan.placement.groups * plan.micro_batches)

    def _of_the_step(self) -> tuple[int, ...]:
        """Where this rank is, for its siblings: they must be at the same place."""
        training = self.training
        reduced = -1 if training.reduced is None else training.reduced
        # Of the set in L a hash: as a mask it may have tens of thousands of bits.
        return (
            training.whole,
            reduced,
            training.committed,
            training.begun_again,
            hash(training.held),
        )

    def _be_alike(self, said: Said) -> None:
        """The group has the state when all its ranks do: one whose sibling's transfer was cut off loads again."""
        if not all(whole for _, whole, *_ in said):
            if self.training.whole:
                self.training.forget()
            return
        if len({tuple(rest) for _, _, _, *rest in said}) > 1:
            raise StateDiverged(f"the ranks of group {self.env.group} are at different places of the step: {said}")
        if any(reduced < 0 for _, _, reduced, *_ in said):
            self.training.reduced = None  # a sibling has begun to overwrite its part of W: the group holds it no more

    def _meet(self, plan: wire.Plan, seconds: dict[str, float]) -> tuple[Outcome, list[Tensor] | None]:
        """Meet the other groups' ranks of this number. Nothing of this rank's state is changed.

        Returns:
            What is to be done, and the parameters to be taken over, if so.

        Raises:
            Superseded, CollectiveFailed, StateLost, StateDiverged, SessionMisuse
        """
        env, training = self.env, self.training
        limits = env.rendezvous_timeout, env.collective_timeout
        meeting = self._around.meeting(plan, self._store, env.token, env.bind, *limits, env.rank)
        self.membership.meet(meeting)
        began = self._around.clock()
        meeting.enter()
        seconds["store"] = self._around.clock() - began
        began = self._around.clock()
        heard = meeting.exchange(self._facts().to_text())
        self.faults.at(training.committed, "regroup")
        seconds["exchange"] = self._around.clock() - began
        facts = {group: Facts.of_text(text) for group, text in heard.items()}
        try:
            place = self._place(plan.placement)
            result = outcome(env.group, facts, place, plan.micro_batches, self.schedule(), self._skips())
        except WipeOut as error:
            raise StateLost(f"{error}: its hosts that are left have not loaded the training state yet") from error
        if result.wiped_out:
            raise StateLost(f"no member of plan {plan.epoch} has the training state")
        if result.mixed is not None:
            raise SessionMisuse(result.mixed)
        if result.diverged is not None:
            raise StateDiverged(result.diverged)
        copies = None
        if result.align is not None:  # all start from one group's parameters, as data-parallel training does
            copies = training.copies()  # a broadcast that fails must leave nothing half done
            meeting.broadcast(copies, result.align)
        if result.load_from is not None:
            self._from = result.load_from
            address = wire.Address.parse(facts[self._from].serves)
            self._transfer = self._around.transfer(address, env.token, plan.epoch, env.rendezvous_timeout)
        return result, copies

    def _facts(self) -> Facts:
        facts = self.training.facts(self.env.group, str(self._donor.address))
        misfit = facts.whole and facts.reduced is not None and bool(self._misfit)
        return replace(facts, overflown=True) if misfit else facts

    def _place(self, rule: wire.PlacementRule) -> Placement:
        ring, known = rule.ring if rule.ring is not None else tuple(range(rule.groups)), self._placement
        # It is widened in order to fetch, and made anew where all begin again.
        if known is None or (known.offsets, known.ring) != (rule.offsets, ring):
            known = self._placement = Placement(rule.groups, rule.redundancy, rule.offsets, rule.strategy, ring)
        return known

    def _carry_out(self, result: Outcome, copies: list[Tensor] | None) -> None:
        self.may_change()
        if copies is not None:
            self.training.replace(copies)
        if result.commit:
            self._commit()
        if not result.held:
            self.training.drop_held()
        self.training.todo, self.training.skipped = result.assigned, result.skipped
        if result.load_from is not None:  # take part from this step on, with nothing of its own in it
            self.training.committed = self.line.step = result.step
        if result.gives:
            self._owes = True
            if not self._behind:
                self._give()

    def _give(self) -> None:
        self._owes = False
        state = self.training.state()
        self._donor.offer(Offer(self.plan.epoch, copied(state) if self._over else state))
        self.faults.at(self.training.committed, "give")

    def _script_ran(self) -> None:
        """The script's own code behind the last commit has run: a scheduler has made its step, say.

        A state that is given or saved earlier would be one step behind in what the script registered.
        """
        self._behind = False
        if self._stops is not None:
            self._halt(self._stops)
        if self._owes:
            self._give()
