"""L and W in fixed point: sums of integers, so they depend neither on an order nor on who computed what.

Each micro-batch's gradient is computed on its own, rounded to whole multiples of a quantum, a power of two, and added
to L in 64 bits. A parameter has one quantum for a whole step. It follows from the largest element that a micro-batch's
gradient of that parameter had in the last step, which all members know: a histogram of these magnitudes is reduced with
the sums. The same histogram tells everybody alike that a quantum did not fit, whether some element was too large for it
or all were so small that too little is left of them: then nobody applies W, and all begin the step again with the right
one. Range, error and cost: docs/exact-mode.md.

With B = 62 - log2(N * m) bits for a micro-batch, N * m of them cannot overflow 64 bits, whatever their signs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from spare_runtime.buffers import Buffers
from spare_runtime.errors import SessionMisuse
from spare_runtime.exact_loss import ELEMENTS as LOSS
from spare_runtime.exact_loss import add as add_to_loss
from spare_runtime.exact_loss import total as total_loss
from spare_runtime.places import GradientPlaces, by_kind, flat

_WIDTH = 4
"""Exponents that share a slot of the histogram, and so the granularity of the quantum."""
_ROOM = 3
"""Slots between the largest element of the last step and the largest that can be summed in the next: a factor of 2**12
at least by which gradients may grow from one step to the next."""
_KEPT = 28
"""Bits that the largest element of a gradient keeps at least, where there are so many (float32 has 24)."""
_FIRST = 12
"""Exponent of the elements that can be summed in the first step; chosen anew by what the step shows."""
_BITS = 62
_CHUNK = 1 << 15
"""Elements that are rounded at a time: they stay in the processor's cache meanwhile."""
_LOWEST = {torch.float64: -1073, torch.float32: -148, torch.bfloat16: -148, torch.float16: -148}
"""Exponent (as frexp gives it) of a dtype's smallest number; half precision is scaled in float32."""
_HIGHEST = {torch.float64: 1024, torch.float32: 128, torch.bfloat16: 128, torch.float16: 128}


@dataclass
class _Tensor:
    """One parameter's gradient: where it lies, where its histogram lies, and what it is called for people."""

    pieces: list[tuple[Tensor, Tensor]]
    """Of the place that backward writes to, and of L."""
    dtype: torch.dtype
    first: int
    """Of its histogram, in the tail: a slot for each magnitude, one for gradients with inf or NaN, one for zeros."""
    slots: int
    at: slice
    """Its elements of L and W."""
    place: Tensor
    name: str

    def slot(self, exponent: int) -> int:
        """Of elements with this exponent, as frexp gives it."""
        return (exponent - _LOWEST[self.dtype]) // _WIDTH

    def slot_of(self, magnitudes: list[float]) -> int:
        """Of a gradient whose pieces have these largest magnitudes: the last one for zeros."""
        if not all(map(math.isfinite, magnitudes)):
            return self.slots
        largest = max(magnitudes)
        return self.slot(math.frexp(largest)[1]) if largest else self.slots + 1

    def top(self, slot: int) -> int:
        """Elements of an absolute value less than two to this power are in this slot or below."""
        return slot * _WIDTH + _WIDTH - 1 + _LOWEST[self.dtype]


