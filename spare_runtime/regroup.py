"""What the members of a new plan make of each other's facts (docs/protocol.md, regroup 3 and 4). Pure.

Every member reads the same facts and computes the same outcome: who commits a step that it holds reduced, which step is
in flight, what of the local sums still counts, and who computes what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from spare.planner import Placement, patch
from spare.planner.words import counted


@dataclass(frozen=True)
class Facts:
    """What one member says of itself in the exchange."""

    group: int
    committed: int
    """Steps committed; also the number (from 0) of the step in flight."""
    reduced: int | None
    """Epoch of the reduction whose complete result for the step in flight this group holds in W; None: it holds
    none."""
    whole: bool
    """It has the whole training state. A joiner that has not loaded yet has not."""
    held: int
    """Micro-batches of the step in flight in its local sum, as a bit mask (bit = shard * m + index)."""
    checksum: str
    """Over its parameters, at `committed`."""
    serves: str = ""
    """Address at which it would give its training state to a joiner."""
    begun_again: int = 0
    """How often the step in flight was begun again because its sum did not fit. It counts as progress as a commit
    does: it, too, is decided by what all hold reduced behind a barrier."""
    overflown: bool = False
    """What this group holds reduced does not fit: whoever acts on it begins the step again instead of committing it."""
    reduction: str = ""
    """How it sums gradients."""

    def to_text(self) -> str:
        """As it is written into the store."""
        return json.dumps([_runs(value) if name == "held" else value for name, value in vars(self).items()])

    @classmethod
    def of_text(cls, text: str) -> Facts:
        """The inverse of `to_text`."""
        values = dict(zip((f.name for f in fields(cls)), json.loads(text), strict=True))
        return cls(**values | {"held": _mask(values["held"])})

    @property
    def turn(self) -> tuple[int, int]:
        """How far it has come."""
        return self.committed, self.begun_again


def _runs(mask: int) -> list[int]:
    """The set bits as first, count, first, count, ...: as a mask, what one of 1,000 groups holds is kilobytes, and each
    member reads what all hold."""
    found, at = list[int](), 0
    while mask:
        gap = (mask & -mask).bit_length() - 1
        mask >>= gap
        count = (~mask & mask + 1).bit_length() - 1
        mask >>= count
        found += [at + gap, count]
        at += gap + count
    return found


def _mask(runs: list[int]) -> int:
    """The inverse."""
    mask = 0
    for first, count in zip(runs[::2], runs[1::2], strict=True):
        mask |= (1 << count) - 1 << first
    return mask


@dataclass(frozen=True)
class Outcome:
    """What one member has to do after the exchange."""

    step: int
    """Steps committed by every member with state once this outcome is carried out."""
    commit: bool
    """Commit the reduced gradient in W now."""
    held: bool
    """The local sum still counts for the step in flight; else it is dropped."""
    assigned: int
    """Micro-batches to compute beyond what is held, as a bit mask."""
    skipped: int
    """Micro-batches of the step in flight that are left out of its sum, as a bit mask; the same at every member."""
    load_from: int | None
    """Load the training state from this group first; None where the state is whole."""
    gives: bool = False
    """Give the training state to the members that have not got it."""
    wiped_out: bool = False
    """Nobody has the state: only a restart from a checkpoint helps."""
    align: int | None = None
    """Before the first step parameters differ: all take those of this group."""
    diverged: str | None = None
    """Members at the same step differ in their parameters: who, for people."""
    mixed: str | None = None
    """Members sum gradients in different ways: who, for people."""


def outcome(
    me: int,
    facts: Mapping[int, Facts],
    placement: Placement,
    micro_batches: int,
    schedule: int,
    skips: Mapping[int, int] = MappingProxyType({}),
) -> Outcome:
    """The outcome for member `me`.

    Args:
        me: My group.
        facts: Of every member, mine included.
        placement: Who hosts what.
        micro_batches: m, per shard and step.
        schedule: The plan's own micro-batches for me in a healthy step, as a bit mask.
        skips: What the plan leaves out of the sum, as a bit mask by step. What somebody holds already is not left out.

    Raises:
        spare.planner.WipeOut: a missing micro-batch has no live host with state.
    """
    mine = facts[me]
    whole = [facts[g] for g in sorted(facts) if facts[g].whole]
    if not whole:
        return Outcome(mine.committed, False, False, 0, 0, None, wiped_out=True)
    newest = max(f.turn for f in whole)
    behind = {f.group for f in whole if f.turn < newest}
    # All hold the result of one and the same reduction: each may have been seen committed by somebody now dead.
    everybody = not behind and whole[0].reduced is not None and len({f.reduced for f in whole}) == 1
    commit = mine.whole and (me in behind or everybody)
    step, again = newest
    if everybody:
        step, again = (step, again + 1) if whole[0].overflown else (step + 1, 0)
    held = {f.group: f.held for f in whole if f.turn == (step, again)}
    union = 0
    for mask in held.values():
        union |= mask
    skipped = skips.get(step, 0) & ~union
    every = (1 << placement.groups * micro_batches) - 1 & ~skipped
    able = [f.group for f in whole]
    if union == 0 and len(able) == len(facts):
        assigned = schedule & ~skipped
    else:
        missing = every & ~union
        ranges = patch(placement, micro_batches, able, missing).get(me, ()) if missing else ()
        assigned = 0
        for shard, first, count in ranges:
            assigned |= ((1 << count) - 1) << (shard * micro_batches + first)
    donor = next(f.group for f in whole if f.turn == newest)
    differ, text = _differ([f for f in whole if f.turn == newest])
    return Outcome(
        step=step,
        commit=commit,
        held=me in held,
        assigned=assigned,
        skipped=skipped,
        load_from=None if mine.whole else donor,
        gives=me == donor and len(able) < len(facts),
        align=_source(whole) if differ and step == 0 else None,
        diverged=text if differ and step > 0 else None,
        mixed=_mixed(facts.values()),
    )


def _source(members: list[Facts]) -> int:
    """Whose first parameters are taken: those that gradients at hand were computed with, else the lowest member's."""
    return next((f.group for f in members if f.held or f.reduced is not None), members[0].group)


def _differ(members: list[Facts]) -> tuple[bool, str]:
    differ, groups = _by((f.checksum, f.group) for f in members)
    return differ, f"parameters differ after {counted(members[0].committed, 'step')}: {groups}"


def _mixed(members: Iterable[Facts]) -> str | None:
    mixed, groups = _by((f"reduction={f.reduction!r}", f.group) for f in members)
    return f"every group must sum gradients in the same way: {groups}" if mixed else None


def _by(pairs: Iterable[tuple[str, int]]) -> tuple[bool, str]:
    """Whether groups have different values, and who has which."""
    found: dict[str, list[int]] = {}
    for value, group in pairs:
        found.setdefault(value, []).append(group)
    return len(found) > 1, "; ".join(f"groups {', '.join(map(str, g))} have {value}" for value, g in found.items())
