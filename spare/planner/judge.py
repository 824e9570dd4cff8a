"""The one judge: is this schedule, this patch, this set of ranges what it must be?

Written from the definitions alone, on intervals and plain sums, and sharing no code with what it judges (not even the
tables of a placement). Each broken rule is one sentence; an empty answer means valid. The judge never raises: plans
come from the network, from files and from other versions, and "this is garbage" is an answer like any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, NamedTuple, ParamSpec, TypeGuard

from spare.planner.placement import Placement
from spare.planner.schedule import Schedule

_P = ParamSpec("_P")
_NAMED = 5  # offenders that a sentence names
_STRATEGIES = ("Golomb", "Consecutive")


class _Facts(NamedTuple):
    """The raw values of a plan: of any type until a rule has looked at them."""

    groups: Any
    redundancy: Any
    offsets: Any
    strategy: Any
    ring: Any
    micro_batches: Any
    live: Any
    counts: Any
    cap: Any
    speeds: Any = ()


def _never_raises(rules: Callable[_P, list[str]]) -> Callable[_P, tuple[str, ...]]:
    """Turn what garbage makes Python raise into a sentence."""

    @wraps(rules)
    def judged(*args: _P.args, **kwargs: _P.kwargs) -> tuple[str, ...]:
        try:
            return tuple(rules(*args, **kwargs))
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
            return (f"cannot be read: {type(error).__name__}: {error}",)

    return judged


@_never_raises
def check(plan: object, native: int | None = None) -> list[str]:
    """Every rule that a schedule breaks.

    Args:
        plan: a ``Schedule``, or the mapping that ``Schedule.to_json`` gives.
        native: how many of the placement's layers hold the job's data; None: all of them. What is computed in layers
            beyond has to be fetched, which is allowed only while some shard has no live host in the first ones.

    Returns:
        One sentence per broken rule, naming up to five offenders; empty for a valid schedule. The rules: the placement
        is one (r distinct offsets, a ring of all groups); the live groups are ascending and exist; counts have the
        shape (N, r) and are not negative; every micro-batch is given exactly once; nothing lies on a group that is
        not live; speeds are per cent; no group has more than the cap, a slow one not more than its share of it (but
        one); the cap is not below what the live groups need together, ceil(N*m / live) when all are healthy. Of a
        ``Schedule`` the tables, the loads and the ranges that it derives are judged as well.

    Cost: O(N * r).
    """
    facts = _facts(plan)
    if isinstance(facts, str):
        return [facts]
    # Each layer of rules has a meaning only if the one before holds.
    broken = _size_rules(facts)
    if not broken and facts.ring is None:
        facts = facts._replace(ring=range(facts.groups))
    broken = broken or _placement_rules(facts)
    broken = broken or _live_rules(facts) + _shape_rules(facts)
    broken = broken or _count_rules(facts)
    if not broken and native is not None:
        broken = _fetch_rules(facts, native)
    if not broken and isinstance(plan, Schedule):
        broken = _derived_rules(plan)
    return broken


@_never_raises
def check_ranges(
    placement: Placement, micro_batches: int, ranges: Mapping[int, Iterable[tuple[int, int, int]]]
) -> list[str]:
    """Every rule that a whole step breaks, as the agents see it.

    Args:
        placement: who hosts what.
        micro_batches: m.
        ranges: for each group the (shard, first, count) that it computes.

    Returns:
        One sentence per broken rule: groups and ranges exist, each range lies on a host of its shard, no micro-batch
        is given twice, none is missing.
    """
    return _range_rules(placement, micro_batches, ranges, {i: [(0, micro_batches)] for i in range(placement.groups)})


@_never_raises
def check_patch(
    placement: Placement,
    micro_batches: int,
    live: Iterable[int],
    missing: int,
    patch: Mapping[int, Iterable[tuple[int, int, int]]],
) -> list[str]:
    """Every rule that a patch breaks: as ``check_ranges``, for the missing micro-batches and live groups only.

    Args:
        placement, micro_batches: as ``check_ranges``.
        live: the live groups.
        missing: bit mask of what is missing, bit shard * m + index.
        patch: for each group the (shard, first, count) that it computes.
    """
    if not _whole(missing) or missing < 0:
        return ["missing is no bit mask"]
    if missing.bit_length() > placement.groups * micro_batches:
        return [f"missing has bit {missing.bit_length() - 1}, beyond the step"]
    dead = sorted(set(patch) - set(live))
    broken = _sentence(dead, "group", "is given something and is not live")
    return broken + _range_rules(placement, micro_batches, patch, _wanted(missing, micro_batches))


def _facts(plan: object) -> _Facts | str:
    if isinstance(plan, Schedule):
        place = plan.placement
        values = (place.groups, place.redundancy, place.offsets, place.strategy, place.ring)
        return _Facts(*values, plan.micro_batches, plan.live, plan.counts, plan.cap, plan.speeds)
    if not isinstance(plan, Mapping):
        return f"a plan is a schedule or a mapping, and this is a {type(plan).__name__}"
    names = ("groups", "redundancy", "offsets", "strategy", "microBatches", "live", "counts", "cap")
    absent = [name for name in names if name not in plan]
    if absent:
        return f"keys are missing: {', '.join(absent)}"
    n, r, offsets, strategy, *rest = (plan[name] for name in names)
    # No ring means the identity; left None until groups is known not to be a number that fills the memory.
    return _Facts(n, r, offsets, strategy, plan.get("ring"), *rest)._replace(speeds=plan.get("speeds", ()))


def _size_rules(facts: _Facts) -> list[str]:
    n, r, rows = facts.groups, facts.redundancy, facts.counts
    if not _whole(n) or n < 1:
        return [f"groups is {n!r}; allowed is 1 or more"]
    if not _whole(r) or not 1 <= r <= n:
        return [f"redundancy is {r!r}; allowed is 1 to {n}"]
    if not isinstance(rows, Sequence) or len(rows) != n:
        return [f"counts has not one row for each of the {n} shards"]
    return []


def _placement_rules(facts: _Facts) -> list[str]:
    n, r, offsets, ring = facts.groups, facts.redundancy, facts.offsets, facts.ring
    broken = []
    if not _wholes(offsets) or len(offsets) != r or len(set(offsets)) != r:
        broken.append(f"offsets are not {r} distinct numbers: each shard needs {r} hosts, each group {r} shards")
    elif offsets[0] != 0 or not all(0 <= o < n for o in offsets):
        broken.append(f"offsets must lie in [0, {n}) and start with 0")
    if not _wholes(ring) or len(ring) != n or set(ring) != set(range(n)):
        broken.append(f"ring does not hold each of the {n} groups once")
    if facts.strategy not in _STRATEGIES:
        broken.append(f"strategy is {facts.strategy!r}; allowed are {', '.join(_STRATEGIES)}")
    return broken


def _live_rules(facts: _Facts) -> list[str]:
    live = facts.live
    if not _wholes(live):
        return ["live is no list of group numbers"]
    broken = _sentence([g for g in live if not 0 <= g < facts.groups], "live group", "does not exist")
    if not live:
        broken.append("no group is live")
    if any(a >= b for a, b in pairwise(live)):
        broken.append("live is not ascending: the rank of a group is its place in it")
    return broken


def _shape_rules(facts: _Facts) -> list[str]:
    broken = []
    if not _whole(facts.micro_batches) or facts.micro_batches < 1:
        broken.append(f"micro-batches per shard is {facts.micro_batches!r}; allowed is 1 or more")
    if not _whole(facts.cap):
        broken.append(f"cap is {facts.cap!r}; allowed is a whole number")
    speeds = facts.speeds
    if not _wholes(speeds) or len(speeds) not in (0, facts.groups) or not all(1 <= speed <= 100 for speed in speeds):
        broken.append(f"speeds are not one number of 1 to 100 per cent for each of the {facts.groups} groups")
    bad = [i for i, row in enumerate(facts.counts) if not _wholes(row) or len(row) != facts.redundancy]
    return broken + _sentence(bad, "shard", f"has not one count for each of its {facts.redundancy} hosts")


def _count_rules(facts: _Facts) -> list[str]:
    n, m, live = facts.groups, facts.micro_batches, set(facts.live)
    load, on_dead = [0] * n, []
    for shard, row in enumerate(facts.counts):
        for offset, count in zip(facts.offsets, row, strict=True):
            host = facts.ring[(shard - offset) % n]
            load[host] += count
            if count and host not in live:
                on_dead.append(shard)
    negative = [i for i, row in enumerate(facts.counts) if min(row) < 0]
    partial = [i for i, row in enumerate(facts.counts) if sum(row) != m]
    # A group at half the speed may have half the cap, rounded down; but one, so that it can be seen to recover.
    most = [max(1, facts.cap * speed // 100) for speed in facts.speeds] if facts.speeds else [facts.cap] * n
    together = sum(most[group] for group in live)
    broken = _sentence(negative, "shard", "has a negative count")
    broken += _sentence(partial, "shard", f"is not given exactly once: its counts do not sum to {m}")
    broken += _sentence(on_dead, "shard", "has micro-batches on a group that is not live")
    slow = ", or of its share at its speed" if facts.speeds else ""
    broken += _sentence([g for g in range(n) if load[g] > most[g]], "group", f"is over the cap of {facts.cap}{slow}")
    if facts.speeds and together < n * m:
        broken.append(f"cap is {facts.cap}; with these speeds {together} of {n} * {m} micro-batches fit")
    elif together < n * m:
        bound = -(-n * m // len(live))
        broken.append(f"cap is {facts.cap}; no schedule is below ceil({n} * {m} / {len(live)}) = {bound}")
    return broken


def _fetch_rules(facts: _Facts, native: int) -> list[str]:
    """Nothing is fetched without need, and the job's own layers are the first ones."""
    n, r, live = facts.groups, facts.redundancy, set(facts.live)
    if not _whole(native) or not 1 <= native <= r:
        return [f"native is {native!r}; allowed is 1 to the placement's redundancy, {r}"]
    hosted = [any(facts.ring[(i - o) % n] in live for o in facts.offsets[:native]) for i in range(n)]
    if r > native and all(hosted):
        return ["shards are fetched though each has a live host"]
    return []


