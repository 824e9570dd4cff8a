"""Groups of several ranks: where a barrier inside the group must stand.

Each position of a group has a communicator of its own with the same position of the others. The stages of one step are
collectives: R the reduction and B the commit barrier of a position, I a barrier of the group's own ranks, A one of all
ranks. Rule: if a rank applied the step, every rank of every surviving group holds its reduced gradient.
"""

from __future__ import annotations

from tests.model.explore import Explored

ORDERS = {"none": "RB", "before": "RIB", "after": "RBI", "all": "RA"}
"""As built: `before`."""
_FAILED, _DEAD = 0, -1

Ranks = tuple[tuple[int, int], ...]
"""(how far, 1 alive 0 failed -1 dead) of each rank."""


class Group:
    """Some groups of some ranks, and the stages that each passes."""

    def __init__(self, order: str, groups: int, ranks: int) -> None:
        self.stages = ORDERS[order]
        self.ranks = [(g, j) for g in range(groups) for j in range(ranks)]
        self.groups = groups

    def peers(self, stage: str, r: int) -> list[int]:
        """Who takes part in a rank's collective."""
        group, position = self.ranks[r]
        if stage == "A":
            return list(range(len(self.ranks)))
        return [i for i, (g, j) in enumerate(self.ranks) if (j == position if stage in "RB" else g == group)]

    def broken(self, s: Ranks) -> str | None:
        """Whether somebody applied what a surviving rank cannot."""
        end = 2 * len(self.stages)
        dead = {self.ranks[i][0] for i, (_, alive) in enumerate(s) if alive == _DEAD}
        mine = [i for i, (g, _) in enumerate(self.ranks) if g not in dead]
        applied = [self.ranks[i] for i, (at, _) in enumerate(s) if at == end]
        cannot = [self.ranks[i] for i in mine if s[i][0] < 2]
        return f"{applied} (group, rank) applied the step, {cannot} cannot" if applied and cannot else None

    def moves(self, s: Ranks, crashes: int) -> list[tuple[str, Ranks, int]]:
        """What may happen next."""
        out = []
        for i, (at, alive) in enumerate(s):
            if alive == _DEAD:
                continue
            if crashes:
                out.append((f"{self.ranks[i]} crashes", self._put(s, i, at, _DEAD), crashes - 1))
            if alive == _FAILED or at == 2 * len(self.stages):
                continue
            stage = self.stages[at // 2]
            peers = [s[p] for p in self.peers(stage, i)]
            if at % 2 == 0:
                out.append((f"{self.ranks[i]} enters {stage}", self._put(s, i, at + 1, 1), crashes))
                continue
            if all(p >= at for p, _ in peers):
                out.append((f"{self.ranks[i]} leaves {stage}", self._put(s, i, at + 1, 1), crashes))
            if any(a < 1 for _, a in peers):
                out.append((f"{self.ranks[i]} fails in {stage}", self._put(s, i, at, _FAILED), crashes))
        return out

    @staticmethod
    def _put(s: Ranks, i: int, at: int, alive: int) -> Ranks:
        return (*s[:i], (at, alive), *s[i + 1 :])


def explore_ranks(order: str, groups: int = 2, ranks: int = 2, crashes: int = 2) -> Explored:
    """Every interleaving of one step."""
    group, found = Group(order, groups, ranks), Explored()
    first: tuple[Ranks, int] = ((0, 1),) * len(group.ranks), crashes
    seen: dict[tuple[Ranks, int], tuple[tuple[Ranks, int] | None, str]] = {first: (None, "")}
    frontier = [first]
    while frontier:
        following = []
        for s in frontier:
            found.violation = group.broken(s[0])
            if found.violation is not None:
                at: tuple[Ranks, int] | None = s
                while at is not None and seen[at][0] is not None:
                    found.story.insert(0, seen[at][1])
                    at = seen[at][0]
                return found
            for label, after, left in group.moves(*s):
                if (after, left) not in seen:
                    seen[after, left] = (s, label)
                    following.append((after, left))
        frontier = following
        found.depth += 1
    found.complete, found.states = True, len(seen)
    return found
