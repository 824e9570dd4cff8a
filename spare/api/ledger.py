"""The audit of a job's ledgers: is every micro-batch of every committed step in its gradient exactly once? Pure.

A ledger line is JSON: `{"step", "epoch", "enters"}` when a group enters a reduction with the micro-batches in `enters`,
`{"step", "commits", "computed"[, "again", "skipped", "digest"]}` when it commits the result of the reduction of epoch
`commits`.
`{"origin", "from"}` says that what follows belongs to the history that began in epoch `origin`, with the checkpoint
`from` or, where it is empty, with step 0; without it a ledger begins in epoch 1. After a restart the steps behind its
checkpoint are computed again: what counts then is the newest history, and of earlier ones what led to its checkpoint.
`{"step", "begins_again", "computed"}` tells that nobody applied a reduction, whose sum did not fit its scales, and that
all computed the step again: the reduction that counts is the last one of its epoch.
Sets of micro-batches are hexadecimal bit masks, bit = shard * m + index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from spare.api.checkpoint import Name
from spare.planner.words import counted

_NAME = re.compile(r"group-(?P<group>\d+)(\.(?P<rank>\d+))?-")


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
    abandoned: int = 0
    """Steps that were committed and then given up by a restart from an earlier checkpoint."""

    @property
    def exact(self) -> bool:
        """Exactly once, and all or none."""
        return not self.problems


@dataclass
class _Step:
    """One step of one history, as all who committed it tell."""

    commits: dict[str, int] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)
    again: int = 0
    digests: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)


class _Books:
    """What is written in all ledgers, by history (the epoch that it began in) and step."""

    def __init__(self, ledgers: Mapping[str, Iterable[str | bytes]]) -> None:
        self.entered: dict[tuple[int, int], dict[str, int]] = {}
        """By step and epoch of the reduction."""
        self.histories: dict[int, dict[int, _Step]] = {}
        self.begun_from: dict[int, str] = {}
        self.problems: list[str] = []
        for name in sorted(ledgers):
            self._read(name, ledgers[name])

    def _read(self, name: str, lines: Iterable[str | bytes]) -> None:
        origin = 1
        for raw in lines:
            entry = _entry(raw)
            if entry is None or "fault" in entry or "begins_again" in entry:
                continue
            if "origin" in entry:
                origin = int(entry["origin"])
                self.begun_from[origin] = entry["from"]
                continue
            step = int(entry["step"])
            if "enters" in entry:
                self.entered.setdefault((step, int(entry["epoch"])), {})[name] = int(entry["enters"], 16)
                continue
            known = self.histories.setdefault(origin, {}).setdefault(step, _Step())
            if name in known.commits:
                self.problems.append(f"step {step} was committed twice by {name}")
            known.commits[name] = int(entry["commits"])
            known.computed[name] = int(entry["computed"], 16)
            known.again += int(entry.get("again", 0))
            known.skipped[name] = int(entry.get("skipped", "0"), 16)
            if "digest" in entry:
                known.digests[name] = str(entry["digest"])

    def final(self) -> tuple[int | None, dict[int, _Step]]:
        """The step that the run began with (None: with its first entry), and the steps that count in the end."""
        counted: dict[int, _Step] = {}
        origin = max([*self.histories, *self.begun_from], default=1)
        end: float = float("inf")
        while True:
            begun_from = self.begun_from.get(origin, "")
            name = Name.parse(begun_from) if begun_from else None
            first = name.step if name else 0
            counted |= {n: step for n, step in self.histories.get(origin, {}).items() if first <= n < end}
            end = min(end, first)
            if name is None or name.origin not in {*self.histories, *self.begun_from}:
                return (name.step if name else None), counted
            origin = name.origin


def whose(name: str) -> tuple[int, int]:
    """Group and rank that a ledger is of, `group-G-UID` or `group-G.R-UID`.

    Raises:
        ValueError: it is no ledger's name.
    """
    match = _NAME.match(name)
    if match is None:
        raise ValueError(f"{name!r} is no name of a ledger, such as group-3-0123456789ab or group-3.1-0123456789ab")
    return int(match["group"]), int(match["rank"] or 0)


def audit(ledgers: Mapping[str, Iterable[str | bytes]], groups: int, micro_batches: int) -> Audit:
    """Audit the ledgers of one run.

    The ranks of one number, of all groups, make reductions of their own: each number is audited by itself, and all must
    have committed the same steps. Of the counts the worst number's are given.

    Args:
        ledgers: Lines of each ledger, by its name (see `whose`; any other name is of a group of one rank). A torn last
            line (the process died while writing it) counts as not written.
        groups: N.
        micro_batches: m.
    """
    columns: dict[int, dict[str, Iterable[str | bytes]]] = {}
    for name, lines in ledgers.items():
        columns.setdefault(whose(name)[1] if _NAME.match(name) else 0, {})[name] = lines
    found = {rank: _audit(column, groups, micro_batches) for rank, column in sorted(columns.items())}
    if not found:
        return Audit(0, 0, 0, 0, 0, ())
    problems = [f"rank {rank}: {text}" if rank else text for rank, (each, _) in found.items() for text in each.problems]
    for step in sorted(set().union(*(steps for _, steps in found.values()))):
        lacking = [rank for rank, (_, steps) in found.items() if step not in steps]
        if lacking:
            problems.append(f"step {step} was committed by other ranks, and by no group's rank {lacking[0]}")
    worst = [each for each, _ in found.values()]
    return Audit(
        steps=max(each.steps for each in worst),
        entries=max(each.entries for each in worst),
        lost=max(each.lost for each in worst),
        doubled=max(each.doubled for each in worst),
        repeated=max(each.repeated for each in worst),
        problems=tuple(problems),
        skipped=tuple(sorted({micro for each in worst for micro in each.skipped})),
        abandoned=max(each.abandoned for each in worst),
    )


def _audit(
    ledgers: Mapping[str, Iterable[str | bytes]], groups: int, micro_batches: int
) -> tuple[Audit, Collection[int]]:
    """Of the ranks of one number; and the steps that they committed."""
    books = _Books(ledgers)
    problems = books.problems
    first, final = books.final()
    lost = doubled = repeated = entries = 0
    left_out: list[tuple[int, int, int]] = []
    every = (1 << groups * micro_batches) - 1
    for origin, steps in sorted(books.histories.items()):
        for step, known in sorted(steps.items()):
            repeated += known.again + _overlap(known.computed.values())
            if len(set(known.commits.values())) > 1:
                problems.append(f"step {step} was committed from different reductions: {known.commits}")
            if len(set(known.digests.values())) > 1:
                problems.append(f"parameters differ after step {step}: {known.digests}")
            parts = books.entered.get((step, min(known.commits.values())), {})
            union = 0
            for mask in parts.values():
                union |= mask
            skipped = min(known.skipped.values())
            if set(known.skipped.values()) != {skipped} or skipped & union:
                problems.append(f"step {step}: what was skipped is counted, or not the same: {_hex(known.skipped)}")
            if final.get(step) is known:
                left_out += [(step, *divmod(bit, micro_batches)) for bit in _bits(skipped)]
            twice, missing = _overlap(parts.values()), (every & ~union & ~skipped).bit_count()
            lost, doubled = lost + missing, doubled + twice
            entries += (union.bit_count() + twice) * (final.get(step) is known)
            if twice or missing:
                wrong = f"{counted(missing, 'micro-batch')} missing, {twice} more than once"
                problems.append(f"step {step}: {wrong}: {_hex(parts)}")
        for name in sorted(ledgers):
            own = [step for step in steps if name in steps[step].commits]
            problems.extend(
                f"step {step} was committed by others and skipped by {name}" for step in _gaps(own) if step in steps
            )
        _check_begin(books, origin, problems)
    problems.extend(f"step {step} was never committed" for step in _gaps(final, first))
    abandoned = sum(map(len, books.histories.values())) - len(final)
    whole = Audit(len(final), entries, lost, doubled, repeated, tuple(problems), tuple(sorted(left_out)), abandoned)
    return whole, final.keys()


def _check_begin(books: _Books, origin: int, problems: list[str]) -> None:
    """A history goes on where its checkpoint ends."""
    begun_from = books.begun_from.get(origin, "")
    if begun_from and min(books.histories[origin]) != Name.parse(begun_from).step:
        problems.append(
            f"the history of epoch {origin} begins with step {min(books.histories[origin])}, and its checkpoint is "
            f"{begun_from}"
        )


def _entry(raw: str | bytes) -> dict[str, str] | None:
    try:
        entry = json.loads(raw)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def _overlap(masks: Iterable[int]) -> int:
    union = total = 0
    for mask in masks:
        union |= mask
        total += mask.bit_count()
    return total - union.bit_count()


def _gaps(steps: Collection[int], first: int | None = None) -> list[int]:
    begin = min(steps, default=0) if first is None else first
    return [s for s in range(begin, max(steps, default=-1)) if s not in steps]


def _hex(parts: Mapping[str, int]) -> dict[str, str]:
    return {name: f"{mask:x}" for name, mask in parts.items()}