def _derived_rules(plan: Schedule) -> list[str]:
    """What a schedule says of itself, against its own definition."""
    place, m = plan.placement, plan.micro_batches
    n, load = place.groups, [0] * place.groups
    wrong_tables = []
    for shard, row in enumerate(plan.counts):
        hosts = tuple(place.ring[(shard - offset) % n] for offset in place.offsets)
        if place.hosts(shard) != hosts or [place.stack(h)[j] for j, h in enumerate(hosts)] != [shard] * len(hosts):
            wrong_tables.append(shard)
        for host, count in zip(hosts, row, strict=True):
            load[host] += count
    broken = _sentence(wrong_tables, "shard", "has other hosts than the placement's rule says")
    broken += _sentence([g for g in range(n) if plan.load(g) != load[g]], "group", "reports a load that is not its own")
    ranges = {group: plan.ranges(group) for group in plan.live}
    return broken + _range_rules(place, m, ranges, {i: [(0, m)] for i in range(n)})


def _range_rules(
    place: Placement, m: int, ranges: Mapping[Any, Iterable[Any]], wanted: Mapping[int, list[tuple[int, int]]]
) -> list[str]:
    """The rules on ranges; ``wanted`` has the intervals (first, end) of each shard that must be covered exactly."""
    n, given, broken = place.groups, dict[int, list[tuple[int, int]]](), list[str]()
    position = {group: at for at, group in enumerate(place.ring)}
    strangers, strays, foreign = [], [], []
    for group, parts in ranges.items():
        if not _whole(group) or group not in position:
            strangers.append(group)
            continue
        for part in parts:
            if not _wholes(part) or len(part) != 3:
                broken.append(f"group {group} has {part!r}, which is no range")
                continue
            shard, first, count = part
            if not 0 <= shard < n or first < 0 or count < 1 or first + count > m:
                strays.append(group)
                continue
            if (shard - position[group]) % n not in place.offsets:
                foreign.append(group)
            given.setdefault(shard, []).append((first, first + count))
    broken += _sentence(strangers, "group", "does not exist")
    broken += _sentence(strays, "group", "has a range outside the step")
    broken += _sentence(foreign, "group", "computes a shard that it does not host")
    twice, missing, surplus = [], [i for i in wanted if i not in given], []
    for shard, intervals in sorted(given.items()):
        union, want = _join(intervals), wanted.get(shard, [])
        if len(intervals) > 1 and _length(intervals) > _length(union):
            twice.append(shard)
        if union != want:
            both = _join([*union, *want])
            if both != union:
                missing.append(shard)
            if both != want:
                surplus.append(shard)
    broken += _sentence(twice, "shard", "has micro-batches that are given twice")
    broken += _sentence(sorted(missing), "shard", "has micro-batches that nobody computes")
    return broken + _sentence(surplus, "shard", "has micro-batches that are not wanted")


