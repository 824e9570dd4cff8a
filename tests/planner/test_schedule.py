"""The schedule: who computes what, and its way to bytes and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spare.planner import Range, Schedule, check, healthy, place, reorder
from tests.planner.oracles import kills


@pytest.mark.parametrize(("n", "r", "m"), [(1, 1, 1), (5, 5, 2), (8, 3, 8), (12, 4, 3), (200, 9, 32)])
def test_healthy_gives_every_group_m_and_spreads_each_shard(n: int, r: int, m: int) -> None:
    """Depth 1.0, and no host of a shard has more than one micro-batch of it above another."""
    schedule = healthy(place(n, r), m)

    assert check(schedule) == ()
    assert {schedule.load(g) for g in range(n)} == {m}
    assert schedule.depth == 1.0 == schedule.bound
    assert all(max(row) - min(row) <= 1 for row in schedule.counts)


def test_ranges_lie_in_the_order_of_the_hosts() -> None:
    """The first host has the first indices of a shard, the next the following ones."""
    schedule = healthy(place(4, 2, "Consecutive"), 5)

    assert schedule.counts[2] == (3, 2)
    assert schedule.ranges(2) == (Range(2, 0, 3), Range(3, 3, 2))
    assert schedule.mask(2) == 0b11000_00111_00000_00000
    assert schedule.ranges(1) == (Range(1, 0, 3), Range(2, 3, 2))


def test_masks_of_all_groups_are_a_partition() -> None:
    """Each of the N*m bits is in exactly one mask, also after failures."""
    schedule = healthy(place(12, 4), 7)
    for live in kills(12, 3):
        if len(live) < 7:
            break
        schedule = reorder(schedule, live).schedule
        masks = [schedule.mask(g) for g in range(12)]

        assert sum(masks) == (1 << 84) - 1
        assert sum(mask.bit_count() for mask in masks) == 84
        assert all(masks[g] == 0 for g in range(12) if g not in live)


def test_json_gives_the_schedule_back() -> None:
    """Through text and back it is equal, with and without a ring of its own."""
    topology = [("a" if g % 2 else "b",) for g in range(10)]
    for placement in (place(10, 3), place(10, 3, topology=topology), place(10, 3, "Consecutive")):
        schedule = reorder(healthy(placement, 6), [0, 2, 3, 5, 6, 7, 8]).schedule
        again = Schedule.from_json(json.loads(schedule.to_bytes()))

        assert again == schedule
        assert again.to_bytes() == schedule.to_bytes()
        assert again.loads == schedule.loads


def test_a_large_plan_fits_a_config_map() -> None:
    """1,000 groups, m = 32, 300 lost: less than 1 MiB as JSON, in fact less than a tenth."""
    schedule = healthy(place(1000, 9, topology=[(f"zone-{g % 7}",) for g in range(1000)]), 32)
    for live in kills(1000, 1):
        if len(live) in (900, 800, 700):
            schedule = reorder(schedule, live).schedule
        if len(live) == 700:
            break
    size = len(schedule.to_bytes())

    assert len(schedule.live) == 700
    assert size < 2**20 // 10
    assert len(json.dumps(schedule.to_json(), indent=1)) < 2**20


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": 1}, r"unknown keys \['colour'\]"),
        ({"cap": None}, "schedule.cap is None"),
        ({"microBatches": True}, "schedule.microBatches is True"),
        ({"live": [0, 1.5]}, "schedule.live is no list"),
        ({"live": "01"}, "schedule.live is no list"),
        ({"counts": 7}, "schedule.counts is no list"),
        ({"counts": [[1], ["x"]]}, r"schedule.counts\[1\] is no list"),
        ({"strategy": 3}, "schedule.strategy is 3"),
        ({"offsets": [0, 0]}, "offsets is"),
        ({"groups": 0}, "groups is 0"),
    ],
)
def test_from_json_refuses_by_name(change: dict[str, Any], words: str) -> None:
    """A wrong type, an unknown key or a placement that is none is named."""
    with pytest.raises(ValueError, match=words):
        Schedule.from_json(healthy(place(4, 2), 4).to_json() | change)


def test_from_json_names_what_is_missing() -> None:
    """A plan without its counts is refused as such."""
    data = healthy(place(4, 2), 4).to_json()
    del data["counts"]

    with pytest.raises(ValueError, match=r"missing keys \['counts'\]"):
        Schedule.from_json(data)


def test_healthy_refuses_less_than_one_micro_batch() -> None:
    """m is at least 1."""
    with pytest.raises(ValueError, match="micro_batches is 0"):
        healthy(place(4, 2), 0)
