"""The two gradient buffers of a step: L, the local sum, and W, into which L is reduced (design, section 5).

L must outlive a failed reduction, hence the second buffer. Two more elements ride along: 1 at whoever has seen no plan
newer than its epoch, and the sum of the losses. `GradientBuffers` sums in the parameters' own dtypes, and `backward`
adds straight into L; `exact.ExactBuffers` sums in fixed point.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from spare_runtime.places import GradientPlaces, by_kind, flat

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
        """Copy L into W and return W's tensors, to be reduced in place.

        Args:
            unseen: No plan newer than this epoch is known here.
            empty: L holds no micro-batch.

        Raises:
            SessionMisuse: L was changed since the last micro-batch.
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
        flats = [flat(k, ps, TAIL if k == carrier else 0) for k, ps in kinds.items()]
        if carrier is None:
            device = next(iter(kinds))[1]
            flats.append(flat((torch.float32, device), [], TAIL))
        self._reduced = [torch.zeros_like(each.local) for each in flats]
        at = next(i for i, each in enumerate(flats) if each.local.numel() > each.size)
        size = flats[at].size
        self._tail, self._reduced_tail = flats[at].local[size:], self._reduced[at][size:]
        super().__init__(flats)

    def add_loss(self, loss: Tensor) -> None:
        self._tail[_LOSS] += loss.detach().to(self._tail)
        self._note_versions()

    def fill(self, unseen: bool, empty: bool = False) -> list[Tensor]:
        self._check_unchanged(empty)
        self._tail[_UNSEEN] = 1.0 if unseen else 0.0
        self._note_versions()
        for each, reduced in zip(self._flats, self._reduced, strict=True):
            reduced.copy_(each.local)
        return list(self._reduced)

    def all_have_seen(self) -> bool:
        return bool(self._reduced_tail[_UNSEEN].item() == 0.0)

    def loss(self) -> float:
        return float(self._reduced_tail[_LOSS].item())

    def apply(self, scale: float) -> None:
        """As declared; L is overwritten."""
        for each, reduced in zip(self._flats, self._reduced, strict=True):
            torch.mul(reduced, scale, out=each.local)
        self.attach()
