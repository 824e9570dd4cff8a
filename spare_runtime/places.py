"""One flat buffer per dtype and device, with a place for each parameter's gradient in it.

Of a distributed parameter (FSDP2, tensor parallelism) it is this rank's part that has a place. A reduction is few calls
then. `GradientPlaces` lets backward write into these places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from spare_runtime.errors import SessionMisuse
from spare_runtime.shards import like, local
from spare_runtime.watch import BENT, REPLACED, ParameterWatch, refuse_strays

Kind = tuple[torch.dtype, torch.device]


@dataclass
class Flat:
    """All gradients of one dtype and device."""

    parameters: list[torch.nn.Parameter]
    buffer: Tensor
    """Gradients, one behind the other."""
    views: list[Tensor]
    """Of `buffer`, one for each parameter, in the shape of this rank's part of it."""
    gradients: list[Tensor]
    """What a parameter can have as its gradient: its view, distributed as the parameter is."""
    size: int
    """Elements that are gradients; more may follow."""
    version: int = 0
    """Of `buffer`, after the last change that the session knows of."""


def by_kind(parameters: Iterable[torch.nn.Parameter]) -> dict[Kind, list[torch.nn.Parameter]]:
    """The parameters that require a gradient, by dtype and device.

    Raises:
        SessionMisuse: there are none.
    """
    kinds: dict[Kind, list[torch.nn.Parameter]] = {}
    for p in parameters:
        if p.requires_grad:
            kinds.setdefault((p.dtype, local(p).device), []).append(p)
    if not kinds:
        raise SessionMisuse("the model has no parameter that requires a gradient")
    return kinds


def flat(kind: Kind, parameters: list[torch.nn.Parameter], tail: int = 0) -> Flat:
    """A buffer of zeros with a place for each of the parameters, and `tail` elements more."""
    size = sum(local(p).numel() for p in parameters)
    buffer = torch.zeros(size + tail, dtype=kind[0], device=kind[1])
    views = views_of(buffer, parameters)
    gradients = [like(p, view) for p, view in zip(parameters, views, strict=True)]
    return Flat(parameters, buffer, views, gradients, size)


def views_of(buffer: Tensor, parameters: Iterable[torch.nn.Parameter]) -> list[Tensor]:
    """The parameters' places in a buffer that begins with them, in the shapes of this rank's parts."""
    views, offset = [], 0
    for shape in (local(p).shape for p in parameters):
        views.append(buffer[offset : offset + shape.numel()].view(shape))
        offset += shape.numel()
    return views


class GradientPlaces(ParameterWatch):
    """Parameters whose gradients are such places; sees that neither is touched in the middle of a step."""

    def __init__(self, flats: list[Flat]) -> None:
        super().__init__(p for each in flats for p in each.parameters)
        self._flats = flats
        self.attach()

    def attach(self) -> None:
        """Let every parameter's gradient be its place."""
        for each in self._flats:
            for p, gradient in zip(each.parameters, each.gradients, strict=True):
                p.grad = gradient

    def clear(self) -> None:
        """Empty the places, and whatever sums there are of them."""
        for each in self._flats:
            each.buffer.zero_()
        self._note_versions()
        self.attach()

    def sums(self) -> list[Tensor]:
        """The tensors of L, which add up to those of another group."""
        return [each.buffer for each in self._flats]

    def add_sums(self, others: Sequence[Tensor]) -> None:
        """Add another group's L to this one."""
        with torch.no_grad():
            for mine, other in zip(self.sums(), others, strict=True):
                mine.add_(other)
        self._note_versions()

    def check_attached(self, empty: bool) -> None:
        """See that nobody replaced the gradients; put them back where nothing is lost by it.

        Args:
            empty: No micro-batch of the step is held yet.

        Raises:
            SessionMisuse: gradients of micro-batches already computed were thrown away or changed.
        """
        if empty and any(each.buffer._version != each.version for each in self._flats):
            refuse_strays(each.buffer for each in self._flats)
        self._check_unchanged(empty)
        for each in self._flats:
            for p, gradient in zip(each.parameters, each.gradients, strict=True):
                if p.grad is not gradient:
                    if not empty:
                        raise SessionMisuse(REPLACED)
                    refuse_strays(p.grad for each in self._flats for p in each.parameters)
                    self.clear()
                    return

    def _check_unchanged(self, empty: bool) -> None:
        self._check_parameters(empty)
        if all(each.buffer._version == each.version for each in self._flats):
            return
        if not empty:
            raise SessionMisuse(BENT)
        self.clear()

    def _note_versions(self) -> None:
        for each in self._flats:
            each.version = each.buffer._version
