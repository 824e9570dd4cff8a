"""Scripted failures on the command line: `G[.R]@S[:POINT][=SECONDS]`, meaning rank R (0) of group G in step S."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import click

from spare_runtime.faults import POINTS

DEFAULT_POINT: Final = POINTS[0]
DEFAULT_PAUSE: Final = 2.0
"""Seconds."""
_FORM = re.compile(r"(?P<group>\d+)(\.(?P<rank>\d+))?@(?P<step>\d+)(:(?P<point>[^=]*))?(=(?P<seconds>\d+(\.\d+)?))?")


@dataclass(frozen=True)
class Scripted:
    """One failure to come. `step` is the number of the step in flight, from 0."""

    action: str
    group: int
    step: int
    point: str
    seconds: float | None = None
    rank: int = 0

    def __str__(self) -> str:
        """As the worker reads it, without the group."""
        seconds = "" if self.seconds is None else f"={self.seconds:g}"
        rank = f".{self.rank}" if self.rank else ""
        return f"{self.action}{rank}@{self.step}:{self.point}{seconds}"


def read(action: str, text: str, *, timed: bool = False) -> Scripted:
    """One failure of a given kind; only where it is `timed`, it may say for how long.

    Raises:
        click.BadParameter: it has another form, or an unknown point.
    """
    match = _FORM.fullmatch(text)
    if match is None or (match["seconds"] is not None and not timed):
        form, example = ("G[.R]@S[:POINT][=SECONDS]", "=1.5") if timed else ("G[.R]@S[:POINT]", "")
        raise click.BadParameter(f"{text!r} is not {form}, such as 2@20:{DEFAULT_POINT}{example} (group 2 in step 20)")
    point = DEFAULT_POINT if match["point"] is None else match["point"]
    if point not in POINTS:
        raise click.BadParameter(f"{text!r}: the point {point!r} is none of {', '.join(POINTS)}")
    seconds = float(match["seconds"] or DEFAULT_PAUSE) if timed else None
    rank = int(match["rank"] or 0)
    return Scripted(action, int(match["group"]), int(match["step"]), point, seconds, rank)


def reader(
    action: str, *, timed: bool = False
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], tuple[Scripted, ...]]:
    """`read` for a repeatable option."""
    return lambda _context, _option, texts: tuple(read(action, text, timed=timed) for text in texts)


def by_group(script: Iterable[Scripted], groups: int, ranks: int = 1) -> dict[int, str]:
    """The script as each group's workers get it.

    Raises:
        click.UsageError: a group that the job does not have, or a rank that its groups do not have.
    """
    found: dict[int, list[str]] = {}
    for failure in script:
        if failure.group >= groups:
            raise click.UsageError(
                f"--{failure.action} {failure.group}@{failure.step}: the job has the groups 0 to {groups - 1} only"
            )
        if failure.rank >= ranks:
            raise click.UsageError(
                f"--{failure.action} {failure.group}.{failure.rank}@{failure.step}: a group has the ranks 0 to "
                f"{ranks - 1} only"
            )
        found.setdefault(failure.group, []).append(str(failure))
    return {group: ",".join(failures) for group, failures in found.items()}
