"""Where the ranks of one group meet, and what their workers are told of it.

The ranks of a group make one process group of their own, for the script's own parallelism inside the group: once, when
they start, for they live and die together. The agent of pod 0 serves the store at which they meet, so its address is
known before any worker runs; the coordinator tells it to all pods of the group, once all of their agents run. No worker
begins before: a pod may wait for a node or a quota for days, and ranks wait for each other for minutes. For scripts
that call `init_process_group` themselves there is torch's usual environment, with a port that pod 0 keeps free.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from dataclasses import dataclass

from spare.api import wire
from spare_runtime.config import Environment
from spare_runtime.store import StoreServer


@dataclass(frozen=True)
class Assembly:
    """What every worker of a group gets to know."""

    env: Environment
    home: str
    """Address of the group's store; empty in a group of one rank, which meets nobody."""
    master: wire.Address

    def environment(self, rank: int, below: str, start: int = 0) -> dict[str, str]:
        """Variables of one worker.

        Args:
            rank: In its group.
            below: The agent's socket for it.
            start: Number of this start of the group's workers, the same in all its pods: what an earlier one left in
                the store is not for this one.
        """
        env = self.env
        local = {
            "SPARE_AGENT": below,
            "SPARE_RANK": str(rank),
            "SPARE_HOME": self.home,
            "SPARE_START": str(start),
            "RANK": str(rank),
            "WORLD_SIZE": str(env.pods * env.procs),
            "LOCAL_RANK": str(rank - env.pod * env.procs),
            "LOCAL_WORLD_SIZE": str(env.procs),
            "GROUP_RANK": str(env.pod),
            "MASTER_ADDR": self.master.host,
            "MASTER_PORT": str(self.master.port),
        }
        if _is_loopback(env.bind) and "GLOO_SOCKET_IFNAME" not in os.environ:
            local["GLOO_SOCKET_IFNAME"] = "lo"  # else gloo asks for the host's name, and listens where that leads
        return local


class Assembling:
    """Finds out or is told where the ranks meet."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._known = asyncio.Event()
        self._assembly: Assembly | None = None
        self._mine: Assembly | None = None
        """What pod 0 says to the others."""
        self._store: StoreServer | None = None
        self._kept: socket.socket | None = None
        if env.pod == 0:
            home = ""
            if env.pods * env.procs > 1:
                self._store = StoreServer(env.bind, env.token)
                home = str(self._store.address)
            self._kept = _keep_port(env.bind)
            self._mine = Assembly(env, home, wire.Address(*self._kept.getsockname()[:2]))
            if env.pods == 1:
                self._set(self._mine)

    def _set(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._known.set()

    def heard(self, message: wire.Assemble) -> None:
        """The coordinator says where, and that all are there. The first word counts: workers start with it."""
        if self._assembly is None:
            self._set(self._mine or Assembly(self._env, message.home, wire.Address.parse(message.master)))

    async def known(self) -> Assembly:
        """Wait until it is known. Without a deadline: the coordinator has one for the start of a group."""
        await self._known.wait()
        assert self._assembly is not None
        return self._assembly

    def told(self) -> dict[str, str]:
        """What pod 0 of several says in its hello for the others."""
        if self._env.pods == 1 or self._mine is None:
            return {}
        return {"home": self._mine.home, "master": str(self._mine.master)}


def _keep_port(bind: str) -> socket.socket:
    """A port that nobody else is given while this socket is open: bound, but not listening, so that a worker on this
    machine may still listen on it."""
    kept = socket.socket(socket.AF_INET6 if ":" in bind else socket.AF_INET)
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind((bind, 0))
    return kept


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
