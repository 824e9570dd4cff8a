"""Where backward writes: each parameter's gradient is a place in one flat buffer per dtype and device.

Of a distributed parameter (FSDP2, tensor parallelism) it is this rank's part that has a place. A reduction is one call
then, and nobody can replace or bend a gradient unnoticed: that would be a lost micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from spare_runtime.errors import SessionMisuse
from spare_runtime.shards import like, local

Kind = tuple[torch.dtype, torch.device]


@dataclass
class Flat:
    """All gradients of one dtype and device."""

    parameters: list[torch.nn.Parameter]
    local: Tensor
    """The buffer that `backward` adds to."""
    views: list[Tensor]
    """Of `local`, one for each parameter, in the shape of this rank's part of it."""
    gradients: list[Tensor]
    """What each parameter has as its gradient: its view, distributed as the parameter is."""
    size: int
    """Elements that are gradients; more may follow."""
    version: int = 0
    """Of `local`, after the last change that the session knows of."""


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
    shapes = [local(p).shape for p in parameters]
    size = sum(shape.numel() for shape in shapes)
    buffer = torch.zeros(size + tail, dtype=kind[0], device=kind[1])
    views, offset = [], 0
    for shape in shapes:
        views.append(buffer[offset : offset + shape.numel()].view(shape))
        offset += shape.numel()
    gradients = [like(p, view) for p, view in zip(parameters, views, strict=True)]
    return Flat(parameters, buffer, views, gradients, size)


class GradientPlaces:
    """Parameters and the places of their gradients; sees that neither is touched in the middle of a step."""

    def __init__(self, flats: list[Flat]) -> None:
        self._flats = flats
        parameters = [p for each in flats for p in each.parameters]
        self._undivided = [p for p in parameters if local(p) is p]
        self._divided = [p for p in parameters if local(p) is not p]
        self.note_parameters()
        self.attach()

    def attach(self) -> None:
        """Let every parameter's gradient be its place."""
        for each in self._flats:
            for p, gradient in zip(each.parameters, each.gradients, strict=True):
                p.grad = gradient

    def clear(self) -> None:
        """Empty the places, and whatever sums there are of them."""
        for each in self._flats:
            each.local.zero_()
        self._note_versions()

    def sums(self) -> list[Tensor]:
        """The tensors of L, which add up to those of another group."""
        return [each.local for each in self._flats]

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
        self._check_unchanged(empty)
        for each in self._flats:
            for p, gradient in zip(each.parameters, each.gradients, strict=True):
                if p.grad is not gradient:
                    if not empty:
                        raise SessionMisuse(
                            "a parameter's .grad was replaced in the middle of a step (zero_grad()?): the session "
                            "clears gradients itself, at each commit"
                        )
                    self.clear()
                    self.attach()
                    return

    def note_parameters(self) -> None:
        """The parameters are as they are to be while this step's gradients are computed."""
        self._parameters_at = self._parameter_versions()

    def _parameter_versions(self) -> list[int]:
        return [p._version for p in self._undivided] + [local(p)._version for p in self._divided]

    def _check_parameters(self, empty: bool) -> None:
        if empty:
            self.note_parameters()
        elif self._parameters_at != self._parameter_versions():
            raise SessionMisuse(
                "parameters were changed in the middle of a step (optimizer.step()?): the session steps the optimizers "
                "itself, at each commit, with the sum of all groups"
            )

    def _check_unchanged(self, empty: bool) -> None:
        self._check_parameters(empty)
        if all(each.local._version == each.version for each in self._flats):
            return
        if empty:
            self.clear()
        else:
            raise SessionMisuse(
                "gradients were changed in the middle of a step (zero_grad(set_to_none=False), clipping?): the session "
                "clears them itself, at each commit, and calls `on_gradients` with the sum of all groups"
            )

    def _note_versions(self) -> None:
        for each in self._flats:
            each.version = each.local._version
