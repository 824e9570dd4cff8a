"""Groups of several ranks: how what a leaver holds is taken over by all ranks of its heir, or by none.

Rank j of the heir takes over what rank j of the leaver holds. The leaver's ranks withdraw it each at its own moment; a
transfer may be late, a newer plan may end the wait for it at one rank and not at another, a rank of the heir may die.
Rule: if all ranks of the heir live, all of them hold the same micro-batches, and those of the leaver all or none.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.model.explore import Explored

RULES = {"built": (1, 1), "alone": (0, 1), "unequal": (1, 0)}
"""(the heir's ranks agree before they add, and they compare what they got). As built: both."""
_WAITS, _SAID, _ADDED, _PASSED, _DEAD = range(5)


class Heir(NamedTuple):
    """A rank of the heir: where it is, what it got (0: nothing, else a set), and what it has added."""

    at: int = _WAITS
    got: int = 0
    added: int = 0


class Situation(NamedTuple):
    """Ranks of the heir; what each rank of the leaver still gives, 0 when it has withdrawn it; crashes left."""

    heirs: tuple[Heir, ...]
    gives: tuple[int, ...]
    crashes: int


class Taking:
    """One take-over, by as many ranks as the leaver has."""

    def __init__(self, rule: str) -> None:
        self.agrees, self.compares = RULES[rule]

    def may_add(self, s: Situation, j: int) -> bool:
        """What rank j concludes from what all have said."""
        got = [each.got for each in s.heirs]
        return all(got) and (len(set(got)) == 1 or not self.compares)

    def moves(self, s: Situation) -> list[tuple[str, Situation]]:
        """What may happen next."""
        out = []
        for j, given in enumerate(s.gives):
            if given:
                out.append((f"the leaver's rank {j} withdraws", s._replace(gives=_put(s.gives, j, 0))))
        for j, heir in enumerate(s.heirs):

            def to(text: str, heir: Heir, left: int = s.crashes, j: int = j) -> None:
                out.append((f"rank {j} {text}", s._replace(heirs=_put(s.heirs, j, heir), crashes=left)))

            if heir.at == _DEAD:
                continue
            if s.crashes:
                to("dies", heir._replace(at=_DEAD), s.crashes - 1)
            if heir.at == _WAITS:
                said = _SAID if self.agrees else _ADDED
                if s.gives[j]:
                    to("has it all", Heir(said, s.gives[j], 0 if self.agrees else s.gives[j]))
                to("waits no longer", Heir(_SAID if self.agrees else _PASSED))
            elif heir.at == _SAID and all(each.at >= _SAID for each in s.heirs if each.at != _DEAD):
                if any(each.at == _DEAD for each in s.heirs):
                    to("learns that its group is broken", heir._replace(at=_DEAD))
                elif self.may_add(s, j):
                    to("adds it", heir._replace(at=_ADDED, added=heir.got))
                else:
                    to("adds nothing", heir._replace(at=_PASSED))
        return out

    def broken(self, s: Situation) -> str | None:
        """What is wrong once all ranks of the heir are past it."""
        if any(heir.at in (_WAITS, _SAID, _DEAD) for heir in s.heirs):
            return None
        added = {heir.added for heir in s.heirs}
        return f"the heir's ranks hold different sets: {sorted(added)}" if len(added) > 1 else None


def _put(items: tuple, index: int, item: object) -> tuple:  # type: ignore[type-arg]
    return (*items[:index], item, *items[index + 1 :])


def explore_heirs(rule: str, offers: tuple[int, ...] = (0b11, 0b11), crashes: int = 1) -> Explored:
    """Every interleaving. `offers`: what each rank of the leaver holds: different sets where they stopped apart."""
    taking, found = Taking(rule), Explored()
    first = Situation((Heir(),) * len(offers), offers, crashes)
    came: dict[Situation, tuple[Situation, str] | None] = {first: None}
    frontier = [first]
    while frontier:
        following = []
        for s in frontier:
            found.violation = taking.broken(s)
            if found.violation is not None:
                at = s
                while (before := came[at]) is not None:
                    at, label = before
                    found.story.insert(0, label)
                return found
            for label, after in taking.moves(s):
                if after not in came:
                    came[after] = s, label
                    following.append(after)
        frontier = following
        found.depth += 1
    found.complete, found.states = True, len(came)
    return found
