"""What a state of the model consists of. All immutable, so that equal states are found equal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class At(IntEnum):
    """Where a group is. `PHASE` gives the words that the program uses for it (`spare.api.wire.Phase`)."""

    DEAD = 0
    COMP = 1
    RED = 2
    MID = 3
    """It holds the whole sum, and has not entered the barrier."""
    BAR = 4
    FAIL = 5
    RDV = 6
    LOAD = 7
    STOP = 8
    IDLE = 9


PHASE = {
    At.COMP: "compute",
    At.RED: "reduce",
    At.MID: "reduce",
    At.BAR: "barrier",
    At.FAIL: "failed",
    At.RDV: "rendezvous",
    At.LOAD: "load",
    At.STOP: "stopped",
    At.IDLE: "starting",
}
"""The dead have no phase; `done` is COMP after the last step; `commit` is no state of its own: one action with the exit
from the barrier, since for all others a death between the two is one before it."""
OUT = (At.DEAD, At.STOP, At.IDLE)
STILL = (At.COMP, At.RED, At.MID, At.BAR, At.FAIL, At.RDV)
"""Where what is held can be offered: it stays as it is there. Who computes (COMP) stops that first."""
NOTHING = -1
STALE = -3
"""In W: overwritten, but still called reduced (rule `reset` left out)."""
UNKNOWN = 99
"""In a history: a step that a joiner has not loaded yet."""


class Violation(Exception):
    """A rule is broken; the text says how."""


class Group(NamedTuple):
    """One group: its agent and worker."""

    at: At
    plan: int
    """Index of the plan that it runs under; -1 before the first."""
    seen: int
    uid: int
    admission: int
    history: tuple[int, ...] = ()
    """For each committed step the plan whose reduction it applied."""
    whole: int = 0
    held: int = 0
    reduced: int = NOTHING
    """Plan of the reduction in W."""
    todo: int = 0
    source: int = -1
    """Whom it loads from."""
    offer: tuple[int, int, int] | tuple[()] = ()
    """(plan, steps committed, held) when it offered what it holds; empty: it offers nothing."""


class Plan(NamedTuple):
    """One plan. Members are (uid, admission) by group, or 0."""

    number: int
    members: tuple[tuple[int, int] | int, ...]
    base: int
    pushed: int
    halt: int = 0
    """All stop at the commit at which all have seen it."""
    heir: tuple[int, int, int] | None = None
    """(who leaves, who takes over what it holds, the number of the plan under which it offers that)."""


class Comm(NamedTuple):
    """The communicator of a plan."""

    position: tuple[int, ...]
    """By group: 2 * step when it entered that step's reduction, + 1 when its barrier."""
    said: tuple[tuple[int, int, int, int] | int, ...]
    """By group, in the exchange: steps committed, whole, W, held."""
    union: int = 0
    history: tuple[int, ...] | None = None
    seen: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    """Newest plans known to those that entered the reduction, for even and odd steps."""


class State(NamedTuple):
    """A whole job. `budget`: how many of each failure are left; the last item is a mask of groups cut off."""

    groups: tuple[Group, ...]
    plans: tuple[Plan, ...]
    comms: tuple[Comm | int, ...]
    up: int
    ledger: tuple[int | None, ...]
    """By step: the plan of the reduction that it was first committed from."""
    budget: tuple[int, ...]


BUDGETS = ("crash", "false", "link", "operator", "rejoin", "drain", "halt", "hand", "revive", "twin", "cut")


@dataclass(frozen=True)
class Options:
    """A configuration: size, failures that may happen, and the rules (0 leaves one out)."""

    groups: int = 3
    steps: int = 2
    micro_batches: int = 1
    spare: int = 0
    """Groups that are not in the first plan."""
    fine: int = 0
    """1: leaving the reduction and entering the barrier are apart, as are the last micro-batch and entering the
    reduction."""
    crash: int = 0
    false: int = 0
    """A live group is taken for dead."""
    link: int = 0
    """A collective fails though nobody died."""
    operator: int = 0
    """The operator dies."""
    rejoin: int = 0
    drain: int = 0
    halt: int = 0
    hand: int = 0
    """A group cannot wait for the step's end, and offers what it holds: wherever it waits, or between micro-batches."""
    revive: int = 0
    """A fresh agent in the slot of a dead group."""
    twin: int = 0
    """A second operator writes."""
    cut: int = 0
    """A group cannot be reached by the operator any more, but by its peers."""
    strict: int = 0
    """1: a wipe-out while a group that is no joiner lives is a violation."""
    early: int = 1
    """1, as built: a joiner reduces zeros while it loads, and enters the barrier when it has loaded. 0: it loads first.
    2: it does not wait with the barrier either."""
    barrier: int = 1
    """Commit behind a barrier."""
    inc: int = 1
    """A plan names members by incarnation and admission; on a mismatch the local state is dropped."""
    reset: int = 1
    """Entering a reduction forgets the old reduced gradient."""
    rid: int = 1
    """'All have reduced' means one and the same reduction."""
    allc: int = 1
    """'All have reduced' ranges over members with state, not joiners."""
    base: int = 1
    """A plan names its newest urgent ancestor: for who is behind that, it is urgent."""
    ans: int = 1
    """A failure in epoch e is answered unless an urgent plan newer than e exists."""
    cas: int = 1
    """Plans are written by compare-and-swap."""
    wait: int = 1
    """Who waits moves on to any newer plan."""
    load: int = 1
    """A state that is not loaded yet is reported as such."""
    first: int = 1
    """Only the first urgent plan after the offer names an heir: after it others have been given what is missing."""
    withdraw: int = 1
    """An offer is withdrawn before what is offered changes: by a commit, a regroup, or a micro-batch more."""
    guard: int = 1
    """A group is let go only while two other members have the whole state."""
