"""The two gradient buffers of a step: L, the local sum, and W, into which L is reduced (docs/protocol.md).

L must outlive a failed reduction, hence the second buffer. Two more elements ride along: 1 at whoever has seen no plan
newer than its epoch, and the sum of the losses. `GradientBuffers` sums in the parameters' own dtypes, and `backward`
adds straight into L; `exact.ExactBuffers` sums in fixed point.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from spare_runtime.buckets import Early, cut
from spare_runtime.errors import CollectiveFailed
from spare_runtime.places import GradientPlaces, by_kind, flat
from spare_runtime.shards import local

_UNSEEN, _LOSS, TAIL = 0, 1, 2


class Buffers(GradientPlaces):
    """What a session asks of L and W, however they sum."""

    reduction: str
    """Name of the way of summing: groups that sum in different ways cannot work together."""

    @abstractmethod
    def add_loss(self, loss: Tensor) -> None:
        """The gradient of one micro-batch is complete, and this is its loss: both belong to L now."""

    @abstractmethod
    def fill(self, unseen: bool, empty: bool = False) -> list[Tensor]:
        """Copy L into W and return W's tensors, to be reduced in place; those that were sent early are left out.

        Args:
            unseen: No plan newer than this epoch is known here.
            empty: L holds no micro-batch.

        Raises:
            SessionMisuse: L was changed since the last micro-batch.
            CollectiveFailed: what was sent early is not what L is now. The next reduction will be right.
        """

    @abstractmethod
    def all_have_seen(self) -> bool:
        """Whether every member had seen a plan newer than its epoch when it entered the reduction now in W."""

    @abstractmethod
    def loss(self) -> float:
        """Sum of the losses in W."""

    @abstractmethod
    def apply(self, scale: float) -> None:
        """Give every parameter the reduced gradient, times `scale`, as its gradient."""

    def arm(self, send: Callable[[Tensor], None]) -> None:
        """The next backward is this group's last of the step: parts of W may be sent while it runs. To be ended by
        `disarm`, which is followed by `fill`, or by `arm` or `fill` for another reduction."""

    def disarm(self) -> None:
        """That backward has ended."""

    def forget_sent(self) -> None:
        """What was sent early belongs to a reduction that is over."""

    def expect(self, micro_batches: int) -> None:
        """So many micro-batches, N * m, make a step."""

    def overflown(self) -> tuple[str, ...]:
        """Why what is in W must not be applied and the step be begun again; empty: it may be applied."""
        return ()

    def rescale(self) -> None:
        """Choose the scales of what comes next by what is in W, the same at whoever holds it."""

    def scales(self) -> Sequence[int]:
        """The scales; part of the training state."""
        return ()

    def take_scales(self, scales: Sequence[int]) -> None:
        """Take over another group's scales."""


class GradientBuffers(Buffers):
    """L and W over the parameters that require a gradient. Memory: twice the size of the gradients."""

    reduction = "float"

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        kinds = by_kind(parameters)
        exact = [k for k in kinds if k[0] in (torch.float32, torch.float64)]
        carrier = exact[0] if exact else None  # the tail needs a dtype that counts and sums well
        flats = [flat(k, ps[::-1], TAIL if k == carrier else 0) for k, ps in kinds.items()]
        if carrier is None:
            device = next(iter(kinds))[1]
            flats.append(flat((torch.float32, device), [], TAIL))
        self._at = next(i for i, each in enumerate(flats) if each.local.numel() > each.size)
        self._tail = flats[self._at].local[flats[self._at].size :]
        self._buckets = cut(flats, self._at)
        self._locals = [flats[b.flat].local[b.start : b.stop] for b in self._buckets]
        self._sent = 0
        """Buckets of W that are under way already."""
        self._open = False
        """W was given away to a reduction, and not taken back by `apply`: somebody may write into it still."""
        self._early: Early | None = None
        # What FSDP2 does of its own in backward is not ours to interleave with.
        self._overlaps = all(local(p) is p for each in flats for p in each.parameters)
        self._backwards = 0
        super().__init__(flats)
        self._new_reduced()

    def _new_reduced(self) -> None:
        self._reduced = [torch.empty_like(each.local) for each in self._flats]
        self._parts = [self._reduced[b.flat][b.start : b.stop] for b in self._buckets]
        self._reduced_tail = self._reduced[self._at][self._flats[self._at].size :]

    def add_loss(self, loss: Tensor) -> None:
        self._tail[_LOSS] += loss.detach().to(self._tail)
        self._note_versions()
        self._backwards += 1

    def arm(self, send: Callable[[Tensor], None]) -> None:
        self.forget_sent()
        if self._overlaps and len(self._buckets) > 1:
            self._backwards = 0

            def complete(number: int) -> None:
                self._begin()
                with torch.no_grad():
                    self._parts[number].copy_(self._locals[number])
                self._sent = number + 1
                send(self._parts[number])

            self._early = Early(self._buckets[:-1], complete)

    def _begin(self) -> None:
        if self._sent == 0:
            if self._open:
                self._new_reduced()
            self._open = True

    def disarm(self) -> None:
        if self._early is not None:
            self._early.end()

    def forget_sent(self) -> None:
        self.disarm()
        self._early, self._sent = None, 0

    def fill(self, unseen: bool, empty: bool = False) -> list[Tensor]:
        self._check_unchanged(empty)
        if self._sent and self._early is not None and (self._early.changed or self._backwards > 1):
            self._overlaps = False
            self.forget_sent()
            raise CollectiveFailed(
                "the reduction", "gradients changed after they had been sent; that is not done again"
            )
        self._begin()
        self._tail[_UNSEEN] = 1.0 if unseen else 0.0
        self._note_versions()
        rest = range(self._sent, len(self._parts))
        for number in rest:
            self._parts[number].copy_(self._locals[number])
        self.forget_sent()
        return [self._parts[number] for number in rest]

    def all_have_seen(self) -> bool:
        return bool(self._reduced_tail[_UNSEEN].item() == 0.0)

    def loss(self) -> float:
        return float(self._reduced_tail[_LOSS].item())

    def apply(self, scale: float) -> None:
        """As declared; L is overwritten."""
        for each, reduced in zip(self._flats, self._reduced, strict=True):
            torch.mul(reduced, scale, out=each.local)
        self._open = False
        self.attach()
