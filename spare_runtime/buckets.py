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
    places: range
    """Of its parameters, among those of all flat buffers."""


def cut(flats: Sequence[Flat]) -> list[Bucket]:
    """The flat buffers in buckets, in the order in which they are sent. What follows the gradients of a flat buffer is
    in its last one."""
    buckets: list[Bucket] = []
    place = 0
    for number, flat in enumerate(flats):
        size, start, offset, first = flat.buffer.element_size(), 0, 0, place
        for view in flat.views:
            if place > first and (offset + view.numel() - start) * size > (_CAP if buckets else _FIRST):
                buckets.append(Bucket(number, start, offset, range(first, place)))
                start, first = offset, place
            offset += view.numel()
            place += 1
        buckets.append(Bucket(number, start, flat.buffer.numel(), range(first, place)))
    return buckets


class Outposts:
    """Says in the middle of a backward that some bucket may be complete.

    Hooks at every parameter would cost as much as DDP's whole machinery, so only the first backward that is watched has
    them. It shows which parameter of each bucket comes last, and later ones have a hook at that one. Should backward
    take another way one day, a bucket is found to be complete later than it could be.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], buckets: Sequence[Bucket]) -> None:
        """Nothing is watched yet.

        Args:
            parameters: Of all buckets.
            buckets: Those that may be sent early, in their order.
        """
        self._bucket_of = {parameters[i]: number for number, b in enumerate(buckets) for i in b.places}
        self._posts = list(self._bucket_of)
        self._seen: list[torch.nn.Parameter] = []
        self._learned = False
        self._handles: list[RemovableHandle] = []

    def begin(self, look: Callable[[], None]) -> None:
        """Watch the next backward; `look` is called, on its thread, when a bucket may have become complete."""

        def accumulated(p: Tensor) -> None:
            if not self._learned:
                self._seen.append(p)  # type: ignore[arg-type]
            look()

        self._handles = [p.register_post_accumulate_grad_hook(accumulated) for p in self._posts if p.requires_grad]  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """Stop watching."""
        while self._handles:
            self._handles.pop().remove()
        if self._seen:
            self._posts = list({self._bucket_of[p]: p for p in self._seen}.values())
            self._seen, self._learned = [], True
