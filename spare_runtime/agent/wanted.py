"""Who has no plan yet waits for as long as somebody may want it: until a coordinator has been away for too long.

A spare waits for a place, a group for the others: for their nodes, for a quota, for a queue, and that may take days.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

UNWANTED: Final = 3600.0
"""Seconds without a coordinator after which it ends: as long as a member waits for a plan. A coordinator that comes
back later starts another."""


class Wanted:
    """Looks after one agent. It is never the training that ends by this, for a spare takes no part in any."""

    def __init__(self, clock: Callable[[], float], stop: Callable[[str], None]) -> None:
        """`stop`: called with the reason."""
        self._clock, self._stop = clock, stop
        self._since = clock()

    def look(self, sure: bool) -> None:
        """Called again and again. `sure`: a coordinator is connected, or there is a plan."""
        if sure:
            self._since = self._clock()
        elif self._clock() - self._since > UNWANTED:
            self._stop(f"no coordinator has asked for it for {UNWANTED:.0f} s, and it has no plan")
