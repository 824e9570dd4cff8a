"""The audit of a job's ledgers: is every micro-batch of every committed step in its gradient exactly once? Pure.

A ledger line is JSON: `{"step", "epoch", "enters"}` when a group enters a reduction with the micro-batches in `enters`,
`{"step", "commits", "computed"[, "again", "skipped", "digest"]}` when it commits the result of the reduction of epoch
`commits`.
`{"step", "begins_again", "computed"}` tells that nobody applied a reduction, whose sum did not fit its scales, and that
all computed the step again: the reduction that counts is the last one of its epoch.
Sets of micro-batches are hexadecimal bit masks, bit = shard * m + index.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Audit:
    """What the ledgers of all groups say together."""

    steps: int
    """Steps that somebody committed."""
    entries: int
    """Micro-batches in the gradients of those steps, each counted as often as it is in one."""
    lost: int
    """Micro-batches missing from a committed step's gradient."""
    doubled: int
    """Micro-batches in a committed step's gradient more than once, counted beyond the first."""
    repeated: int
    """Micro-batches that groups which committed the step computed although one of them had computed them already."""
    problems: tuple[str, ...]
    """Each broken rule, as a sentence."""
    skipped: tuple[tuple[int, int, int], ...] = ()
    """(step, shard, index) of the micro-batches that all agreed to leave out, because they killed groups. They are not
    counted as lost."""

    @property
    def exact(self) -> bool:
        """Exactly once, and all or none."""
        return not self.problems


@dataclass
class _Step:
    commits: dict[str, int]
    computed: dict[str, int]
    again: int
    digests: dict[str, str]
    skipped: dict[str, int]


def audit(ledgers: Mapping[str, Iterable[str | bytes]], groups: int, micro_batches: int) -> Audit:
    """Audit the ledgers of one run.

    Args:
        ledgers: Lines of each ledger, by a name that tells group and incarnation. A torn last line (the process died
            while writing it) counts as not written.
        groups: N.
        micro_batches: m.
    """
    entered: dict[tuple[int, int], dict[str, int]] = {}
    steps: dict[int, _Step] = {}
    problems: list[str] = []
    for name in sorted(ledgers):
        for raw in ledgers[name]:
            entry = _entry(raw)
            if entry is None or "fault" in entry or "begins_again" in entry:
                continue
            step = int(entry["step"])
            if "enters" in entry:
                entered.setdefault((step, int(entry["epoch"])), {})[name] = int(entry["enters"], 16)
                continue
            known = steps.setdefault(step, _Step({}, {}, 0, {}, {}))
            if name in known.commits:
                problems.append(f"step {step} was committed twice by {name}")
            known.commits[name] = int(entry["commits"])
            known.computed[name] = int(entry["computed"], 16)
            known.again += int(entry.get("again", 0))
            known.skipped[name] = int(entry.get("skipped", "0"), 16)
            if "digest" in entry:
                known.digests[name] = str(entry["digest"])
    lost = doubled = repeated = entries = 0
    left_out: list[tuple[int, int, int]] = []
    every = (1 << groups * micro_batches) - 1
    for step in sorted(steps):
        known = steps[step]
        repeated += known.again + _overlap(known.computed.values())
        if len(set(known.commits.values())) > 1:
            problems.append(f"step {step} was committed from different reductions: {known.commits}")
        if len(set(known.digests.values())) > 1:
            problems.append(f"parameters differ after step {step}: {known.digests}")
        parts = entered.get((step, min(known.commits.values())), {})
        union = 0
        for mask in parts.values():
            union |= mask
        skipped = min(known.skipped.values())
        if set(known.skipped.values()) != {skipped} or skipped & union:
            problems.append(f"step {step}: what was skipped is counted, or not the same: {_hex(known.skipped)}")
        left_out.extend(
            (step, *divmod(bit, micro_batches)) for bit in range(skipped.bit_length()) if skipped >> bit & 1
        )
        twice, missing = _overlap(parts.values()), (every & ~union & ~skipped).bit_count()
        lost, doubled, entries = lost + missing, doubled + twice, entries + union.bit_count() + twice
        if twice or missing:
            problems.append(f"step {step}: {missing} micro-batches missing, {twice} more than once: {_hex(parts)}")
    problems.extend(f"step {step} was never committed" for step in _gaps(steps))
    for name in sorted(ledgers):
        own = [step for step in steps if name in steps[step].commits]
        problems.extend(
            f"step {step} was committed by others and skipped by {name}" for step in _gaps(own) if step in steps
        )
    return Audit(len(steps), entries, lost, doubled, repeated, tuple(problems), tuple(left_out))


def _entry(raw: str | bytes) -> dict[str, str] | None:
    try:
        entry = json.loads(raw)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _overlap(masks: Iterable[int]) -> int:
    union = total = 0
    for mask in masks:
        union |= mask
        total += mask.bit_count()
    return total - union.bit_count()


def _gaps(steps: Collection[int]) -> list[int]:
    return [s for s in range(min(steps, default=0), max(steps, default=-1)) if s not in steps]


def _hex(parts: Mapping[str, int]) -> dict[str, str]:
    return {name: f"{mask:x}" for name, mask in parts.items()}
