"""L, the local sum, as backward itself leaves it: in the parameters' own gradients.

The first micro-batch of a step finds no gradients, so autograd hands its results over as they are; later ones are added
in place. That is what a plain loop costs: no buffer is emptied, and nothing is copied. In return L is many tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_not

import torch
from torch import Tensor

from spare_runtime.errors import SessionMisuse
from spare_runtime.shards import like, local
from spare_runtime.watch import BENT, REPLACED, ParameterWatch, refuse_strays

Gradients = list[Tensor | None]
"""One for each parameter; None is a gradient of zero."""


class LocalSum(ParameterWatch):
    """Parameters and their gradients; sees that neither is touched in the middle of a step."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        super().__init__(parameters)
        self._parameters = list(parameters)
        self._none: Gradients = [None] * len(self._parameters)
        self._unchanged = [0] * len(self._parameters)
        self.clear()

    def clear(self) -> None:
        """Nothing is held."""
        for p in self._parameters:
            p.grad = None
        self.forget()

    def forget(self) -> None:
        """Nothing is held; what the parameters have as their gradients is no part of L."""
        self.held = self._none
        """What is in L."""
        self._new = False
        """Some of that were handed over by autograd since it was last seen that they do not overlap."""
        self._versions = self._unchanged

    def note(self) -> None:
        """What the parameters have as their gradients now is L."""
        found: Gradients = [p.grad for p in self._parameters]
        if any(map(is_not, found, self.held)):
            found = [g if g is None or g.layout is torch.strided else self._dense(i, g) for i, g in enumerate(found)]
            self._new = True
        self.held, self._versions = found, self._count(found)

    def _dense(self, place: int, sparse: Tensor) -> Tensor:
        """Of an embedding with `sparse=True`, say: what all sum together is not."""
        dense = self._parameters[place].grad = sparse.to_dense()
        return dense

    def _part(self) -> None:
        """Before anything is added to L, see that no gradient lies where another does: of `a.view(-1) + b.view(-1)`
        both parameters get views of one tensor, and what were added to one would be added to both."""
        parts = [(i, local(g) if self._divided else g) for i, g in enumerate(self.held) if g is not None]
        inside, end = list[int](), 0
        for start, size, i in sorted((part.data_ptr(), part.nbytes, i) for i, part in parts):
            if start < end:
                inside.append(i)
            end = max(end, start + size)
        self._copy(inside)
        self._new = False

    def _copy(self, places: list[int]) -> None:
        """Give these gradients memory of their own."""
        for i in places:
            gradient = self.held[i]
            assert gradient is not None
            self._parameters[i].grad = gradient.clone()
        if places:
            self.note()

    def _count(self, gradients: Gradients) -> list[int]:
        if self._divided:
            gradients = [None if g is None else local(g) for g in gradients]
        return [0 if g is None else g._version for g in gradients]

    def check_attached(self, empty: bool) -> None:
        """As `Buffers.check_attached`."""
        self.check_unchanged(empty)
        if any(map(is_not, [p.grad for p in self._parameters], self.held)):
            if not empty:
                raise SessionMisuse(REPLACED)
            refuse_strays(p.grad for p in self._parameters)
            self.clear()
        if self._new:
            self._part()

    def check_unchanged(self, empty: bool) -> None:
        """See that nobody changed parameters or gradients since the last micro-batch. Raises SessionMisuse."""
        self._check_parameters(empty)
        if self.held is not self._none and self._versions != self._count(self.held):
            if not empty:
                raise SessionMisuse(BENT)
            self.clear()

    def add(self, others: Sequence[Tensor | None]) -> None:
        """Add another group's L to this one: this rank's part of each gradient. They may be kept."""
        self._part()
        with torch.no_grad():
            for p, mine, other in zip(self._parameters, self.held, others, strict=True):
                p.grad = mine if mine is not None or other is None else like(p, other)
                if mine is not None and other is not None:
                    local(mine).add_(other)
        self.note()

    # --- in the middle of a backward --------------------------------------------------------------------------------

    def separate(self) -> None:
        """Let no two gradients lie in the same memory (those of parameters that were concatenated do): their changes
        are counted together."""
        self._copy([i for i, g in enumerate(self.held) if g is not None and g.storage_offset()])

    def complete(self, places: range) -> Gradients | None:
        """These gradients, if the backward that runs has added to each of them once, as far as one can see."""
        found: Gradients = []
        for i in places:
            gradient, before = self._parameters[i].grad, self.held[i]
            if gradient is None or gradient.layout is not torch.strided:
                return None
            if before is not None and (gradient is not before or gradient._version != self._versions[i] + 1):
                return None
            found.append(gradient)
        return found

    def versions(self, places: range) -> list[int]:
        """What has become of the gradients, as torch counts their changes, at the last `note`."""
        return self._versions[places.start : places.stop]
