"""Options that hold a quantity: durations, sizes, shares and lists of groups, each with the range that is allowed."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any

import click

from spare.api.duration import parse_duration

DAY = 86_400.0
LONGEST = 1e6 * DAY
"""Seconds; whoever means never gives no number at all."""

MOST_GROUPS = 10_000
MOST_BYTES = 1e21

_DAYS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)d(.*)")
_BARE = re.compile(r"[0-9]+(\.[0-9]*)?(e[+-]?[0-9]{1,3})?")
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([KMGTP]?i?B?)", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


class Duration(click.ParamType[float]):
    """`90d`, `1d12h`, `1h30m` or `500ms`, in seconds.

    Args:
        above_zero: whether 0 is refused.
        bare: whether a number without a unit is taken as seconds.
    """

    name = "duration"

    def __init__(self, above_zero: bool = False, bare: bool = False) -> None:
        self._above_zero, self._bare = above_zero, bare

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See click.ParamType."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        if not text:  # as an unset variable of a shell leaves it; nothing is not 0s
            self.fail("'' is no duration; 0 is written 0s", param, ctx)
        seconds = self._seconds(text, param, ctx)
        if not (seconds > 0 if self._above_zero else seconds >= 0) or seconds > LONGEST:
            least = "more than 0s" if self._above_zero else "0s"
            self.fail(f"{value!r} is out of range; allowed is {least}, up to {LONGEST / DAY:.0f}d", param, ctx)
        return seconds

    def _seconds(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if self._bare and _BARE.fullmatch(text):
            return float(text)
        days = _DAYS.fullmatch(text)
        rest = days[2] if days else text
        try:
            return (float(days[1]) * DAY if days else 0.0) + (parse_duration(rest).total_seconds() if rest else 0.0)
        except ValueError as error:
            bare = ", or as seconds" if self._bare else ""
            self.fail(f"{text!r}: {error}; days are written like 90d or 1d12h{bare}", param, ctx)


class Size(click.ParamType[float]):
    """`20GB` or `16GiB`, in bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See click.ParamType."""
        if isinstance(value, float):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        unit = match[2].upper().removesuffix("B") if match else ""
        if not match or unit == "I":
            self.fail(f"{value!r} is not a size such as 20GB or 16GiB", param, ctx)
        size: float = float(match[1]) * (1024 if unit.endswith("I") else 1000) ** _POWERS[unit.removesuffix("I")]
        if size > MOST_BYTES:
            self.fail(f"{value!r} is out of range; allowed is 0B to {MOST_BYTES / 1e15:.0f}PB", param, ctx)
        return size


class Number(click.ParamType[float]):
    """A number between two, both allowed; neither NaN nor infinity."""

    name = "number"

    def __init__(self, least: float, most: float) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See click.ParamType."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not self._least <= number <= self._most:
            self.fail(f"{value!r} is no number from {self._least:g} to {self._most:g}", param, ctx)
        return number


class Groups(click.ParamType[tuple[int, ...]]):
    """`3,7`, ascending; each is named once."""

    name = "groups"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """See click.ParamType."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
            self.fail(f"{value!r} is not a list of groups such as 3,7", param, ctx)
        groups = sorted(map(int, parts))
        twice = [group for group, after in pairwise(groups) if group == after]
        if twice:
            self.fail(f"{value!r} names group {twice[0]} twice", param, ctx)
        return tuple(groups)