class ExactBuffers(GradientPlaces, Buffers):
    """L and W as 64-bit integers. Memory for a float32 parameter: 4 + 8 + 8 bytes."""

    reduction = "exact"

    def __init__(self, parameters: Iterable[torch.nn.Parameter], names: dict[int, str] | None = None) -> None:
        """The first step's quanta are a guess.

        Args:
            parameters: Of the model.
            names: Of parameters by their id(), for messages.

        Raises:
            SessionMisuse: no parameter requires a gradient, one is not on the CPU, or one has a dtype that cannot
                be summed exactly.
        """
        kinds = by_kind(parameters)
        for dtype, device in kinds:
            if dtype not in _LOWEST:
                raise SessionMisuse(f"reduction='exact' sums float16, bfloat16, float32 and float64, not {dtype}")
            if device.type != "cpu":
                raise SessionMisuse(f"reduction='exact' sums on the CPU only, and parameters are on {device}")
        flats = [flat(kind, ps) for kind, ps in kinds.items()]
        each_slots = [(_HIGHEST[f.buffer.dtype] - _LOWEST[f.buffer.dtype]) // _WIDTH + 1 for f in flats]
        size = sum(f.size for f in flats)
        tail = 1 + LOSS + sum((slots + 2) * len(f.parameters) for f, slots in zip(flats, each_slots, strict=True))
        self._local = torch.zeros(size + tail, dtype=torch.int64, device=flats[0].buffer.device)
        self._reduced = torch.zeros_like(self._local)
        self._size, self._loss, self._first = size, slice(size + 1, size + 1 + LOSS), size + 1 + LOSS
        self._tensors: list[_Tensor] = []
        start, first = 0, self._first
        for f, slots in zip(flats, each_slots, strict=True):
            for p, place in zip(f.parameters, f.views, strict=True):
                at = slice(start, start + place.numel())
                pairs = zip(torch.split(place.reshape(-1), _CHUNK), torch.split(self._local[at], _CHUNK), strict=True)
                pieces = [(a, b) for a, b in pairs if a.numel()]
                name = (names or {}).get(id(p), f"parameter {len(self._tensors)}")
                self._tensors.append(_Tensor(pieces, p.dtype, first, slots, at, place, name))
                start, first = at.stop, first + slots + 2
        self._work = {f.buffer.dtype: torch.empty(_CHUNK, dtype=_scaled_in(f.buffer.dtype)) for f in flats}
        self._whole = torch.empty(_CHUNK, dtype=torch.int64)
        self._slots: list[int] = []
        self._bits = 0
        self._overflown: tuple[str, ...] | None = ()
        self._open = False
        """W was given away to a reduction, and not taken back: somebody may write into it still."""
        super().__init__(flats)

    def sums(self) -> list[Tensor]:
        return [self._local]

    # --- quanta -----------------------------------------------------------------------------------------------------

    def expect(self, micro_batches: int) -> None:
        bits = _BITS - max(micro_batches - 1, 0).bit_length()
        if bits == self._bits:
            return
        self._bits = bits
        if not self._slots:
            self._slots = [self._fitting(t, t.slot(_FIRST)) for t in self._tensors]

    def _fitting(self, t: _Tensor, slot: int) -> int:
        """The nearest slot whose quantum and factor the tensor's arithmetic can represent."""
        least = self._bits - (126 if _scaled_in(t.dtype) is torch.float32 else 1022)
        while t.top(slot) < least:
            slot += 1
        return min(slot, t.slots - 1)

    def _factor(self, t: _Tensor, slot: int) -> float:
        return math.ldexp(1.0, self._bits - t.top(slot))

    # --- a micro-batch ----------------------------------------------------------------------------------------------

    def add_loss(self, loss: Tensor) -> None:
        """Round the gradient that backward left in the places, add it to L, and empty the places."""
        assert self._bits
        counted = []
        for dtype in self._work:
            tensors = [(t, slot) for t, slot in zip(self._tensors, self._slots, strict=True) if t.dtype == dtype]
            ends = [self._round(*piece, self._factor(t, slot)) for t, slot in tensors for piece in t.pieces]
            largest = iter(torch.stack([torch.stack(e) for e in zip(*ends, strict=True)]).abs().amax(0).tolist())
            counted += [t.first + t.slot_of([next(largest) for _ in t.pieces]) for t, _ in tensors if t.pieces]
        self._local.index_add_(0, torch.tensor(counted), torch.ones(len(counted), dtype=torch.int64))
        add_to_loss(self._local[self._loss], float(loss.detach().item()))
        for each in self._flats:
            each.buffer.zero_()
        self._note_versions()

    def _round(self, place: Tensor, local: Tensor, factor: float) -> tuple[Tensor, Tensor]:
        """Add one piece; what does not fit is garbage, and its magnitude says so. Returns least and largest element."""
        count = place.numel()
        scaled, whole = self._work[place.dtype][:count], self._whole[:count]
        if scaled.dtype is place.dtype:
            torch.mul(place, factor, out=scaled)
        else:
            scaled.copy_(place).mul_(factor)
        local.add_(whole.copy_(scaled.round_()))
        return torch.aminmax(place)

    # --- the reduction ----------------------------------------------------------------------------------------------

    def fill(self, unseen: bool, empty: bool = False) -> list[Tensor]:
        self._check_unchanged(empty)
        self._local[self._size] = int(unseen)
        if self._open:
            self._reduced = torch.empty_like(self._local)
        self._reduced.copy_(self._local)
        self._open = True
        self._overflown = None
        return [self._reduced]

    def all_have_seen(self) -> bool:
        return self._reduced[self._size].item() == 0

    def loss(self) -> float:
        return total_loss(self._reduced[self._loss].tolist())

    def _histograms(self) -> Iterable[tuple[_Tensor, int | None, int]]:
        """Of each tensor in W: the slot of its largest element (None: all zero), and micro-batches with inf or NaN."""
        counts = self._reduced[self._first :].tolist()
        for t in self._tensors:
            start = t.first - self._first
            filled = [i for i, count in enumerate(counts[start : start + t.slots]) if count]
            yield t, filled[-1] if filled else None, counts[start + t.slots]

    def overflown(self) -> tuple[str, ...]:
        if self._overflown is None:
            found = zip(self._histograms(), self._slots, strict=True)
            texts = (self._misfit(t, slot, largest) for (t, largest, infinite), slot in found if not infinite)
            self._overflown = tuple(filter(None, texts))
        return self._overflown

    def _misfit(self, t: _Tensor, slot: int, largest: int | None) -> str:
        if largest is None:
            return ""
        if largest > slot:
            return f"{t.name}: an element of up to 2^{t.top(largest)}, and 2^{t.top(slot)} could be summed"
        spare = slot - largest
        if spare > _ROOM + 1 and self._bits - _WIDTH * spare < _KEPT and self._fitting(t, largest + _ROOM) < slot:
            return f"{t.name}: no element above 2^{t.top(largest)}, with a quantum of 2^{t.top(slot) - self._bits}"
        return ""

    def rescale(self) -> None:
        for i, (t, largest, _) in enumerate(self._histograms()):
            if largest is not None:
                self._slots[i] = self._fitting(t, largest + _ROOM)

    def scales(self) -> Sequence[int]:
        return tuple(self._slots)

    def take_scales(self, scales: Sequence[int]) -> None:
        """As declared. A checkpoint of floating sums has none: the first step's guess stays."""
        if scales:
            self._slots = list(scales)

    def apply(self, scale: float) -> None:
        """As declared. A parameter that any micro-batch had an inf or a NaN for gets NaN throughout: which of its
        elements they were would depend on an order."""
        for (t, _, infinite), slot in zip(self._histograms(), self._slots, strict=True):
            if infinite:
                t.place.fill_(math.nan)
                continue
            quantum = 1.0 / self._factor(t, slot)
            for (place, _), reduced in zip(t.pieces, torch.split(self._reduced[t.at], _CHUNK), strict=False):
                place.copy_(reduced.to(torch.float64).mul_(quantum).mul_(scale))
        self._open = False
        self.attach()
        for p in (p for each in self._flats for p in each.parameters if not p.requires_grad):
            p.grad = None

    def clear(self) -> None:
        self._local.zero_()
        super().clear()


def _scaled_in(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which products with a power of two are exact."""
    return torch.float64 if dtype is torch.float64 else torch.float32
