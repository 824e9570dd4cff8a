"""What the optimizers step: settled when the session is entered, for only of that the groups sum gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from spare.planner.words import counted
from spare_runtime.errors import SessionMisuse


class Stepped:
    """The optimizers' parameters, as they were when the session was entered."""

    def __init__(self, model: torch.nn.Module, optimizers: Iterable[object]) -> None:
        """What has no `param_groups` is not looked into.

        Args:
            model: Those of its parameters that require a gradient now are summed.
            optimizers: Of the session.

        Raises:
            SessionMisuse: they have parameters that the model has not.
        """
        self._model, self._optimizers = model, list(optimizers)
        there = list(self._parameters())
        self._count = len(there)
        self._frozen = [p for p in there if not p.requires_grad]
        self._ours = {id(p) for p in model.parameters() if p.requires_grad}
        strange = sum(p.requires_grad and id(p) not in self._ours for p in there)
        if strange:
            raise SessionMisuse(
                f"the optimizers have {counted(strange, 'parameter')} that the model has not: only its gradients"
                " are summed, and each group would step the others by its own. Put all that is trained into one module"
            )

    def _groups(self) -> Iterator[list[Tensor]]:
        for optimizer in self._optimizers:
            groups: Iterable[dict[str, Any]] = getattr(optimizer, "param_groups", ())
            yield from (group["params"] for group in groups)

    def _parameters(self) -> Iterator[Tensor]:
        return (p for group in self._groups() for p in group)

    def check(self) -> None:
        """Refuse parameters that came too late to be summed: each group would step them by its own gradients alone.

        To be called before each step of the optimizers: it looks at every parameter only where their number has
        changed, else at those that were frozen.

        Raises:
            SessionMisuse: naming them.
        """
        count = sum(map(len, self._groups()))
        if count == self._count and not any(p.requires_grad for p in self._frozen):
            return
        late = {id(p) for p in self._parameters() if p.requires_grad and id(p) not in self._ours}
        if late:
            names = [name for name, p in self._model.named_parameters() if id(p) in late]
            names += [f"{len(late) - len(names)} that the model has not"] if len(names) < len(late) else []
            raise SessionMisuse(
                f"the optimizers have parameters that were added, or made to require a gradient, after the session was "
                f"entered: {', '.join(names)}. What is trained is settled then: of these no gradients are summed"
            )
        self._count = count
