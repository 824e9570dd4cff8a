"""Durations in job files: `500ms`, `2s`, `1m30s`, the subset of Go's notation that Kubernetes' CEL reads as well."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
"""The notation as a regular expression, for the schema of the custom resource."""

_WHOLE = re.compile(PATTERN)
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_MICROSECONDS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
LONGEST_TEXT = 40
"""Characters; keeps a hostile file from making us multiply endless numbers, and no sane duration comes near."""


def parse_duration(text: str) -> timedelta:
    """Reads `1m30s` and the like, to the microsecond.

    Raises:
        ValueError: not a duration; the text says why.
    """
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        raise ValueError(f"a duration needs a unit, as in {text}s")
    if len(text) > LONGEST_TEXT or not _WHOLE.fullmatch(text):
        raise ValueError("a duration is written like 500ms, 2s, 5m or 1h30m")
    total = sum(Decimal(number) * _MICROSECONDS[unit] for number, unit in _PART.findall(text))
    try:
        return timedelta(microseconds=int(total))
    except OverflowError:
        raise ValueError("that is longer than any clock runs") from None


def format_duration(duration: timedelta) -> str:
    """The shortest usual way to write it: `1h30m`, `2s`, `1.5s`, `500ms`. `parse_duration` gives the same back."""
    rest = duration // timedelta(microseconds=1)
    if rest < 0:
        raise ValueError(f"a duration cannot be negative: {duration}")
    if rest < _MICROSECONDS["s"]:
        return f"{_decimal(rest, 'ms')}ms" if rest else "0s"
    hours, rest = divmod(rest, _MICROSECONDS["h"])
    minutes, rest = divmod(rest, _MICROSECONDS["m"])
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else "", f"{_decimal(rest, 's')}s" if rest else ""]
    return "".join(parts)


def _decimal(microseconds: int, unit: str) -> str:
    return f"{(Decimal(microseconds) / _MICROSECONDS[unit]).normalize():f}"
