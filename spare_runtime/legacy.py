"""What a group that must leave in the middle of a step holds of it, handed on to another (docs/protocol.md).

The leaver computes no more, and offers its sum with what is in it. The urgent plan that goes on without it names an
heir, which adds that to its own sum before it says what it holds: for everybody else it is as if the heir had computed
it. Only the first plan without the leaver names one, for after it others compute what is missing; and it is given once.
"""

from __future__ import annotations

from spare.api import wire
from spare_runtime.standing import Standing
from spare_runtime.transfer import Donor, Offer

HAND_ON_DEADLINE = 5.0
"""Seconds that a group which offers what it holds waits for a plan, and then for its heir."""
INHERIT_DEADLINE = 5.0
"""Seconds that an heir waits for what it is to take over, while all others wait for it."""
_LOOK_EVERY = 0.005


class Legacies(Standing):
    """Both sides of handing on. Groups of several ranks do not: all ranks would have to take over alike."""

    _legacy: Donor | None = None

    def hand_on(self) -> None:
        """The step will not end in time: offer what is held of it, and wait for a plan. An urgent one goes on without
        this group; after one that keeps it, or none, it goes on with the others."""
        membership, line = self.membership, self.line
        membership.must_hand_on = False
        if not self.training.whole:
            return
        seen = membership.seen_epoch
        donor = self._legacy = self._around.donor(self.env.bind, self.env.token)
        donor.offer(Offer(line.epoch, self.training.legacy()))
        membership.gives = True
        line.send(line.report(wire.Leave, grace=0.0, reason="", serves=str(donor.address)))
        membership.wait_for_news(HAND_ON_DEADLINE, seen)
        if not membership.let_go:  # it is needed after all: what it goes on to change must not leave it
            donor.withdraw()
            membership.gives = False

    def given(self) -> None:
        """Before this process ends: let the heir have what it was promised."""
        if self._legacy is not None:
            self._legacy.gave(HAND_ON_DEADLINE)

    def inherit(self, plan: wire.Plan) -> None:
        """Take over what groups that leave hold of the step in flight. What does not come is computed by others."""
        for legacy in plan.legacies if self.env.ranks == 1 else ():
            address = wire.Address.parse(legacy.serves)
            transfer = self._around.transfer(address, self.env.token, legacy.epoch, INHERIT_DEADLINE)
            until = self._around.clock() + INHERIT_DEADLINE
            while not transfer.wait(_LOOK_EVERY) and self._around.clock() < until and not self.membership.must_act:
                self.line.micros = transfer.received
            self.line.micros = 0
            if transfer.state is None or transfer.error is not None:
                transfer.cancel()
                self._around.say(f"spare: nothing is taken over from group {legacy.group}: {transfer.error or 'late'}")
                continue
            count = self.training.inherit(transfer.state)
            self._around.say(f"spare: {count} micro-batches of group {legacy.group} are taken over")
