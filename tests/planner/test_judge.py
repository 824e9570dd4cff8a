"""The judge: valid answers pass, and every kind of mutation is named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spare.planner import (
    Placement,
    Range,
    Schedule,
    check,
    check_patch,
    check_ranges,
    healthy,
    mask_of,
    patch,
    place,
    reorder,
)

PLACEMENT = place(12, 4)
LIVE = (0, 1, 2, 4, 5, 6, 8, 9, 10, 11)
VALID = reorder(healthy(PLACEMENT, 8), LIVE).schedule
MISSING = healthy(PLACEMENT, 8).mask(3) | healthy(PLACEMENT, 8).mask(7)
PATCH = patch(PLACEMENT, 8, LIVE, MISSING)


def _counts(change: Callable[[list[list[int]]], None]) -> tuple[tuple[int, ...], ...]:
    rows = [list(row) for row in VALID.counts]
    change(rows)
    return tuple(tuple(row) for row in rows)


def _one_lost(rows: list[list[int]]) -> None:
    layer = next(j for j, count in enumerate(rows[5]) if count)
    rows[5][layer] -= 1


def _one_twice(rows: list[list[int]]) -> None:
    layer = next(j for j, host in enumerate(PLACEMENT.hosts(5)) if host in LIVE)
    rows[5][layer] += 1


def _on_the_dead(rows: list[list[int]]) -> None:
    shard, dead = PLACEMENT.stack(3)[1], 1
    layer = next(j for j, count in enumerate(rows[shard]) if count)
    rows[shard][layer] -= 1
    rows[shard][dead] += 1


def _negative(rows: list[list[int]]) -> None:
    layers = [j for j, host in enumerate(PLACEMENT.hosts(0)) if host in LIVE]
    rows[0][layers[0]] -= 20
    rows[0][layers[1]] += 20


def _over_the_cap(rows: list[list[int]]) -> None:
    # All of shard 2 to one host, which has other shards too.
    layer = next(j for j, host in enumerate(PLACEMENT.hosts(2)) if host in LIVE and rows[2][j] < 8)
    rows[2] = [8 * (j == layer) for j in range(4)]


COUNT_MUTATIONS = [
    (_one_lost, "shard 5 is not given exactly once: its counts do not sum to 8"),
    (_one_twice, "shard 5 is not given exactly once"),
    (_on_the_dead, "has micro-batches on a group that is not live"),
    (_negative, "shard 0 has a negative count"),
    (_over_the_cap, "is over the cap of 10"),
]

FIELD_MUTATIONS: list[tuple[dict[str, Any], str]] = [
    ({"live": LIVE[::-1]}, "live is not ascending"),
    ({"live": (0, *LIVE)}, "live is not ascending"),
    ({"live": (*LIVE, 12)}, "live group 12 does not exist"),
    ({"live": ()}, "no group is live"),
    ({"live": None}, "live is no list of group numbers"),
    ({"live": (0, "1")}, "live is no list of group numbers"),
    ({"live": LIVE[:-1]}, "has micro-batches on a group that is not live"),
    ({"cap": 9}, "cap is 9; no schedule is below ceil(12 * 8 / 10) = 10"),
    ({"cap": None}, "cap is None"),
    ({"micro_batches": 0}, "micro-batches per shard is 0"),
    ({"micro_batches": 7}, "is not given exactly once: its counts do not sum to 7"),
    ({"counts": VALID.counts[:-1]}, "counts has not one row for each of the 12 shards"),
    ({"counts": (*VALID.counts[:-1], (1, 2))}, "shard 11 has not one count for each of its 4 hosts"),
    ({"counts": (*VALID.counts[:-1], None)}, "shard 11 has not one count"),
    ({"counts": 3}, "counts has not one row"),
    ({"placement": place(12, 4, "Consecutive")}, "has micro-batches on a group that is not live"),
]

PLAN_MUTATIONS: list[tuple[dict[str, Any], str]] = [
    ({"groups": 0}, "groups is 0; allowed is 1 or more"),
    ({"groups": "12"}, "groups is '12'"),
    ({"groups": True}, "groups is True"),
    ({"redundancy": 13}, "redundancy is 13; allowed is 1 to 12"),
    ({"redundancy": 3}, "offsets are not 3 distinct numbers"),
    ({"offsets": [0, 1, 1, 2]}, "offsets are not 4 distinct numbers"),
    ({"offsets": [1, 2, 3, 4]}, "offsets must lie in [0, 12) and start with 0"),
    ({"offsets": [0, 2, 3, 12]}, "offsets must lie in [0, 12)"),
    ({"ring": [0] * 12}, "ring does not hold each of the 12 groups once"),
    ({"ring": "abc"}, "ring does not hold"),
    ({"strategy": "Random"}, "strategy is 'Random'"),
    ({"strategy": []}, "strategy is []"),
]


def test_valid_schedules_have_no_broken_rule() -> None:
    """Healthy, damaged and as plain JSON."""
    assert check(healthy(PLACEMENT, 8)) == ()
    assert check(VALID) == ()
    assert check(VALID.to_json()) == ()


@pytest.mark.parametrize(("mutate", "rule"), COUNT_MUTATIONS)
def test_each_mutation_of_counts_is_named(mutate: Callable[[list[list[int]]], None], rule: str) -> None:
    """Lost, doubled, dead, negative, too many: the sentence says which."""
    assert any(rule in sentence for sentence in check(dataclasses.replace(VALID, counts=_counts(mutate))))


@pytest.mark.parametrize(("change", "rule"), FIELD_MUTATIONS)
def test_each_mutation_of_a_field_is_named(change: dict[str, Any], rule: str) -> None:
    """Every field of a schedule, wrong in value and in type."""
    assert any(rule in sentence for sentence in check(dataclasses.replace(VALID, **change)))


@pytest.mark.parametrize(("change", "rule"), PLAN_MUTATIONS)
def test_each_mutation_of_a_placement_is_named(change: dict[str, Any], rule: str) -> None:
    """In a plan as it comes over the wire, where no constructor has looked at it."""
    assert any(rule in sentence for sentence in check(VALID.to_json() | change))


@given(st.integers(0, 11), st.integers(0, 3), st.integers(-12, 12).filter(bool))
def test_no_single_changed_count_passes(shard: int, layer: int, change: int) -> None:
    """Whichever count changes by whatever amount, some rule is broken."""
    rows = [list(row) for row in VALID.counts]
    rows[shard][layer] += change

    assert check(dataclasses.replace(VALID, counts=tuple(map(tuple, rows)))) != ()


def test_all_broken_rules_are_listed_at_once() -> None:
    """One sentence for each rule, not only the first."""
    rows = _counts(_negative)
    broken = check(dataclasses.replace(VALID, counts=(*rows[:-1], (9, 0, 0, 0)), cap=3))

    assert len(broken) >= 4


def test_many_offenders_are_counted() -> None:
    """Five by name, the rest by number."""
    empty = dataclasses.replace(VALID, counts=((0, 0, 0, 0),) * 12)

    assert check(empty) == ("shard 0, 1, 2, 3, 4 and 7 more is not given exactly once: its counts do not sum to 8",)


def test_tables_that_differ_from_the_rule_are_caught() -> None:
    """A placement whose derived hosts are wrong is not trusted."""
    placement = place(12, 4)
    schedule = healthy(placement, 8)
    placement.__dict__["host_table"] = ((1, 2, 3, 4), *placement.host_table[1:])

    assert "shard 0 has other hosts than the placement's rule says" in check(schedule)


def test_loads_that_differ_from_the_counts_are_caught() -> None:
    """A load that a solver handed over wrongly does not pass."""
    schedule = healthy(place(12, 4), 8)
    schedule.__dict__["loads"] = (7, *schedule.loads[1:])

    assert "group 0 reports a load that is not its own" in check(schedule)


def test_a_plan_without_keys_says_which() -> None:
    """A mapping that is no plan names what it lacks."""
    assert check({"groups": 3})[0].startswith("keys are missing: redundancy, offsets")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(VALID.to_json())), JSON)
@settings(max_examples=300)
def test_the_judge_never_raises_on_a_plan(key: str, value: object) -> None:
    """Any JSON value in the place of any field: an answer, and unless it is the same value, not the empty one."""
    answer = check(VALID.to_json() | {key: value})

    assert answer or key in ("cap", "ring")


@given(JSON, JSON, JSON, JSON)
def test_the_judge_never_raises_on_garbage(a: Any, b: Any, c: Any, d: Any) -> None:
    """Values of any type for any argument give sentences."""
    assert check(a) != ()
    assert check_ranges(a, b, c) != ()
    assert isinstance(check_ranges(PLACEMENT, 8, c), tuple)
    assert isinstance(check_patch(PLACEMENT, 8, b, c, d), tuple)
    assert check(dataclasses.replace(VALID, placement=a)) != ()


def _step() -> dict[int, list[tuple[int, int, int]]]:
    return {group: [tuple(part) for part in VALID.ranges(group)] for group in LIVE}  # type: ignore[misc]


RANGE_MUTATIONS: list[tuple[Callable[[dict[Any, Any]], Any], str]] = [
    (lambda step: step.pop(0), "has micro-batches that nobody computes"),
    (lambda step: step[1].append(step[1][0]), "has micro-batches that are given twice"),
    (lambda step: step[1].append(step[2][0]), "group 1 computes a shard that it does not host"),
    (lambda step: step[1].append((12, 0, 1)), "group 1 has a range outside the step"),
    (lambda step: step[1].append((0, 7, 2)), "group 1 has a range outside the step"),
    (lambda step: step[1].append((0, 7, 0)), "group 1 has a range outside the step"),
    (lambda step: step[1].append((0, 7)), "group 1 has (0, 7), which is no range"),
    (lambda step: step.update({99: [(0, 0, 1)]}), "group 99 does not exist"),
    (lambda step: step.update({"0": []}), "group 0 does not exist"),
    (lambda step: step.update({1: 5}), "cannot be read: TypeError"),
]


def test_the_ranges_of_a_valid_schedule_are_a_step() -> None:
    """Disjoint, complete and hosted."""
    assert check_ranges(PLACEMENT, 8, _step()) == ()


@pytest.mark.parametrize(("mutate", "rule"), RANGE_MUTATIONS)
def test_each_mutation_of_ranges_is_named(mutate: Callable[[dict[Any, Any]], Any], rule: str) -> None:
    """Incomplete, doubled, foreign, outside: the sentence says which."""
    step = _step()
    mutate(step)

    assert any(rule in sentence for sentence in check_ranges(PLACEMENT, 8, step))


PATCH_MUTATIONS: list[tuple[Callable[[dict[Any, Any]], Any], str]] = [
    (lambda parts: parts.pop(min(parts)), "has micro-batches that nobody computes"),
    (lambda parts: parts.update({3: parts.pop(min(parts))}), "group 3 is given something and is not live"),
    (lambda parts: parts[min(parts)].append(parts[min(parts)][0]), "has micro-batches that are given twice"),
]


@pytest.mark.parametrize(("mutate", "rule"), PATCH_MUTATIONS)
def test_each_mutation_of_a_patch_is_named(mutate: Callable[[dict[Any, Any]], Any], rule: str) -> None:
    """A patch has the rules of a step, for the missing micro-batches and live groups only."""
    parts = {group: list(ranges) for group, ranges in PATCH.items()}

    assert check_patch(PLACEMENT, 8, LIVE, MISSING, parts) == ()
    mutate(parts)

    assert any(rule in sentence for sentence in check_patch(PLACEMENT, 8, LIVE, MISSING, parts))


def test_a_patch_for_what_is_not_missing_is_named() -> None:
    """Computing again what a survivor holds breaks the rule that nothing is computed twice."""
    held = mask_of([PATCH[min(PATCH)][0]], 8)

    assert any("not wanted" in s for s in check_patch(PLACEMENT, 8, LIVE, MISSING & ~held, PATCH))


def test_a_missing_set_that_is_none_is_named() -> None:
    """Negative, of another type, or of a larger job."""
    assert check_patch(PLACEMENT, 8, LIVE, -1, {}) == ("missing is no bit mask",)
    assert check_patch(PLACEMENT, 8, LIVE, "x", {}) == ("missing is no bit mask",)  # type: ignore[arg-type]
    assert check_patch(PLACEMENT, 8, LIVE, 1 << 96, {}) == ("missing has bit 96, beyond the step",)


def test_the_judge_agrees_with_every_partition_of_a_step() -> None:
    """Touching ranges of different hosts are complete together: no rule asks for one range per shard."""
    placement = Placement(2, 2, (0, 1), "Golomb", (0, 1))

    assert check_ranges(placement, 4, {0: [Range(0, 0, 1), Range(0, 2, 2), Range(1, 0, 4)], 1: [(0, 1, 1)]}) == ()


def test_a_schedule_is_judged_by_its_own_cap() -> None:
    """A cap above the least is allowed: the judge says valid or not, the solver's tests say best or not."""
    assert check(Schedule(PLACEMENT, 8, VALID.live, VALID.counts, VALID.cap + 5)) == ()
