"""What a coordinator needs of the place where groups run. Local processes and Kubernetes pods each implement it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from spare.control.signal import Signal

Emit = Callable[[Signal], None]
"""Puts a signal into the job's inbox; never blocks, and may be called from the event loop's thread only."""


class Backend(Protocol):
    """Starts, watches and ends the agents of one job. Every call is safe to repeat.

    What raises OSError is tried again: `create` after the pause of any start that failed, `delete`, `let_go` and
    `record` until they succeed. A plan that is not recorded is told to nobody.
    """

    async def open(self, emit: Emit) -> None:
        """Start watching. From now on AgentUp, AgentGone and AgentNotStarted reach the inbox through `emit`."""

    async def create(self, group: int) -> None:
        """Start the agents of all pods of the group, under one fresh uid. Returns at once; AgentUp or AgentNotStarted
        follows for each pod. Numbers from the job's count of groups on are spares': groups without a place yet."""

    async def take_over(self, group: int, spare: int, uid: str) -> None:
        """That incarnation, started as number `spare`, is the group's from now on, and `spare` is free for another
        start. A start of the group that is under way beside it is ended."""

    async def delete(self, group: int, uid: str) -> None:
        """End all pods of that incarnation with all their processes, dead, stopped or alive. It being gone already is
        success."""

    async def let_go(self, group: int, uid: str) -> None:
        """That incarnation ends by itself, and is not to be disturbed: `create` may start another beside it."""

    async def record(self, name: str, text: str) -> None:
        """Write a small document (the plan, the status) so that it is whole or absent after a crash."""

    async def close(self) -> None:
        """End everything that is left; afterwards no process of the job lives."""
