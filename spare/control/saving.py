"""What is known of checkpoints and of starting again, as values."""

from __future__ import annotations

from dataclasses import dataclass

from spare.api.checkpoint import Name


@dataclass(frozen=True)
class LastSaved:
    """The newest checkpoint that was reported as complete."""

    name: str
    at: float
    """Coordinator's clock."""
    staged: float
    """Seconds for which training stood still."""
    seconds: float
    """Until it was complete."""
    size: int
    """Bytes."""

    @property
    def step(self) -> int:
        """Steps committed in it."""
        return Name.parse(self.name).step


@dataclass(frozen=True)
class Ordered:
    """The standing order that the writer has."""

    group: int
    uid: str
    origin: int
    period: float


@dataclass(frozen=True)
class Restarting:
    """After a wipe-out, until the plan with which all groups begin again."""

    at: float
    sign: float
    """First sign of the loss that caused it."""
    groups: tuple[int, ...]
    """Lost at the end."""
    step: int
    """The last that was committed."""
    reason: str


@dataclass(frozen=True)
class Waiting:
    """Fewer groups than `minGroups` are there: the rest waits for replacements."""

    since: float
    deleted: frozenset[str]
    """Incarnations whose loss waits for its plan, and which were removed already."""
