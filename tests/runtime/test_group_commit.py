"""The commit of groups of several ranks, explored completely: every order of events, with crashes anywhere.

One step. Rank j of each group reduces (R) and passes the barrier (B) with the ranks j of the other groups; between and
after these the ranks of one group agree (I, C). A collective completes at a rank when all its members have entered it,
those included that died since, and may fail there as soon as anybody has died or failed anywhere, for a plan may come
of that. An agreement completes when all ranks of the group have spoken, and may break, with its rank, when one of them
has died.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

BEGIN, IN_R, SAID_I, HOLDS, IN_B, SAID_C, APPLIED, WITHOUT_W, WITH_W, DEAD = range(10)
"""Where a rank is. The last three but one: it stops for a regroup, and its group holds W or does not."""


class Rank(NamedTuple):
    """One rank: where it is, whether its reduction and its barrier came about, whether it ever applied the step."""

    at: int = BEGIN
    entered: int = 0
    """R: 1, B: 2. Also of the dead: what they sent may arrive."""
    reduced: bool = False
    passed: bool = False
    applied: bool = False


State = tuple[tuple[Rank, ...], int]
"""All ranks, group by group; crashes left."""


class Rules(NamedTuple):
    """What can be left out, to see what it is for."""

    ranks: int = 2
    before: bool = True
    """The ranks of a group agree between reduction and barrier."""
    after: bool = True
    """They agree after the barrier: who passed it applies for those who did not."""


def steps(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """All that can happen next."""
    ranks, crashes = state
    trouble = any(r.at in (DEAD, WITHOUT_W, WITH_W) or (r.at == SAID_I and not r.reduced) for r in ranks)
    trouble = trouble or any(r.at == SAID_C and not r.passed for r in ranks)
    for i, rank in enumerate(ranks):
        first = i - i % rules.ranks
        group = ranks[first : first + rules.ranks]
        column = ranks[i % rules.ranks :: rules.ranks]

        def to(i: int = i, left: int = crashes, **changes: object) -> State:
            return (*ranks[:i], ranks[i]._replace(**changes), *ranks[i + 1 :]), left  # type: ignore[arg-type]

        if rank.at == DEAD:
            continue
        if crashes:
            yield f"{i} dies", to(at=DEAD, left=crashes - 1)
        if rank.at == BEGIN:
            yield f"{i} enters R", to(at=IN_R, entered=1)
        elif rank.at == IN_R:
            if all(each.entered >= 1 for each in column):
                yield f"{i} leaves R", to(at=SAID_I if rules.before else HOLDS, reduced=True)
            if trouble:
                yield f"{i} fails in R", to(at=SAID_I if rules.before else WITHOUT_W)
        elif rank.at == SAID_I:
            if all(each.at >= SAID_I for each in group if each.at != DEAD):
                held = all(each.reduced for each in group)
                yield f"{i} leaves I", to(at=HOLDS if held else WITHOUT_W)
            if any(each.at == DEAD for each in group):
                yield f"{i} breaks in I", to(at=DEAD)
        elif rank.at == HOLDS:
            yield f"{i} enters B", to(at=IN_B, entered=2)
        elif rank.at == IN_B:
            if all(each.entered == 2 for each in column):
                done = {"at": SAID_C} if rules.after else {"at": APPLIED, "applied": True}
                yield f"{i} passes B", to(passed=True, **done)
            if trouble:
                yield f"{i} fails in B", to(at=SAID_C if rules.after else WITH_W)
        elif rank.at == SAID_C:
            if all(each.at >= SAID_C for each in group if each.at != DEAD):
                if any(each.passed for each in group):
                    yield f"{i} applies", to(at=APPLIED, applied=True)
                else:
                    yield f"{i} leaves C", to(at=WITH_W)
            if any(each.at == DEAD for each in group):
                yield f"{i} breaks in C", to(at=DEAD)


def broken(state: State, rules: Rules) -> str | None:
    """Which promise does not hold; None: all do."""
    ranks, _ = state
    groups = [ranks[first : first + rules.ranks] for first in range(0, len(ranks), rules.ranks)]
    survivors = [group for group in groups if all(rank.at != DEAD for rank in group)]
    for group in survivors:
        if any(rank.applied for rank in ranks) and not all(rank.reduced for rank in group):
            return f"somebody applied the step, and a survivor cannot: {group}"
        ends = {rank.at for rank in group} & {APPLIED, WITHOUT_W, WITH_W}
        if len(ends) > 1 or (WITHOUT_W in ends and any(HOLDS <= rank.at <= APPLIED for rank in group)):
            return f"the ranks of one group go different ways: {group}"
    return None


def explore(groups: int, crashes: int, rules: Rules) -> tuple[str | None, list[str], int]:
    """The first broken promise, the shortest way to it, and the number of states."""
    begin: State = ((Rank(),) * groups * rules.ranks, crashes)
    came: dict[State, tuple[State, str] | None] = {begin: None}
    frontier = [begin]
    while frontier:
        following = []
        for state in frontier:
            if (text := broken(state, rules)) is not None:
                way, at = [], state
                while (before := came[at]) is not None:
                    at, label = before
                    way.append(label)
                return text, way[::-1], len(came)
            for label, then in steps(state, rules):
                if then not in came:
                    came[then] = state, label
                    following.append(then)
        frontier = following
    return None, [], len(came)


@pytest.mark.parametrize(("groups", "crashes"), [(2, 2), pytest.param(3, 1, marks=pytest.mark.slow)])
def test_no_order_of_events_breaks_a_promise(groups: int, crashes: int) -> None:
    """If anybody applies the step, every rank of every survivor can; and a group's ranks all do the same."""
    text, way, states = explore(groups, crashes, Rules())

    assert text is None, (text, way)
    assert states > 3000


def test_without_the_agreement_before_the_barrier_a_survivor_cannot_commit() -> None:
    """Rank 0 passes the barrier of its number while rank 1's reduction failed."""
    text, way, _ = explore(2, 2, Rules(before=False))

    assert text is not None
    assert "cannot" in text or "different ways" in text, (text, way)


def test_without_the_agreement_after_the_barrier_ranks_part() -> None:
    """One commits, the other goes into a regroup: whoever then communicates inside the group waits for ever."""
    text, way, _ = explore(2, 2, Rules(after=False))

    assert text is not None
    assert "different ways" in text, (text, way)
