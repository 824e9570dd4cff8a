"""What one group has of the training: parameters, optimizers, the step in flight. Knows nothing of other groups."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from spare_runtime.buffers import Buffers, GradientBuffers
from spare_runtime.errors import SessionMisuse
from spare_runtime.exact import ExactBuffers
from spare_runtime.ledger import Ledger
from spare_runtime.parameters import checksum, digest
from spare_runtime.regroup import Facts
from spare_runtime.shards import local, model_state, optimizer_state, taken_apart
from spare_runtime.stepped import Stepped

_AGAIN_LIMIT = 4
"""One time is enough where a micro-batch that is computed again gives the same gradient."""


REDUCTIONS = (GradientBuffers.reduction, ExactBuffers.reduction)


class Steppable(Protocol):
    """What is asked of an optimizer."""

    def step(self) -> object:
        """Update the parameters from their gradients."""


class Stateful(Protocol):
    """What can be registered to travel with the training state: its state holds plain values and tensors."""

    def state_dict(self) -> dict[str, Any]:
        """Its state."""

    def load_state_dict(self, state: dict[str, Any], /) -> object:
        """Take over a state."""


class Training:
    """Model, optimizers, and what has been done of the step in flight.

    Sets of micro-batches are bit masks, bit = shard * m + index.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Iterable[Steppable],
        on_gradients: Callable[[], None] | None,
        ledger: Ledger,
        digests: bool,
        reduction: str = GradientBuffers.reduction,
    ) -> None:
        self.model = model
        self.buffers: Buffers
        if reduction == ExactBuffers.reduction:
            self.buffers = ExactBuffers(model.parameters(), {id(p): name for name, p in model.named_parameters()})
        else:
            self.buffers = GradientBuffers(model.parameters())
        self.begun_again = 0
        """How often the step in flight was begun again, because its sum did not fit the scales."""
        self.whole = True
        """It has the whole training state; a joiner has not until it has loaded."""
        self.committed = 0
        """Steps committed; also the number of the step in flight."""
        self.loss: float | None = None
        self.held = 0
        """In the local sum L."""
        self.todo = 0
        """Still to be computed by this group."""
        self.skipped = 0
        """Left out of the sum of the step in flight, by everybody alike."""
        self.reduced: int | None = None
        """Epoch of the reduction of the step in flight whose complete result is in W."""
        self.registered: dict[str, Stateful] = {}
        self.anchor = (0, 0)
        """(step, samples used by then) from which on every step uses as many samples: the last change of division."""
        self._early: int | None = None
        """Epoch of the reduction that parts of L were sent to already, while its last micro-batch was computed."""
        self._on_accelerator = any(p.device.type != "cpu" for p in model.parameters())
        self._computed = self._again = 0
        self._optimizers = list(optimizers)
        self._stepped = Stepped(model, self._optimizers)
        self._on_gradients = on_gradients
        self._ledger, self._digests = ledger, digests

    def facts(self, group: int, serves: str = "") -> Facts:
        """What this group says of itself in an exchange."""
        buffers, whole = self.buffers, self.whole
        proof = checksum(self.model.parameters(), buffers.scales()) if whole else ""
        again = whole and self.reduced is not None and bool(buffers.overflown())
        return Facts(
            group,
            self.committed,
            self.reduced,
            whole,
            self.held,
            proof,
            serves,
            begun_again=self.begun_again,
            overflown=again,
            reduction=buffers.reduction,
        )

    def forget(self) -> None:
        """Be a joiner: nothing that this process has counts any more."""
        self.drop_held()
        self.whole, self.reduced = False, None
        self.todo = self._computed = self._again = 0

    def state(self) -> dict[str, Any]:
        """All that a joiner needs, at the present step. Parameters and optimizer state are the real ones, not copies:
        they stay as they are until the next commit."""
        return {
            "committed": self.committed,
            "loss": self.loss,
            "model": taken_apart(self.model.state_dict()),
            "kinds": [type(o).__name__ for o in self._optimizers],
            "optimizers": [taken_apart(o.state_dict()) if hasattr(o, "state_dict") else None for o in self._optimizers],
            "registered": {name: copy.deepcopy(each.state_dict()) for name, each in self.registered.items()},
            "random": torch.get_rng_state(),
            "scales": list(self.buffers.scales()),
            "begun_again": self.begun_again,
            "anchor": list(self.anchor),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what another group's `state` gave.

        Raises:
            SessionMisuse: the two scripts registered different things, or have other optimizers.
        """
        names, given = sorted(self.registered), sorted(state["registered"])
        if names != given:
            raise SessionMisuse(f"this script registered {names}, that of the state {given}: it must be the same")
        kinds = [type(o).__name__ for o in self._optimizers]
        before = state.get("kinds", kinds)  # older checkpoints do not tell
        if kinds != before or len(kinds) != len(state["optimizers"]):
            raise SessionMisuse(f"this script has the optimizers {kinds}, that of the state had {before}")
        self.model.load_state_dict(model_state(self.model, state["model"]))
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            if saved is not None:
                optimizer.load_state_dict(optimizer_state(optimizer, saved))  # type: ignore[attr-defined]
        for name, each in self.registered.items():
            each.load_state_dict(state["registered"][name])
        torch.set_rng_state(state["random"])
        self.buffers.take_scales(state["scales"])
        self.begun_again = state["begun_again"]
        self.anchor = (state["anchor"][0], state["anchor"][1])
        self.committed, self.loss, self.whole = state["committed"], state["loss"], True

    def begins(self, origin: int, checkpoint: str) -> None:
        """What follows belongs to the history of that start or restart."""
        self._ledger.begins(origin, checkpoint)

    def add(self, bit: int) -> None:
        """Micro-batch `bit` is in L now."""
        mask = 1 << bit
        self._again += bool(self._computed & mask)
        self.held |= mask
        self._computed |= mask
        self.todo &= ~mask

    def legacy(self) -> dict[str, Any]:
        """What is held of the step in flight, for another group to take over. Not to be changed any more."""
        about = {"committed": self.committed, "begun_again": self.begun_again, "scales": list(self.buffers.scales())}
        return {**about, "held": f"{self.held:x}", "sums": self.buffers.sums()}

    def matches(self, legacy: dict[str, Any]) -> bool:
        """Whether what another group held can be taken over: it is of the same step, and nothing of it is held here."""
        mine = (self.committed, self.begun_again, list(self.buffers.scales()))
        theirs = (legacy["committed"], legacy["begun_again"], legacy["scales"])
        return self.whole and mine == theirs and not int(legacy["held"], 16) & self.held

    def inherit(self, legacy: dict[str, Any]) -> int:
        """Take over what another group held, which `matches`; how many micro-batches."""
        held = int(legacy["held"], 16)
        self.buffers.add_sums(legacy["sums"])
        self.held |= held
        return held.bit_count()

    def drop_held(self) -> None:
        """L belongs to no step that is in flight any more."""
        if self.held:
            self.buffers.clear()
            self.held = 0

    def arm(self, bit: int, epoch: int, send: Callable[[Tensor], None]) -> None:
        """Micro-batch `bit` is the last one: while its gradient is computed, what is complete of L may be sent to the
        reduction of `epoch`. L itself stays as it is, whatever becomes of that."""
        if self._early == epoch:
            return  # the script broke off and begins again: what has been sent cannot be sent twice
        self._early = None

        def sending(tensor: Tensor) -> None:
            if self._early is None:
                self._enter(epoch, self.held | 1 << bit)
                self._early = epoch
            send(tensor)

        self.buffers.arm(sending)

    def disarm(self) -> None:
        """The last micro-batch is computed."""
        self.buffers.disarm()

    def settle(self) -> None:
        """Wait until an accelerator has computed what it was given: that is work, and no wait for others."""
        if self._on_accelerator:
            torch.accelerator.synchronize()

    def entering(self, epoch: int, unseen: bool) -> list[Tensor]:
        """Copy L into W for the reduction of `epoch`; forgets what W held. Returns those of W's tensors that were not
        sent early."""
        if self._early == epoch:
            self._early = None
            return self.buffers.fill(unseen)
        self._early = None
        self.buffers.forget_sent()
        tensors = self.buffers.fill(unseen, empty=not self.held)
        self._enter(epoch, self.held)
        return tensors

    def _enter(self, epoch: int, held: int) -> None:
        self.reduced = None
        self._ledger.entering(self.committed, epoch, held)

    def all_have_seen(self) -> bool:
        """Whether every member had seen a plan newer than its epoch when it entered the reduction now in W."""
        return self.buffers.all_have_seen()

    def digest(self) -> str:
        """Of all parameters."""
        return digest(self.model)

    def commit(self, micro_batches: int, schedule: int, skipped_next: int = 0) -> int:
        """Apply the reduced gradient in W and begin the next step; returns how many micro-batches this group computed.
        To be called where W fits the scales (`must_begin_again`).

        Args:
            micro_batches: N * m: the batch does not shrink with the groups. The sum is divided by as many as are in it,
                all but those skipped: it stays a mean.
            schedule: This group's part of the next step.
            skipped_next: What is left out of the next step's sum.

        Raises:
            SessionMisuse: the optimizers have parameters of which no gradients are summed.
        """
        assert self.reduced is not None
        self._stepped.check()
        counted = micro_batches - self.skipped.bit_count()
        self.loss = self.buffers.loss() / counted
        with torch.no_grad():
            self.buffers.apply(1.0 / counted)
            self.buffers.rescale()
        if self._on_gradients is not None:
            self._on_gradients()
        for optimizer in self._optimizers:
            optimizer.step()
        self.buffers.clear()
        proof = digest(self.model) if self._digests else None
        self._ledger.committed(self.committed, self.reduced, self._computed, self._again, proof, self.skipped)
        computed = self._computed.bit_count() + self._again
        self.committed += 1
        self.held = self._computed = self._again = self.begun_again = 0
        self.reduced, self.todo, self.skipped = None, schedule & ~skipped_next, skipped_next
        return computed

    def must_begin_again(self) -> tuple[str, ...]:
        """Why the reduced gradient in W cannot be applied, the same at whoever holds it; empty: it can."""
        return self.buffers.overflown()

    def begin_again(self) -> None:
        """Begin the step in flight again, with scales that fit what is in W. Each group computes what it held.

        Raises:
            SessionMisuse: it was begun again before, more often than gradients that can be repeated need.
        """
        assert self.reduced is not None
        if self.begun_again >= _AGAIN_LIMIT:
            raise SessionMisuse(
                f"step {self.committed} was begun again {self.begun_again} times, and its sum still does not fit: "
                f"{'; '.join(self.buffers.overflown())}. Computed again, a micro-batch must give the same gradient"
            )
        self._ledger.begun_again(self.committed, self.reduced, self._computed)
        self.buffers.rescale()
        self.buffers.clear()
        self.todo, self.held, self.reduced = self.held, 0, None
        self._computed = self._again = 0
        self.begun_again += 1

    def upcoming(self, schedule: int) -> Iterator[tuple[int, int]]:
        """(step, bit) of what this group will compute, should the plan stay as it is; without end."""
        step, mask = self.committed, self.todo
        while mask or schedule:
            while mask:
                low = mask & -mask
                yield step, low.bit_length() - 1
                mask ^= low
            step, mask = step + 1, schedule

    def copies(self) -> list[Tensor]:
        """The parameters' values (this rank's parts), in tensors of their own."""
        return [local(p).detach().clone() for p in self.model.parameters()]

    def replace(self, values: Iterable[Tensor]) -> None:
        """Take over parameters."""
        with torch.no_grad():
            for p, value in zip(self.model.parameters(), values, strict=True):
                local(p).copy_(value)
        self.buffers.note_parameters()
