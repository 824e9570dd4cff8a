"""The two gradient buffers of a step: L, the local sum, and W, into which L is reduced (docs/protocol.md).

L must outlive a failed reduction, hence the second buffer. Two more elements ride along: 1 at whoever has seen no plan
newer than its epoch, and the sum of the losses. `GradientBuffers` sums in the parameters' own dtypes, and L is what
`backward` leaves in their `.grad`; `exact.ExactBuffers` sums in fixed point.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from spare_runtime.buckets import Outposts, cut
from spare_runtime.errors import CollectiveFailed
from spare_runtime.local_sum import Gradients, LocalSum
from spare_runtime.places import Flat, by_kind, flat, views_of
from spare_runtime.shards import local

TAIL = 2
"""Elements that ride along: the vote, then the loss."""
_IN_CACHE = 1 << 20
"""Bytes of which a second pass costs less than a call of torch for each parameter."""


class Buffers:
    """What a session asks of L and W, however they sum."""

    reduction: str
    """Name of the way of summing: groups that sum in different ways cannot work together."""

    # --- L ----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def check_attached(self, empty: bool) -> None:
        """See that nobody replaced the gradients; put them right where nothing is lost by it.

        Args:
            empty: No micro-batch of the step is held yet.

        Raises:
            SessionMisuse: gradients of micro-batches already computed were thrown away or changed.
        """

    @abstractmethod
    def add_loss(self, loss: Tensor) -> None:
        """The gradient of one micro-batch is complete, and this is its loss: both belong to L now."""

    @abstractmethod
    def clear(self) -> None:
        """L holds nothing; the next backward begins it anew."""

    @abstractmethod
    def sums(self) -> list[Tensor]:
        """L as tensors that can be added to another group's L. L must not be changed while they are used."""

    @abstractmethod
    def add_sums(self, others: Sequence[Tensor]) -> None:
        """Add another group's `sums`, which are nobody else's from now on."""

    @abstractmethod
    def note_parameters(self) -> None:
        """The parameters are as they are to be while this step's gradients are computed."""

    # --- W ----------------------------------------------------------------------------------------------------------

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
        """Give every parameter the reduced gradient, times `scale`, as its gradient; one that was frozen has none. To
        be followed by `clear`."""

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
        # The tail needs a dtype that counts and sums well; its buffer is the last one.
        carrier = next((k for k in kinds if k[0] in (torch.float32, torch.float64)), None)
        last = carrier or (torch.float32, next(iter(kinds))[1])
        self._kinds = [(k, kinds.get(k, [])[::-1]) for k in (*(k for k in kinds if k != carrier), last)]
        self._parameters = [p for _, each in self._kinds for p in each]
        self._local = LocalSum(self._parameters)
        self._loss = torch.zeros((), dtype=last[0], device=last[1])
        """Of the micro-batches in L."""
        self._factor = 1.0
        """By which L is multiplied on its way into W: a power of two, so no bit is lost by it."""
        self._multiplier = torch.ones(())
        """The same as a tensor, which torch multiplies by in half the time that a number takes it."""
        self._sent = 0
        """Buckets of W that are under way already."""
        self._marks: list[tuple[Gradients, list[int]]] = []
        """Of each of these: the gradients that were copied, and how often they had been changed by then."""
        self._open = False
        """W was given away to a reduction, and not taken back by `apply`: somebody may write into it still."""
        self._new_reduced()
        self._outposts = Outposts(self._parameters, self._buckets[:-1])
        self._divided = any(local(p) is not p for p in self._parameters)
        # What FSDP2 does of its own in backward is not ours to interleave with.
        self._overlaps = len(self._buckets) > 1 and not self._divided
        self._sending = threading.Lock()

    def _new_flats(self) -> list[Flat]:
        return [*(flat(*each) for each in self._kinds[:-1]), flat(*self._kinds[-1], TAIL)]

    def _new_reduced(self) -> None:
        self._flats = self._new_flats()
        self._buckets = cut(self._flats)
        self._parts = [self._flats[b.flat].buffer[b.start : b.stop] for b in self._buckets]
        self._views = [view for each in self._flats for view in each.views]
        self._gradients = [each.buffer[: each.size] for each in self._flats]
        self._unseen, self._losses = self._flats[-1].buffer[self._flats[-1].size :]
        self._places = [pair for each in self._flats for pair in zip(each.parameters, each.gradients, strict=True)]
        self._factors = [1.0] * len(self._flats)

    # --- L ----------------------------------------------------------------------------------------------------------

    def check_attached(self, empty: bool) -> None:
        self._local.check_attached(empty)

    def add_loss(self, loss: Tensor) -> None:
        self._local.note()
        loss = loss.detach()
        if loss.dim() or loss.device != self._loss.device:
            loss = loss.to(self._loss).reshape(())
        self._loss.add_(loss)

    def clear(self) -> None:
        self._local.clear()
        self._loss.zero_()

    def sums(self) -> list[Tensor]:
        """As declared; copies."""
        flats = self._new_flats()
        views = [view for each in flats for view in each.views]
        for view, gradient in zip(views, self._local.held, strict=True):
            if gradient is not None:
                view.copy_(local(gradient))
        flats[-1].buffer[-1] = self._loss
        return [each.buffer for each in flats]

    def add_sums(self, others: Sequence[Tensor]) -> None:
        pairs = zip(self._kinds, others, strict=True)
        self._local.add([view for (_, each), other in pairs for view in views_of(other, each)])
        self._loss.add_(others[-1][-1])

    def note_parameters(self) -> None:
        self._local.note_parameters()

    # --- W ----------------------------------------------------------------------------------------------------------

    def expect(self, micro_batches: int) -> None:
        """As declared. Dividing by N * m costs a pass over W, unless it is a power of two: then L is divided by it on
        its way into W. (Any other number would round, and sums of whole numbers would depend on who computed what.)"""
        self._factor = 1.0 / micro_batches if micro_batches.bit_count() == 1 else 1.0
        self._multiplier = torch.tensor(self._factor)

    def arm(self, send: Callable[[Tensor], None]) -> None:
        self.forget_sent()
        if self._overlaps:
            self._local.separate()
            self._outposts.begin(lambda: self._look(send))

    def _look(self, send: Callable[[Tensor], None]) -> None:
        """Send the buckets that are complete, in their order."""
        with self._sending:  # a backward over several devices has several threads
            while self._sent < len(self._buckets) - 1:
                places = self._buckets[self._sent].places
                gradients = self._local.complete(places)
                if gradients is None:
                    return
                self._copy(self._sent, gradients)
                self._marks.append((gradients, [g._version for g in gradients if g is not None]))
                self._sent += 1
                send(self._parts[self._sent - 1])

    def disarm(self) -> None:
        self._outposts.end()

    def forget_sent(self) -> None:
        self.disarm()
        self._marks, self._sent = [], 0

    def _copy(self, number: int, gradients: Gradients) -> None:
        """Copy a bucket of L into W; the first one begins a reduction."""
        if number == 0:
            self._begin()
        bucket, part = self._buckets[number], self._parts[number]
        views, whole = self._views[bucket.places.start : bucket.places.stop], list[Tensor]()
        scaled = self._factors[bucket.flat] != 1.0
        with torch.no_grad():
            for view, gradient in zip(views, gradients, strict=True):
                if gradient is None:
                    view.zero_()
                whole.append(view if gradient is None else local(gradient) if self._divided else gradient)
            if scaled and part.nbytes > _IN_CACHE:
                for view, gradient in zip(views, whole, strict=True):
                    torch.mul(gradient, self._multiplier, out=view)
                return
            if views:
                torch._foreach_copy_(views, whole)
            if scaled:
                part.mul_(self._multiplier)

    def _begin(self) -> None:
        if self._open:
            self._new_reduced()
        self._open = True
        # What is small enough already for half precision to lose it is not made smaller.
        self._factors = [1.0 if kind[0] is torch.float16 else self._factor for kind, _ in self._kinds]

    def fill(self, unseen: bool, empty: bool = False) -> list[Tensor]:
        self._local.check_unchanged(empty)
        if any(map(self._has_changed, range(self._sent))):
            self._overlaps = False
            self.forget_sent()
            raise CollectiveFailed(
                "the reduction", "gradients changed after they had been sent; that is not done again"
            )
        rest = range(self._sent, len(self._buckets))
        for number in rest:
            places = self._buckets[number].places
            self._copy(number, self._local.held[places.start : places.stop])
        if unseen:
            self._unseen.fill_(1.0)
        else:
            self._unseen.zero_()
        self._losses.copy_(self._loss)
        self.forget_sent()
        return [self._parts[number] for number in rest]

    def _has_changed(self, number: int) -> bool:
        """Whether somebody added to gradients of this bucket, or replaced them, after it had been sent."""
        places, (gradients, versions) = self._buckets[number].places, self._marks[number]
        now = self._local.held[places.start : places.stop]
        return versions != self._local.versions(places) or any(a is not b for a, b in zip(gradients, now, strict=True))

    def all_have_seen(self) -> bool:
        return bool(self._unseen.item() == 0.0)

    def loss(self) -> float:
        return float(self._losses.item())

    def apply(self, scale: float) -> None:
        """As declared: W is what the parameters have as their gradients then, and L is let go of."""
        for gradients, factor in zip(self._gradients, self._factors, strict=True):
            if scale != factor:
                gradients.mul_(scale / factor)
        for p, gradient in self._places:
            p.grad = gradient if p.requires_grad else None
        self._local.forget()
        self._open = False
