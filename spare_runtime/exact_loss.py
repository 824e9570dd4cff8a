"""A sum of floats without any rounding, in a few integers that can be added element by element.

Every float is a whole multiple of 2**-1126. Its multiple is cut into digits of 32 bits, and each digit is added to an
element of its own, with the float's sign: 2**30 floats fit before an element of 64 bits overflows. Scalars only: a
gradient would take 68 times its memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

_DIGIT = 32
_UNIT = 1126
"""frexp's mantissa has 53 bits and its exponent is at least -1073: 53 + 1073."""
_DIGITS = (1024 + _UNIT) // _DIGIT + 1
_NAN, _UP, _DOWN = _DIGITS, _DIGITS + 1, _DIGITS + 2
ELEMENTS = _DIGITS + 3
"""Digits, and how many NaN, +inf and -inf there were."""


def add(sums: Tensor, value: float) -> None:
    """Add `value` to `sums`, `ELEMENTS` integers of 64 bits."""
    if not math.isfinite(value):
        sums[_NAN if math.isnan(value) else _UP if value > 0 else _DOWN] += 1
        return
    mantissa, exponent = math.frexp(abs(value))
    first, shift = divmod(exponent - 53 + _UNIT, _DIGIT)
    digits = int(math.ldexp(mantissa, 53)) << shift
    while digits:
        digit = digits & ((1 << _DIGIT) - 1)
        sums[first] += digit if value > 0 else -digit
        digits >>= _DIGIT
        first += 1


def total(sums: Sequence[int]) -> float:
    """The float nearest to the sum of all that was added; what floats make of it where inf or NaN were."""
    if sums[_NAN] or (sums[_UP] and sums[_DOWN]):
        return math.nan
    if sums[_UP] or sums[_DOWN]:
        return math.inf if sums[_UP] else -math.inf
    whole = sum(digit << (_DIGIT * i) for i, digit in enumerate(sums[:_DIGITS]))
    try:
        return whole / (1 << _UNIT)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf
