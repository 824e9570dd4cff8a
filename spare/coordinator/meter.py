"""How much work a coordinator has, and how long it takes: numbers for those who watch, decided by nobody."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Meter:
    """Counts since the coordinator began; seconds."""

    decisions: int = 0
    deciding: float = 0.0
    """Spent in decisions, planning included."""
    longest: float = 0.0
    """The longest of them."""
    recorded: int = 0
    """Writes of the plan document."""
    recording: float = 0.0
    """Spent waiting for them."""
    waited: float = 0.0
    """How long the oldest signal of the last batch lay in the inbox."""
    pushed: int = 0
    """Parts of plans handed to connections, one for each agent."""
    taken: int = 0
    """Of those, the ones that the connection took."""

    rejoined: int = 0
    """Groups that came back."""

    def decided(self, seconds: float) -> None:
        """A decision took so long."""
        self.decisions += 1
        self.deciding += seconds
        self.longest = max(self.longest, seconds)

    def wrote(self, seconds: float) -> None:
        """A record took so long."""
        self.recorded += 1
        self.recording += seconds
