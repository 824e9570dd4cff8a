"""Where the time of a run goes. Every second is booked once, so the shares add up to the whole."""

from __future__ import annotations

from typing import Final

USEFUL: Final = ("compute", "patch", "reduce")
KINDS: Final = (*USEFUL, "regroup", "save", "restart", "join", "fetch", "lost")
"""``lost``: what was done after the last save when a wipe-out took it back, and reductions that a failure broke."""


class Account:
    """Seconds by kind; those since the last save are kept apart until it is certain that they count."""

    def __init__(self) -> None:
        self._kept = dict.fromkeys(KINDS, 0.0)
        self._recent = dict.fromkeys(KINDS, 0.0)

    def add(self, kind: str, seconds: float) -> None:
        """Book seconds since the last save."""
        self._recent[kind] += seconds

    def keep(self) -> None:
        """A save is complete, or the run."""
        for kind, seconds in self._recent.items():
            self._kept[kind] += seconds
            self._recent[kind] = 0.0

    def roll_back(self) -> None:
        """A wipe-out: what was done since the last save has to be done again."""
        self._kept["lost"] += sum(self._recent.values())
        self._recent = dict.fromkeys(KINDS, 0.0)

    def kept(self) -> dict[str, float]:
        """Seconds by kind that are certain."""
        return dict(self._kept)
