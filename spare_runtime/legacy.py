"""What a group that must leave in the middle of a step holds of it, handed on to another (docs/protocol.md).

The leaver offers its sum with what is in it. The urgent plan that goes on without it names an heir, which adds that to
its own sum before it says what it holds: for everybody else it is as if the heir had computed it. Only the first plan
without the leaver names one, for after it others compute what is missing; and it is given once.

A sum can be offered while it stands still. From the reduction on, until its commit or a regroup, it does so by itself,
and whoever hears that the grace is nearly over makes the offer: the main thread may wait there for others for longer
than this group has. Between two micro-batches it stops for the offer. Whatever changes the sum withdraws it first.

Each rank of the leaver offers its own sum, and the heir's rank of its number takes that over: all of them, or none.
"""

from __future__ import annotations

from typing import Any

from spare.api import wire
from spare_runtime.config import Environment
from spare_runtime.ledger import Ledger
from spare_runtime.standing import Standing
from spare_runtime.surroundings import REAL, Surroundings
from spare_runtime.training import Training
from spare_runtime.transfer import Donor, Offer

HAND_ON_DEADLINE = 5.0
"""Seconds that a group which offers what it holds waits for a plan, and then for its heir."""
INHERIT_DEADLINE = 5.0
"""Seconds that an heir waits for what it is to take over, while all others wait for it."""
_LOOK_EVERY = 0.005


class Legacies(Standing):
    """Both sides of handing on."""

    def __init__(self, env: Environment, training: Training, ledger: Ledger, surroundings: Surroundings = REAL) -> None:
        """As declared. The line's thread begins to call in here before it returns."""
        self.must_hand_on = False
        """The grace of this group, which was asked to leave, is nearly over."""
        self._passing = surroundings.condition()
        """Held where it is decided whether the sum may be offered, and until it is, or is withdrawn."""
        self._still = False
        """The sum stays as it is until `may_change`."""
        self._waited = -1
        """Epoch in which the main thread has stopped its work for an offer: once in each."""
        self._legacy: Donor | None = None
        super().__init__(env, training, ledger, surroundings)

    # --- who leaves -------------------------------------------------------------------------------------------------

    def on_hand_on(self) -> None:
        """The grace is nearly over: what is held is to be offered, now if it stands still. On the line's thread."""
        with self._passing:
            self.must_hand_on = True
            if self._still:
                self._offer()

    def stand_still(self) -> None:
        """From now on the sum stays as it is until `may_change`, and can be offered."""
        with self._passing:
            self._still = True
            if self.must_hand_on:
                self._offer()

    def may_change(self) -> None:
        """The sum is about to change: no byte of it leaves after this returns."""
        with self._passing:
            self._still = False
            if self._legacy is not None and self.membership.gives:
                self._legacy.withdraw()
                self.membership.gives = False

    def _offer(self) -> None:
        if self.membership.gives or not self.training.whole:
            return
        try:
            self._legacy = self._legacy or self._around.donor(self.env.bind, self.env.token)
        except OSError as error:  # no descriptors: what is held is then lost with this group, as after any loss
            self._around.say(f"spare: what is held cannot be offered: {error}")
            return
        self._legacy.offer(Offer(self.line.epoch, self.training.legacy()))
        self.membership.gives = True
        self.line.send(self.line.report(wire.Leave, grace=0.0, reason="", serves=str(self._legacy.address)))

    @property
    def hands_on(self) -> bool:
        """Whether work is to stop for an offer: under each plan once, for who is needed goes on with the others."""
        return self.must_hand_on and self._waited != self.membership.epoch

    def hand_on(self) -> None:
        """The step will not end in time: offer what is held of it, and wait for a plan. An urgent one goes on without
        this group; after one that keeps it, or none, it goes on with the others. All ranks of the group come here."""
        membership, seen = self.membership, self.membership.seen_epoch
        self._waited = membership.epoch
        if not self.training.whole:
            return
        self.training.settle()
        self.stand_still()
        if membership.gives:
            membership.wait_for_news(HAND_ON_DEADLINE, seen)
        if not self._any(membership.let_go):  # a sibling may have heard of the plan first
            self.may_change()

    def given(self) -> None:
        """Before this process ends: let the heir have what it was promised."""
        if self._legacy is not None and self.membership.gives:
            self._legacy.gave(HAND_ON_DEADLINE)
            self.may_change()

    def _commit(self) -> None:
        self.may_change()
        super()._commit()

    # --- who takes over ---------------------------------------------------------------------------------------------

    def inherit(self, plan: wire.Plan) -> None:
        """Take over what groups that leave hold of the step in flight. What does not come is computed by others."""
        for legacy in plan.legacies:
            given, why = self._fetched(legacy)
            if given is not None and not self.training.matches(given):
                given, why = None, "what it holds is of another step, or is held here as well"
            self.faults.at(self.training.committed, "inherit")
            # No rank has added anything yet, and each would add its part of the same.
            mine = (0, 0) if given is None else (1, hash(int(given["held"], 16)))
            said = self._agree(*mine)
            if given is not None and all(each == mine for each in said):
                count = self.training.inherit(given)
                self._around.say(f"spare: {count} micro-batches of group {legacy.group} are taken over")
            else:
                why = why or "another rank of this group cannot take over its part"
                self._around.say(f"spare: nothing is taken over from group {legacy.group}: {why}")

    def _fetched(self, legacy: wire.Legacy) -> tuple[dict[str, Any] | None, str]:
        """What is given to this rank; or nothing, and why."""
        addresses = [wire.Address.parse(address) for address in legacy.serves.split(",")]
        if len(addresses) != self.env.ranks:
            return None, f"it gives what {len(addresses)} ranks hold, and this group has {self.env.ranks}"
        address = addresses[self.env.rank]
        transfer = self._around.transfer(address, self.env.token, legacy.epoch, INHERIT_DEADLINE)
        until = self._around.clock() + INHERIT_DEADLINE
        while not transfer.wait(_LOOK_EVERY) and self._around.clock() < until and not self.membership.must_act:
            self.line.micros = transfer.received
        self.line.micros = 0
        if transfer.state is None or transfer.error is not None:
            transfer.cancel()
            return None, transfer.error or "late"
        return transfer.state, ""
