"""What the members of a new plan make of each other's facts (design, section 6, rules 3 and 4). Pure.

Every member reads the same facts and computes the same outcome: who commits a step that it holds reduced, which step is
in flight, what of the local sums still counts, and who computes what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from spare.planner import Placement, patch


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

    def to_text(self) -> str:
        """As it is written into the store."""
        held = f"{self.held:x}"
        return json.dumps([self.group, self.committed, self.reduced, self.whole, held, self.checksum, self.serves])

    @classmethod
    def of_text(cls, text: str) -> Facts:
        """The inverse of `to_text`."""
        group, committed, reduced, whole, held, checksum, serves = json.loads(text)
        return cls(group, committed, reduced, whole, int(held, 16), checksum, serves)


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


def outcome(me: int, facts: Mapping[int, Facts], placement: Placement, micro_batches: int, schedule: int) -> Outcome:
    """The outcome for member `me`.

    Args:
        me: My group.
        facts: Of every member, mine included.
        placement: Who hosts what.
        micro_batches: m, per shard and step.
        schedule: The plan's own micro-batches for me in a healthy step, as a bit mask.

    Raises:
        spare.planner.WipeOut: a missing micro-batch has no live host with state.
    """
    mine = facts[me]
    whole = [facts[g] for g in sorted(facts) if facts[g].whole]
    if not whole:
        return Outcome(mine.committed, False, False, 0, None, wiped_out=True)
    newest = max(f.committed for f in whole)
    behind = {f.group for f in whole if f.committed < newest}
    # All hold the result of one and the same reduction: each may have been seen committed by somebody now dead.
    everybody = not behind and whole[0].reduced is not None and len({f.reduced for f in whole}) == 1
    commit = mine.whole and (me in behind or everybody)
    step = newest + everybody
    held = {f.group: f.held for f in whole if f.committed == step}
    union = 0
    for mask in held.values():
        union |= mask
    every = (1 << placement.groups * micro_batches) - 1
    able = [f.group for f in whole]
    if union == 0 and len(able) == len(facts):
        assigned = schedule
    else:
        missing = every & ~union
        ranges = patch(placement, micro_batches, able, missing).get(me, ()) if missing else ()
        assigned = 0
        for shard, first, count in ranges:
            assigned |= ((1 << count) - 1) << (shard * micro_batches + first)
    donor = next(f.group for f in whole if f.committed == newest)
    differ, text = _differ([f for f in whole if f.committed == newest])
    return Outcome(
        step=step,
        commit=commit,
        held=me in held,
        assigned=assigned,
        load_from=None if mine.whole else donor,
        gives=me == donor and len(able) < len(facts),
        align=_source(whole) if differ and step == 0 else None,
        diverged=text if differ and step > 0 else None,
    )


def _source(members: list[Facts]) -> int:
    """Whose first parameters are taken: those that gradients at hand were computed with, else the lowest member's."""
    return next((f.group for f in members if f.held or f.reduced is not None), members[0].group)


def _differ(members: list[Facts]) -> tuple[bool, str]:
    sums: dict[str, list[int]] = {}
    for f in members:
        sums.setdefault(f.checksum, []).append(f.group)
    groups = "; ".join(f"groups {', '.join(map(str, g))} have {c}" for c, g in sums.items())
    return len(sums) > 1, f"parameters differ after {members[0].committed} steps: {groups}"
