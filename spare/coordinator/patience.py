"""What the place where groups run does not do at once: tried again, after growing pauses, and said.

A full disk or an API server that is away is no reason to end a job whose groups train: while nothing else fails they
notice nothing (docs/protocol.md, rule 5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

PAUSE_FIRST: Final = 0.1
PAUSE_MOST: Final = 2.0
"""Seconds between two tries, doubled from the first to the most."""


async def insist(
    what: str,
    attempt: Callable[[], Awaitable[None]],
    say: Callable[[str], None],
    hopeless: Callable[[], bool] = lambda: False,
) -> bool:
    """Await `attempt` until it succeeds; whether it did.

    Args:
        what: Such as "plan 3 could not be written down", for people.
        attempt: May be repeated. An OSError is tried again, anything else is raised.
        say: Told of the first failure, and of the success after it.
        hopeless: Asked after each failure: whether to give up.
    """
    pause, tries = PAUSE_FIRST, 1
    while True:
        try:
            await attempt()
        except OSError as error:
            if tries == 1:
                say(f"{what}: {str(error) or type(error).__name__}; it is tried again")
            if hopeless():
                return False
        else:
            if tries > 1:
                say(f"{what}, but try {tries} succeeded")
            return True
        tries += 1
        await asyncio.sleep(pause)
        if hopeless():
            return False
        pause = min(2 * pause, PAUSE_MOST)
