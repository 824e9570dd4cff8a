"""What the engine asks of a strategy."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Strategy(Protocol):
    """A way to go on after a failure. Layers are whole shards of computation; a healthy step of ours has 1."""

    @property
    def name(self) -> str:
        """For tables."""

    @property
    def masked(self) -> float:
        """Expected failures before a wipe-out, for the checkpoint period; replacement is not counted in."""

    @property
    def depth(self) -> float:
        """Layers that the next step computes."""

    def fresh(self) -> None:
        """All groups live, as after a restart."""

    def lose(self, groups: Collection[int]) -> float:
        """Groups died in the step in flight; returns the layers of patch that make it whole.

        Raises:
            WipeOut: only a restart helps. The engine then calls ``fresh``.
        """

    def leave(self, groups: Collection[int]) -> None:
        """Groups leave between two steps, as announced. Raises WipeOut as ``lose``."""

    def join(self, groups: Collection[int]) -> None:
        """Replacements take part from the next step on."""

    def begin(self) -> None:
        """A step begins; what was held for the last one is forgotten."""

    def survives(self, groups: Collection[int]) -> bool:
        """Whether ``lose`` or ``leave`` of these would find an answer."""

    def fetches(self) -> int:
        """Shards fetched since the last call."""
