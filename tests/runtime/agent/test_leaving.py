"""What an agent that is asked to go tells the coordinator, and when."""

from __future__ import annotations

import asyncio
from typing import Any

from spare.api import wire
from spare_runtime.agent.leaving import Leaving
from tests.runtime.plans import JOB, UID


def head(rank: int, epoch: int = 7) -> dict[str, Any]:
    """What its reports of a rank begin with."""
    return {"job": JOB, "uid": UID, "epoch": epoch, "group": 1, "pod": 1, "rank": rank}


def offered(rank: int, epoch: int) -> wire.Leave:
    """A worker gives what it holds."""
    return wire.Leave(**head(rank, epoch), grace=0.0, reason="", serves=f"10.0.0.1:{4000 + rank + epoch}")


def test_each_worker_that_gives_what_it_holds_is_told_of() -> None:
    """Under the epoch in which it gives it, the newest; until one does, that the group is asked to go."""

    async def talk() -> list[list[wire.Leave]]:
        leaving, heads = Leaving(lambda: 100.0, lambda: None, lambda _: None), [head(2), head(3)]
        said = [leaving.reports(heads)]
        leaving.ask("SIGTERM", 30.0)
        said.append(leaving.reports(heads))
        for worker in (offered(3, 5), offered(2, 5), offered(2, 6)):
            leaving.offered(worker)
            said.append(leaving.reports(heads))
        leaving.close()
        return said

    nothing, asked, *said = asyncio.run(talk())

    assert nothing == []
    assert [(leave.rank, leave.epoch, leave.serves, leave.grace) for leave in asked] == [(2, 7, None, 30.0)]
    told = [[(leave.rank, leave.epoch, leave.serves) for leave in each] for each in said]
    third = (3, 5, "10.0.0.1:4008")
    assert told == [[third], [(2, 5, "10.0.0.1:4007"), third], [(2, 6, "10.0.0.1:4008"), third]]
