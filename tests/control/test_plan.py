"""Plans as documents, and the parts of them that agents get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spare.api import wire
from spare.control.plan import Plan
from spare.control.signal import AgentUp
from spare.planner.microbatches import mask_of
from tests.control.drive import Drive, started


def test_a_recorded_plan_is_read_back_equal() -> None:
    """A coordinator that comes back finds what it wrote."""
    drive = started()
    drive.do(drive.exited(2))

    assert Plan.from_json(drive.plan.to_json()) == drive.plan


def test_a_changed_record_is_refused() -> None:
    """Its digest says so."""
    text = started().plan.to_json()

    with pytest.raises(ValueError, match="is not its contents'"):
        Plan.from_json(text.replace('"base":1', '"base":0'))
    with pytest.raises(ValueError, match="not a recorded plan"):
        Plan.from_json("{}")


def test_the_digest_is_over_everything_but_the_reason() -> None:
    """Two plans of one epoch that differ at all never meet in a rendezvous."""
    plan = started().plan

    assert replace(plan, reason="other words").digest == plan.digest
    changed = [
        replace(plan, epoch=2),
        replace(plan, base=0),
        replace(plan, leader=1),
        replace(plan, job="job/2"),
        replace(plan, origin=2),
        replace(plan, members=(replace(plan.members[0], uid="other"), *plan.members[1:])),
        replace(plan, members=(replace(plan.members[0], admission=2), *plan.members[1:])),
    ]
    assert len({plan.digest, *(other.digest for other in changed)}) == len(changed) + 1


def test_the_parts_are_disjoint_and_complete() -> None:
    """Together the members compute each of the N*m micro-batches once, before and after a loss."""
    drive = started()
    drive.do(drive.exited(2))
    for plan in drive.plans:
        masks = [mask_of(plan.part_for(m.group, m.uid).schedule, 8) for m in plan.members]

        assert sum(masks) == (1 << 32) - 1
        assert sum(mask.bit_count() for mask in masks) == 32


def test_a_part_passes_the_wire() -> None:
    """What an agent reads is what was sent; another incarnation is no member."""
    plan = started().plan
    part = plan.part_for(3, "u3")

    assert wire.read(part.line()) == part
    assert part.digest == plan.digest
    assert plan.part_for(3, "older").admission is None
    assert wire.read(plan.part_for(3, "older").line()) == plan.part_for(3, "older")


def test_zones_shape_the_placement() -> None:
    """Where the backend knows them, the ring follows them and the parts carry it."""
    drive = Drive()
    for group in range(4):
        up = AgentUp(group, f"u{group}", f"10.0.0.{group + 1}:7000", zone=("b" if group < 2 else "a",))
        drive.do(up, drive.hello(group))

    assert drive.plan.part_for(0, "u0").placement.ring == (2, 3, 0, 1)
