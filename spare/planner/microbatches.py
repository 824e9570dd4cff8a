"""Sets of micro-batches, as ranges for people and messages and as bit masks for arithmetic.

Micro-batch ``index`` of ``shard`` is bit ``shard * m + index`` of a Python integer. Union, intersection and difference
of two sets are then one operation each, and ``int.bit_count`` counts. Conversions work on blocks of eight shards,
because 8 * m bits are exactly m bytes: a shift of the whole integer per shard would cost O((N*m)^2 / 64).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

_BLOCK = 8  # shards per block


class Range(NamedTuple):
    """Micro-batches ``first`` to ``first + count - 1`` of one shard."""

    shard: int
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs of a range


def mask_of(ranges: Iterable[tuple[int, int, int]], m: int) -> int:
    """The bit mask of a union of ranges; overlaps count once.

    Args:
        ranges: (shard, first, count) each, in any order.
        m: micro-batches per shard, at least 1.

    Raises:
        ValueError: m below 1, or a range that is empty or leaves its shard: it would name another shard's bits.

    Cost: O(number of ranges + bytes of the mask).
    """
    _check_m(m)
    blocks: dict[int, int] = {}
    for shard, first, count in ranges:
        if shard < 0 or first < 0 or count < 1 or first + count > m:
            raise ValueError(f"range is ({shard}, {first}, {count}); allowed is a part of [0, {m}) of a shard >= 0")
        block, place = divmod(shard, _BLOCK)
        blocks[block] = blocks.get(block, 0) | ((1 << count) - 1) << (place * m + first)
    if not blocks:
        return 0
    empty = bytes(m)
    last = max(blocks)
    return int.from_bytes(
        b"".join(blocks[b].to_bytes(m, "little") if b in blocks else empty for b in range(last + 1)), "little"
    )


def ranges_of(mask: int, m: int) -> tuple[Range, ...]:
    """The maximal ranges of a mask, ascending by shard, then by first index.

    Raises:
        ValueError: m below 1, or a negative mask (an infinite set).

    Cost: O(bytes of the mask + number of ranges).
    """
    return tuple(Range(shard, first, count) for shard, bits in bits_by_shard(mask, m) for first, count in runs(bits))


def runs(bits: int) -> list[tuple[int, int]]:
    """(first, count) of each maximal run of ones in a small set, ascending."""
    found, at = [], 0
    while bits:
        skip = (bits & -bits).bit_length() - 1
        bits >>= skip
        count = (~bits & (bits + 1)).bit_length() - 1
        found.append((at + skip, count))
        bits >>= count
        at += skip + count
    return found


def bits_by_shard(mask: int, m: int) -> list[tuple[int, int]]:
    """(shard, its m bits) for every shard with a bit in the mask, ascending. Raises as ``ranges_of``."""
    _check_m(m)
    if mask < 0:
        raise ValueError(f"mask is {mask}; allowed is 0 or more")
    length = (mask.bit_length() + 7) // 8
    data = mask.to_bytes(length, "little")
    empty, one_shard = bytes(m), (1 << m) - 1
    found = []
    for start in _filled(data, m):
        block = data[start : start + m]
        if block == empty:
            continue
        bits, shard = int.from_bytes(block, "little"), start // m * _BLOCK
        while bits:
            if bits & one_shard:
                found.append((shard, bits & one_shard))
            bits >>= m
            shard += 1
    return found


def _filled(data: bytes, m: int) -> Iterator[int]:
    """Where the blocks begin that may hold a bit: most masks are nearly empty, so eight blocks are skipped at once."""
    wide = _BLOCK * m
    empty = bytes(wide)
    for start in range(0, len(data), wide):
        if data[start : start + wide] != empty:
            yield from range(start, min(start + wide, len(data)), m)


def _check_m(m: int) -> None:
    if m < 1:
        raise ValueError(f"m is {m}; allowed is 1 or more")
