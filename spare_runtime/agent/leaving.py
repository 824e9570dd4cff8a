"""An agent that is asked to go: until when, how it says so, and when its workers must hand on what they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from spare.api import wire

RESERVE_MOST = 10.0
"""Longest part of a grace that is kept back, seconds: a plan, and to hand on a sum of gradients, need no more."""


class Leaving:
    """The leave of one group, from the first request on. Times are the agent's clock."""

    def __init__(self, clock: Callable[[], float], hand_on: Callable[[], None], over: Callable[[str], None]) -> None:
        """Nobody has asked yet.

        Args:
            clock: Seconds.
            hand_on: Called when the grace is nearly over.
            over: Called at its end, with the reason.
        """
        self._clock, self._hand_on, self._over = clock, hand_on, over
        self._reason = ""
        self._until: float | None = None
        self._offers: dict[int, tuple[str, int]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, reason: str, grace: float) -> bool:
        """It is to be gone within `grace` seconds; whether that is news. A shorter grace replaces a longer one."""
        if self._until is not None and self._left() <= grace:
            return False
        self.close()
        self._reason, self._until = reason, self._clock() + grace
        self._after(grace - min(RESERVE_MOST, grace / 3), self._nearly_over)
        return True

    def offered(self, by: wire.Leave) -> None:
        """A worker gives what it holds, under the epoch that it runs in."""
        if by.serves is not None:
            self._offers[by.rank] = (by.serves, by.epoch)

    def reports(self, heads: Sequence[dict[str, Any]]) -> list[wire.Leave]:
        """What the coordinator is told, one line at least: of each worker, whose heads these are, that gives what it
        holds. Nothing while nobody has asked."""
        if self._until is None:
            return []
        about: dict[str, Any] = {"grace": self._left(), "reason": self._reason}
        given = [(head, *self._offers[head["rank"]]) for head in heads if head["rank"] in self._offers]
        said = [wire.Leave(**{**head, "epoch": epoch}, **about, serves=serves) for head, serves, epoch in given]
        return said or [wire.Leave(**heads[0], **about)]

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _left(self) -> float:
        return 0.0 if self._until is None else max(0.0, self._until - self._clock())

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        """A timer, and no task: an agent may end in the moment in which it is asked, and leaves nothing unawaited."""
        self._timer = asyncio.get_running_loop().call_later(seconds, call)

    def _nearly_over(self) -> None:
        self._hand_on()
        self._after(self._left(), lambda: self._over(f"its grace is over ({self._reason})"))
