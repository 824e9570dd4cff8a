"""Buckets of gradients: the parts of L that can be reduced while backward still works on the others.

Backward reaches the last parameters first, so the flat buffers hold the parameters in reverse, and the buckets are sent
in that order. All members send the same buckets in the same order; *when* is each member's own business, for a
reduction waits for the last of them anyway. The last bucket, with the elements that ride along, is never sent early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from spare_runtime.places import Flat

_FIRST, _CAP = 1 << 20, 8 << 20
"""Bytes of the first bucket and of the others. Torch's own DDP takes 1 MiB and 25 MiB; smaller ones leave less to be
sent after backward has ended."""


@dataclass(frozen=True)
class Bucket:
    """A range of one flat buffer."""

    flat: int
    start: int
    stop: int
    parameters: tuple[torch.nn.Parameter, ...]


def cut(flats: Sequence[Flat], tail: int) -> list[Bucket]:
    """The flat buffers in buckets, in the order in which they are sent; the elements behind the gradients of the flat
    buffer number `tail` are in the last one."""
    buckets: list[Bucket] = []
    for number in [*(i for i in range(len(flats)) if i != tail), tail]:
        flat = flats[number]
        size, start, offset, parameters = flat.local.element_size(), 0, 0, list[torch.nn.Parameter]()
        for p, view in zip(flat.parameters, flat.views, strict=True):
            if parameters and (offset + view.numel() - start) * size > (_CAP if buckets else _FIRST):
                buckets.append(Bucket(number, start, offset, tuple(parameters)))
                start, parameters = offset, []
            offset += view.numel()
            parameters.append(p)
        buckets.append(Bucket(number, start, flat.local.numel(), tuple(parameters)))
    return buckets


class Early:
    """Watches one backward and says which buckets are complete, in order."""

    def __init__(self, buckets: Sequence[Bucket], send: Callable[[int], None]) -> None:
        """Begin to watch.

        Args:
            buckets: Without the last one.
            send: Called with the number of each bucket as soon as it and those before it are complete.
        """
        self.changed = False
        """A gradient was added to after its bucket had been sent."""
        self._left = [len(b.parameters) for b in buckets]
        self._send, self._next = send, 0
        self._seen: set[torch.nn.Parameter] = set()
        self._handles: list[RemovableHandle] = []
        for number, bucket in enumerate(buckets):
            for p in bucket.parameters:
                self._handles.append(p.register_post_accumulate_grad_hook(self._hook(number)))  # type: ignore[no-untyped-call]

    def _hook(self, number: int) -> Callable[[Tensor], None]:
        def accumulated(p: Tensor) -> None:
            if p in self._seen:  # a graph that reaches a parameter twice; before its bucket is sent nothing is lost
                self.changed |= number < self._next
                return
            self._seen.add(p)  # type: ignore[arg-type]
            self._left[number] -= 1
            while self._next < len(self._left) and self._left[self._next] == 0:
                self._next += 1
                self._send(self._next - 1)

        return accumulated

    def end(self) -> None:
        """Stop watching."""
        while self._handles:
            self._handles.pop().remove()
