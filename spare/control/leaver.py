"""What is known of groups that were asked to go, and of a job that is to stop. Times are the coordinator's clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Leaver:
    """An incarnation that was asked to go, until it has gone. Once let go, another may already have its number."""

    group: int
    uid: str
    asked: float
    until: float
    """When its grace ends."""
    reason: str
    """Who or what asked, for people."""
    heard: float
    again: bool = True
    """Start another incarnation in its place."""
    released: int | None = None
    """Epoch of the plan that let it go; None: it is still a member."""
    serves: tuple[str, ...] = ()
    """Where its ranks give what they hold of the step in flight, by rank; empty for one that does not yet."""
    offered: int = 0
    """Epoch under which they offer that."""
    handed: bool = False
    """A plan has named an heir; there is no second."""
    words: frozenset[int] = frozenset()
    """Ranks that have said their last words."""
    left: bool = False
    """All have."""
    ended: frozenset[int] = frozenset()
    """Pods whose agents are known to have ended."""
    gone: float | None = None
    """Since when all have."""

    @property
    def gives(self) -> bool:
        """Whether all its ranks give what they hold: an heir can take over all of it, or nothing."""
        return bool(self.serves) and all(self.serves)


@dataclass(frozen=True)
class Halt:
    """The job is to stop after a step."""

    reason: str
    until: float
    """When it is ended in any case."""
