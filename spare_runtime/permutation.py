"""A seeded permutation of 0..n-1 that is computed, not stored: any element in constant memory.

A Feistel network over the next power of four, walked until it lands below n (cycle walking; J. Black and P. Rogaway,
"Ciphers with Arbitrary Finite Domains", CT-RSA 2002). Three walks at most on average, since the domain is less than
four times n.
"""

from __future__ import annotations

import hashlib

_ROUNDS = 4
_MULTIPLIER = 0x9E3779B97F4A7C15  # odd, its bits well mixed: 2^64 over the golden ratio
_WORD = (1 << 64) - 1


class Permutation:
    """Bijection on range(n), another one for each seed.

    Raises:
        ValueError: n is less than 1.
    """

    def __init__(self, n: int, seed: int) -> None:
        if n < 1:
            raise ValueError(f"a permutation needs at least one element, not {n}")
        self.n = n
        self._half = max(1, ((n - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1
        keys = hashlib.blake2b(str(seed).encode(), digest_size=8 * _ROUNDS).digest()
        self._keys = [int.from_bytes(keys[8 * i : 8 * i + 8], "big") for i in range(_ROUNDS)]

    def __getitem__(self, place: int) -> int:
        """Element at `place`.

        Raises:
            IndexError: `place` is not in range(n).
        """
        if not 0 <= place < self.n:
            raise IndexError(f"place {place} is not in 0..{self.n - 1}")
        value = self._once(place)
        while value >= self.n:
            value = self._once(value)
        return value

    def _once(self, value: int) -> int:
        left, right = value >> self._half, value & self._mask
        for key in self._keys:
            mixed = ((right ^ key) * _MULTIPLIER) & _WORD
            mixed = ((mixed ^ (mixed >> 29)) * _MULTIPLIER) & _WORD
            left, right = right, left ^ ((mixed >> 32) & self._mask)
        return left << self._half | right
