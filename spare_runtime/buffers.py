"""The two gradient buffers of a step: L, the local sum, and W, into which L is reduced (design, section 5).

All gradients of one dtype and device lie in one flat buffer, so that a reduction is one call, and `backward` adds
straight into L. L must outlive a failed reduction, hence the second buffer. Two more elements ride at the end of one
of them: 1 at whoever has seen no plan newer than its epoch, and the sum of the losses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from spare_runtime.errors import SessionMisuse

_UNSEEN, _LOSS, TAIL = 0, 1, 2


@dataclass
class _Flat:
    parameters: list[torch.nn.Parameter]
    local: Tensor
    reduced: Tensor
    views: list[Tensor]
    size: int
    """Elements that are gradients; TAIL more may follow."""
    version: int = 0
    """Of `local`, after the last change that the session knows of."""


class GradientBuffers:
    """L and W over the parameters that require a gradient. Memory: twice the size of the gradients."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        kinds: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
        for p in parameters:
            if p.requires_grad:
                kinds.setdefault((p.dtype, p.device), []).append(p)
        if not kinds:
            raise SessionMisuse("the model has no parameter that requires a gradient")
        exact = [k for k in kinds if k[0] in (torch.float32, torch.float64)]
        carrier = exact[0] if exact else None  # the tail needs a dtype that counts and sums well
        self._flats = [self._flat(k, ps, TAIL if k == carrier else 0) for k, ps in kinds.items()]
        if carrier is None:
            device = next(iter(kinds))[1]
            self._flats.append(self._flat((torch.float32, device), [], TAIL))
        self._tail = next(f for f in self._flats if f.local.numel() > f.size)
        self.note_parameters()
        self.attach()

    @staticmethod
    def _flat(kind: tuple[torch.dtype, torch.device], parameters: list[torch.nn.Parameter], tail: int) -> _Flat:
        size = sum(p.numel() for p in parameters)
        local = torch.zeros(size + tail, dtype=kind[0], device=kind[1])
        views, offset = [], 0
        for p in parameters:
            views.append(local[offset : offset + p.numel()].view(p.shape))
            offset += p.numel()
        return _Flat(parameters, local, torch.zeros_like(local), views, size)

    def attach(self) -> None:
        """Let every parameter's gradient be its place in L."""
        for flat in self._flats:
            for p, view in zip(flat.parameters, flat.views, strict=True):
                p.grad = view

    def check_attached(self, empty: bool) -> None:
        """See that nobody replaced the gradients; put them back where nothing is lost by it.

        Args:
            empty: L holds no micro-batch yet.

        Raises:
            SessionMisuse: gradients of micro-batches already computed were thrown away or changed.
        """
        self._check_unchanged(empty)
        for flat in self._flats:
            for p, view in zip(flat.parameters, flat.views, strict=True):
                if p.grad is not view:
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
        self._at = self._parameter_versions()

    def _parameter_versions(self) -> list[int]:
        return [p._version for flat in self._flats for p in flat.parameters]

    def _check_parameters(self, empty: bool) -> None:
        if empty:
            self.note_parameters()
        elif self._at != self._parameter_versions():
            raise SessionMisuse(
                "parameters were changed in the middle of a step (optimizer.step()?): the session steps the optimizers "
                "itself, at each commit, with the sum of all groups"
            )

    def _check_unchanged(self, empty: bool) -> None:
        self._check_parameters(empty)
        if all(flat.local._version == flat.version for flat in self._flats):
            return
        if empty:
            self.clear()
        else:
            raise SessionMisuse(
                "gradients were changed in the middle of a step (zero_grad(set_to_none=False), clipping?): the session "
                "clears them itself, at each commit, and calls `on_gradients` with the sum of all groups"
            )

    def _note_versions(self) -> None:
        for flat in self._flats:
            flat.version = flat.local._version

    def add_loss(self, loss: Tensor) -> None:
        """Add one micro-batch's loss to the sum that is reduced with the gradients."""
        self._tail.local[self._tail.size + _LOSS] += loss.detach().to(self._tail.local)
        self._note_versions()

    def fill(self, unseen: bool, empty: bool = False) -> list[Tensor]:
        """Copy L into W and return W's tensors, to be reduced in place.

        Args:
            unseen: No plan newer than this epoch is known here.
            empty: L holds no micro-batch.

        Raises:
            SessionMisuse: L was changed since the last micro-batch.
        """
        self._check_unchanged(empty)
        self._tail.local[self._tail.size + _UNSEEN] = 1.0 if unseen else 0.0
        self._note_versions()
        for flat in self._flats:
            flat.reduced.copy_(flat.local)
        return [flat.reduced for flat in self._flats]

    def all_have_seen(self) -> bool:
        """Whether every member had seen a plan newer than its epoch when it entered the reduction now in W."""
        return bool(self._tail.reduced[self._tail.size + _UNSEEN].item() == 0.0)

    def loss(self) -> float:
        """Sum of the losses in W."""
        return float(self._tail.reduced[self._tail.size + _LOSS].item())

    def apply(self, scale: float) -> None:
        """Give every parameter the reduced gradient, times `scale`, as its gradient. L is overwritten."""
        for flat in self._flats:
            torch.mul(flat.reduced, scale, out=flat.local)
        self.attach()

    def clear(self) -> None:
        """Empty L."""
        for flat in self._flats:
            flat.local.zero_()
        self._note_versions()
