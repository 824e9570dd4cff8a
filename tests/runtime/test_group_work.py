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
        self.others = False
        """Whether the sibling's grace is nearly over."""
        ignore: Any = lambda *_: None  # noqa: E731
        self.env: Any = SimpleNamespace(ranks=2, rank=0)
        self.training: Any = SimpleNamespace(committed=0, todo=3, whole=True, arm=ignore, disarm=ignore, add=ignore)
        self.membership: Any = SimpleNamespace(must_act=False, meeting=None, epoch=1)
        self.must_hand_on, self._waited = hands_on, -1
        self.siblings: Any = self
        self.faults: Any = SimpleNamespace(at=ignore)
        self.line: Any = SimpleNamespace(hand=None, micros=0)
        self._around: Any = SimpleNamespace(clock=lambda: 0.0)

    def agree(self, *mine: int) -> list[tuple[int, ...]]:
        """Both say the same, but for what their agents have told them."""
        self.agreed += 1
        return [mine, (*mine[:-1], self.others) if len(mine) == 2 else mine]


def test_all_ranks_hand_on_before_the_same_micro_batch() -> None:
    """The grace of one pod is nearly over, and the others hear of it by the agreement before each micro-batch: it is as
    many as where nobody leaves."""
    for mine, theirs in ((False, False), (True, False), (False, True)):
        rank, offers = Rank(hands_on=mine), list[int]()
        rank.others = theirs

        def hand_on(rank: Rank = rank, offers: list[int] = offers) -> None:
            offers.append(rank.agreed)
            rank._waited = rank.membership.epoch

        rank.hand_on = hand_on  # type: ignore[method-assign]
        next(rank.work(0))

        assert (offers, rank.agreed) == (([1], 2) if mine or theirs else ([], 1))


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
