"""Plans for tests: one group's part of a small one, every field of which can be said."""

from __future__ import annotations

from typing import Any

from spare.api.wire import PlacementRule, Plan, groups_text
from spare.planner import Placement, place

JOB, UID, TOKEN = "test/job", "incarnation-a", "a secret"


def rule(placement: Placement) -> PlacementRule:
    """A placement as it goes over the wire."""
    return PlacementRule(
        groups=placement.groups,
        redundancy=placement.redundancy,
        offsets=placement.offsets,
        strategy=placement.strategy,
    )


def plan(epoch: int = 1, base: int | None = None, admission: int | None = 1, **fields: Any) -> Plan:
    """A plan of two groups for group 0; urgent unless another base is given."""
    live = fields.pop("live", (0, 1))
    known = {
        "job": JOB,
        "uid": UID,
        "digest": f"digest-of-{epoch}",
        "group": 0,
        "stores": ("127.0.0.1:29500",),
        "leader_group": live[0],
        "placement": rule(place(2, 1)),
        "micro_batches": 2,
        "reason": "a test",
    }
    more = known | fields
    return Plan(
        epoch=epoch, base=epoch if base is None else base, admission=admission, members=groups_text(live), **more
    )
