"""What each group of a job would compute once some are lost, and why: the planner's answers, in words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from spare.api.job import SPAReJob
from spare.api.spec import Scheduler
from spare.planner import (
    Range,
    Reorder,
    Schedule,
    WipeOut,
    by_whole_shards,
    healthy,
    healthy_shards,
    patch,
    place,
    ranges_of,
    recommended_redundancy,
    reorder,
)
from spare.planner.words import counted


def explain_losses(job: SPAReJob, lost: tuple[int, ...], redundancy: int | None, as_json: bool = False) -> str:
    """The patch of the step in flight and the schedule from the next step on.

    Raises:
        click.UsageError: a group that the job has not, or all of them.
    """
    n, m = job.spec.groups, job.spec.micro_batches
    for group in lost:
        if not 0 <= group < n:
            raise click.UsageError(f"--lost names group {group}; the job has the groups 0 to {n - 1}")
    if len(lost) == n:
        raise click.UsageError(f"--lost names all {n} groups of the job; one has to live for anything to be computed")
    given = redundancy or job.spec.redundancy
    r = given if isinstance(given, int) else recommended_redundancy(n, job.spec.parts)
    if r > n:
        raise click.UsageError(f"--redundancy is {r}; allowed is 1 to groups, {n}")
    placement = place(n, r, job.spec.placement.strategy.value)
    whole = job.spec.scheduler is Scheduler.WHOLE_SHARDS
    before = (healthy_shards if whole else healthy)(placement, m)
    live = [group for group in range(n) if group not in lost]
    missing = 0
    for group in lost:
        missing |= before.mask(group)
    try:
        after = by_whole_shards(before, lambda coarse: reorder(coarse, live)) if whole else reorder(before, live)
        patches = patch(placement, m, live, missing)
    except WipeOut as wiped:
        hosts = {shard: placement.hosts(shard) for shard in wiped.shards}
        if as_json:
            return json.dumps({"wipeOut": list(wiped.shards), "hosts": {str(s): list(h) for s, h in hosts.items()}})
        lines = "\n".join(f"  shard {shard} lay on {_counted('group', found)} only" for shard, found in hosts.items())
        return f"{wiped}\n{lines}\nThe job does what spec.onWipeOut says: {job.spec.on_wipe_out.value}."
    if as_json:
        return json.dumps(_document(before, after, patches, missing), indent=2)
    return "\n".join(_lines(before, after, patches, missing))


def _lines(before: Schedule, after: Reorder, patches: dict[int, tuple[Range, ...]], missing: int) -> list[str]:
    placement, m = before.placement, before.micro_batches
    gone = missing.bit_count()
    are = "is" if gone == 1 else "are"
    lines = [
        after.reason,
        "",
        f"{counted(placement.groups, 'group')}, each hosts {counted(placement.redundancy, 'shard')} of"
        f" {counted(m, 'micro-batch')}. Of the step in flight {counted(gone, 'micro-batch')} {are} lost, and {are}"
        " computed again by hosts of their shards.",
        "",
    ]
    for group in after.schedule.live:
        old, new = before.mask(group), after.schedule.mask(group)
        more, less = ranges_of(new & ~old, m), ranges_of(old & ~new, m)
        load = after.schedule.load(group)
        own = f"hosts {_list(placement.stack(group))}; computes {counted(load, 'micro-batch')} a step"
        lines.append(f"group {group}: {own}")
        lines.append(f"    each step   {_named(after.schedule.ranges(group))}")
        if more:
            lines.append(f"    new         {_named(more)}: {_why(more, before, after)}")
        if less:
            lines.append(f"    given away  {_named(less)}: {_why_less(group, less, before, after.schedule)}")
        if patches.get(group):
            lines.append(f"    patch now   {_named(patches[group])}: missing of the step in flight")
    return lines


def _why(more: tuple[Range, ...], before: Schedule, after: Reorder) -> str:
    """Which of the shards lost a host, and which were only moved."""
    hosts = before.placement.host_table
    lost = sorted({part.shard for part in more if set(hosts[part.shard]) & set(after.left)})
    moved = sorted({part.shard for part in more} - set(lost))
    reasons = [f"shard {s} lost {_counted('host', sorted(set(hosts[s]) & set(after.left)))}" for s in lost]
    reasons += [f"shard {s} moved to even the loads out" for s in moved]
    return ", ".join(reasons)


def _why_less(group: int, less: tuple[Range, ...], before: Schedule, after: Schedule) -> str:
    """A smaller share of the shard, or the same one with other indices: those follow from the order of the hosts."""
    placement = before.placement
    fewer = []
    for shard in sorted({part.shard for part in less}):
        layer = placement.stack(group).index(shard)
        if after.counts[shard][layer] < before.counts[shard][layer]:
            fewer.append(shard)
    if fewer:
        return f"its share of {_counted('shard', fewer)} is smaller, to even the loads out"
    return "its share is as large as before, but a shard's micro-batches are counted off in the order of its hosts"


def _document(before: Schedule, after: Reorder, patches: dict[int, tuple[Range, ...]], missing: int) -> dict[str, Any]:
    return {
        "reason": after.reason,
        "depth": after.depth,
        "lost": list(after.left),
        "missing": missing.bit_count(),
        "groups": [
            {
                "group": group,
                "hosts": list(before.placement.stack(group)),
                "load": after.schedule.load(group),
                "step": [list(part) for part in after.schedule.ranges(group)],
                "patch": [list(part) for part in patches.get(group, ())],
            }
            for group in after.schedule.live
        ],
    }


def _named(ranges: tuple[Range, ...]) -> str:
    """ "2[0-3] 5[7]": shard and its micro-batches."""
    return " ".join(
        f"{part.shard}[{part.first}{f'-{part.first + part.count - 1}' if part.count > 1 else ''}]" for part in ranges
    )


def _list(numbers: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, numbers))


def _counted(noun: str, numbers: Sequence[int]) -> str:
    """ "host 3", "hosts 3, 7"."""
    return f"{noun}{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"
