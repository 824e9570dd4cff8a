"""What a script must leave alone in the middle of a step, and how it is seen that it did not."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from spare_runtime.errors import SessionMisuse
from spare_runtime.shards import local

REPLACED = (
    "a parameter's .grad was replaced in the middle of a step (zero_grad()?): the session clears gradients itself, at "
    "each commit"
)
BENT = (
    "gradients were changed in the middle of a step (zero_grad(set_to_none=False), clipping?): the session clears them "
    "itself, at each commit, and calls `on_gradients` with the sum of all groups"
)
STRAY = (
    "parameters had gradients before the first session.backward() of the step. Give a loss of several parts to it as "
    "their sum; clear gradients of your own (zero_grad()) before it"
)


def refuse_strays(gradients: Iterable[Tensor | None]) -> None:
    """Gradients that are about to be thrown away must be zeros. Raises SessionMisuse."""
    there = (local(g) if g.layout is torch.strided else g.to_dense() for g in gradients if g is not None)
    if any(bool(g.any()) for g in there):
        raise SessionMisuse(STRAY)


class ParameterWatch:
    """Sees by torch's own counts of changes whether somebody stepped the parameters while a step was in flight."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        parameters = tuple(parameters)
        self._undivided = [p for p in parameters if local(p) is p]
        self._divided = [p for p in parameters if local(p) is not p]
        self.note_parameters()

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
