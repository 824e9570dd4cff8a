"""The ranks of a group agree equally often, whatever each of them alone has heard."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from spare_runtime.member import Member


class Rank(Member):
    """One rank of two in a step of two micro-batches; nothing is connected."""

    def __init__(self, hands_on: bool) -> None:
        self.agreed = 0
        ignore: Any = lambda *_: None  # noqa: E731
        self.env: Any = SimpleNamespace(ranks=2, rank=0)
        self.training: Any = SimpleNamespace(committed=0, todo=3, whole=True, arm=ignore, disarm=ignore, add=ignore)
        self.membership: Any = SimpleNamespace(must_act=False, must_hand_on=hands_on, meeting=None)
        self.siblings: Any = self
        self.faults: Any = SimpleNamespace(at=ignore)
        self.line: Any = SimpleNamespace(hand=None, micros=0)
        self._around: Any = SimpleNamespace(clock=lambda: 0.0)

    def agree(self, *mine: int) -> list[tuple[int, ...]]:
        """Both say the same."""
        self.agreed += 1
        return [mine, mine]


def test_a_rank_that_is_to_hand_on_stays_with_its_siblings() -> None:
    """The grace of its pod is nearly over, and the others' may not be: groups of several ranks do not hand on."""
    agreed = []
    for hands_on in (False, True):
        rank = Rank(hands_on)
        next(rank.work(0))
        agreed.append(rank.agreed)

    assert agreed == [1, 1]


def test_what_is_given_after_the_loop_is_a_copy() -> None:
    """The others' scripts go on then, and may change the model while it is on its way."""
    for over in (False, True):
        rank, given, weight = Rank(hands_on=False), list[Any](), torch.ones(2)
        rank.training.state = lambda weight=weight: {"model": {"w": weight}}
        rank.membership.plan = SimpleNamespace(epoch=4)
        rank._donor, rank._over = SimpleNamespace(offer=given.append), over  # type: ignore[assignment]
        rank._give()
        weight.zero_()

        assert given[0].state["model"]["w"].tolist() == ([1.0, 1.0] if over else [0.0, 0.0])