def _length(intervals: Iterable[tuple[int, int]]) -> int:
    return sum(end - first for first, end in intervals)


def _join(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of intervals (first, end), ascending, with touching ones joined."""
    union: list[tuple[int, int]] = []
    for first, end in sorted(intervals):
        if union and first <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((first, end))
    return union


def _wanted(missing: int, m: int) -> dict[int, list[tuple[int, int]]]:
    """The intervals of each shard in a mask, read from its digits."""
    digits = bin(missing)[:1:-1]  # lowest bit first, without the "0b"
    wanted = {}
    for start in range(0, len(digits), m):
        part = digits[start : start + m]
        if "1" in part:
            wanted[start // m] = [found.span() for found in re.finditer("1+", part)]
    return wanted


def _sentence(offenders: Sequence[Any], noun: str, verb: str) -> list[str]:
    """ "shards 3, 5: has ..." for the offenders, each once and the first few by name; nothing for none."""
    distinct = list(dict.fromkeys(offenders))
    if not distinct:
        return []
    more = f" and {len(distinct) - _NAMED} more" if len(distinct) > _NAMED else ""
    names = ", ".join(str(offender) for offender in distinct[:_NAMED])
    return [f"{noun} {names}{more} {verb}"]


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _wholes(value: object) -> TypeGuard[Sequence[int]]:
    # By exact type, all at once: the lists of a large plan hold 140,000 numbers. A text is a sequence too, of texts.
    return isinstance(value, Sequence) and set(map(type, value)) <= {int}
