"""Numbers in sentences: which ones, and how many."""

from __future__ import annotations

from collections.abc import Sequence

_NAMED = 8  # how many numbers a sentence lists before it says how many there are


def named(noun: str, numbers: Sequence[int]) -> str:
    """ "group 3", "groups 3, 7", or with more than eight "groups 0, 1, ... (12 in all)"."""
    listed = ", ".join(str(number) for number in numbers[:_NAMED])
    more = f", ... ({len(numbers)} in all)" if len(numbers) > _NAMED else ""
    return f"{noun if len(numbers) == 1 else plural(noun)} {listed}{more}"


def counted(count: int, noun: str) -> str:
    """ "1 loss", "2 losses", "0 groups"."""
    return f"{count} {noun if count == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Of a noun that follows the rule: "losses", "micro-batches", "groups"."""
    return noun + ("es" if noun.endswith(("s", "ch")) else "s")
