"""A start in the simulation: who is there waits for whoever is not, however long a cluster takes to make room."""

from __future__ import annotations

import asyncio

import pytest

from spare_runtime import regrouping
from tests.chaos.world import Shape, World


def test_the_first_plan_is_waited_for_longer_than_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota or a queue may take days: that is no failure of the groups that have what they need."""
    monkeypatch.setattr(regrouping, "PLAN_DEADLINE", 20.0)
    world = World(0, Shape(groups=3, redundancy=2, steps=4))
    create = world.site.create

    async def late(group: int) -> None:
        await asyncio.sleep(150.0 if group == 2 else 0.0)
        await create(group)

    world.site.create = late  # type: ignore[method-assign]
    verdict = world.run()

    assert (verdict.violation, verdict.exit_code) == (None, 0)
    assert verdict.seconds > 150.0
