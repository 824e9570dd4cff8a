"""What a worker's membership waits on, talks through and reads the time from.

A worker gets the real things. The deterministic simulation (tests/chaos) puts its own in their place, so that the
protocol that is tried there under thousands of failures is the one that runs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from spare_runtime.checkpoint.keeper import Keeper
from spare_runtime.config import Environment
from spare_runtime.line import AgentLine, Line, leave
from spare_runtime.meeting import Meeting
from spare_runtime.siblings import Siblings, siblings_of
from spare_runtime.store import StoreServer
from spare_runtime.transfer import Donor, Transfer


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201


@dataclass(frozen=True)
class Surroundings:
    """How the parts of a membership are made. Each is called with what the real part's constructor takes."""

    clock: Callable[[], float] = time.monotonic
    condition: Callable[[], threading.Condition] = threading.Condition
    leave: Callable[[str, int], NoReturn] = leave
    """End this process at once: why, and with which code."""
    say: Callable[[str], None] = _say
    store: Callable[..., StoreServer] = StoreServer
    donor: Callable[..., Donor] = Donor
    transfer: Callable[..., Transfer] = Transfer
    line: Callable[..., Line] = AgentLine
    meeting: Callable[..., Meeting] = Meeting
    keeper: Callable[..., Keeper] = Keeper
    siblings: Callable[[Environment], Siblings] = siblings_of


REAL = Surroundings()
