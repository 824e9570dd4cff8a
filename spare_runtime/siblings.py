"""The ranks of one group agree, so that for all others they are one member (docs/protocol.md).

They live and die together, so what they wait for each other in is never interrupted by a plan: it ends when all have
come, or when one has died, and then the group is lost. Every rank calls `agree` at the same points: what it says there
decides for all of them what comes next.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed

from spare.api import wire
from spare.planner.words import counted
from spare_runtime.config import Environment
from spare_runtime.errors import GroupBroken, RendezvousTimeout, clause
from spare_runtime.store_client import StoreClient

dist: Any = torch.distributed  # its stubs know little of what its C++ part exports

_DIAL_TIMEOUT = 10.0
_LONGEST = timedelta(days=1)
"""Of one agreement: a rank may wait that long for a plan. Who hangs meanwhile is found out by the coordinator."""


class Siblings(Protocol):
    """The ranks of one group, as one of them sees them."""

    def agree(self, *mine: int) -> list[tuple[int, ...]]:
        """Say some whole numbers (64 bits, as many as the others do) and hear what each rank said, by rank.

        Raises:
            GroupBroken: a rank has died.
        """


class Alone:
    """A group of one rank agrees with itself."""

    def agree(self, *mine: int) -> list[tuple[int, ...]]:
        """See Siblings."""
        return [mine]


class Together:
    """Several ranks, connected once for their whole life: a process group of our own, apart from the script's."""

    def __init__(self, env: Environment) -> None:
        """Connect; returns when all ranks have come.

        Raises:
            RendezvousTimeout: one did not, within env.rendezvous_timeout.
        """
        self._rank, self._count, self._number = env.rank, env.ranks, env.group
        store = home_store(env, "agree")
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=env.bind, lazy_init=False)]
        options._timeout = timedelta(seconds=env.rendezvous_timeout)
        try:
            self._group = dist.ProcessGroupGloo(store, env.rank, env.ranks, options)
        except (RuntimeError, OSError) as error:
            raise RendezvousTimeout(
                f"rank {env.rank} of group {env.group} waited {env.rendezvous_timeout:.0f} s at {env.home} for the "
                f"other {counted(env.ranks - 1, 'rank')} of its group; last error: {clause(str(error).splitlines()[0])}"
            ) from error

    def agree(self, *mine: int) -> list[tuple[int, ...]]:
        """See Siblings."""
        said = torch.tensor(mine, dtype=torch.int64)
        heard = [torch.empty_like(said) for _ in range(self._count)]
        options = torch._C._distributed_c10d.AllgatherOptions()
        options.timeout = _LONGEST
        try:
            self._group.allgather([heard], [said], options).wait()
        except RuntimeError as error:
            seen = f"seen by rank {self._rank}: {clause(str(error).splitlines()[0])}"
            raise GroupBroken(f"a rank of group {self._number} is gone, {seen}") from error
        return [tuple(each.tolist()) for each in heard]


def broke_inside(error: BaseException | None) -> bool:
    """Whether an exception of the training script comes from a connection between ranks of its group."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        by_gloo = isinstance(error, RuntimeError) and "gloo/" in str(error)  # it has no exceptions of its own
        if by_gloo or isinstance(error, GroupBroken | dist.DistError):
            return True
        error = error.__cause__ or error.__context__
    return False


def siblings_of(env: Environment) -> Siblings:
    """The real ones. Raises RendezvousTimeout."""
    return Together(env) if env.ranks > 1 else Alone()


def home_store(env: Environment, purpose: str) -> Any:
    """The store at which the ranks of this group meet, under a prefix of its own for each purpose.

    Raises:
        RendezvousTimeout: the agent that serves it does not answer.
    """
    try:
        client = StoreClient(wire.Address.parse(env.home), env.token, _DIAL_TIMEOUT, env.rendezvous_timeout)
    except OSError as error:
        raise RendezvousTimeout(f"the store of group {env.group} at {env.home} does not answer: {error}") from error
    store = dist.PrefixStore(f"{env.job}/{env.uid}/{env.start}/{purpose}", client)
    _CLIENTS.append(client)
    return store


_CLIENTS: list[StoreClient] = []
"""Torch keeps no reference of its own to a store made in Python."""
