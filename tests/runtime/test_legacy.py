"""What a group that must leave holds of a step, offered while it waits for others, and taken over by its heir."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import spare_runtime.legacy
from spare.api import wire
from spare_runtime.config import read_environment
from spare_runtime.errors import GroupBroken
from spare_runtime.legacy import Legacies
from spare_runtime.line import Line
from spare_runtime.surroundings import Surroundings
from spare_runtime.training import Training
from spare_runtime.transfer import Transfer
from tests.runtime.plans import JOB, TOKEN, UID, plan
from tests.runtime.test_training import compute, training

EPOCH = 3


class Told(Line):
    """The line to an agent: what is said on it is kept."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.said: list[Any] = []

    def start(self, store: str) -> None:
        """See Line."""

    def send(self, message: wire.Up) -> None:
        """See Line."""
        self.said.append(message)

    def flush(self, deadline: float) -> bool:
        """See Line."""
        return True


class Keeper:
    """Nobody writes checkpoints here."""

    on_save = attach = names = staticmethod(lambda *_: ())


class Party(Legacies):
    """One rank of a group in step 0 under plan EPOCH; its surroundings are real, but for its agent and siblings."""

    def __init__(self, group: int, size: int = 2, siblings: Any = None, rank: int = 0) -> None:
        self.notes: list[str] = []
        env = {"SPARE_JOB": JOB, "SPARE_GROUP": str(group), "SPARE_UID": UID, "SPARE_TOKEN": TOKEN}
        if siblings is not None:
            env |= {"SPARE_PROCS": "2", "SPARE_RANK": str(rank)}
        near: dict[str, Any] = {"store": lambda *_: SimpleNamespace(address="127.0.0.1:1"), "line": Told}
        near |= {"keeper": lambda *_: Keeper(), "say": self.notes.append}
        if siblings is not None:
            near["siblings"] = lambda _: siblings.of(rank)
        self.model = torch.nn.Linear(size, 1, bias=False)
        of: Training = training(self.model)
        super().__init__(read_environment(env), of, of._ledger, Surroundings(**near))
        self.line.epoch = EPOCH
        first = plan(EPOCH, admission=EPOCH, group=group)
        self.membership.on_plan(first)
        self.membership.act_on(first)
        self.membership.go_on()

    def regroup(self, why: str) -> None:
        """See Standing."""
        raise AssertionError(why)

    @property
    def asked(self) -> list[wire.Leave]:
        """What it said of its offers."""
        return [message for message in self.line.said if isinstance(message, wire.Leave)]  # type: ignore[attr-defined]

    def hears(self) -> None:
        """The agent says that the grace is nearly over; the line's thread takes it."""
        text = wire.HandOn(job=JOB, uid=UID, epoch=EPOCH).line()
        thread = threading.Thread(target=self.line.take, args=(text,))
        thread.start()
        thread.join()

    def fetch(self, epoch: int = EPOCH) -> Transfer:
        """An heir comes for it; to its end."""
        transfer = Transfer(wire.Address.parse(self.asked[-1].serves or ""), TOKEN, epoch, 0.2)
        assert transfer.wait(20.0)
        return transfer


def test_who_waits_in_the_reduction_offers_what_it_holds() -> None:
    """Its main thread waits for the others: the thread that hears of it makes the offer."""
    leaver = Party(1)
    compute(leaver.training, 1, 5.0)
    leaver.stand_still()
    leaver.hears()

    [asked] = leaver.asked
    given = leaver.fetch().state
    assert (asked.epoch, given["committed"], given["held"]) == (EPOCH, 0, "2")
    assert given["sums"][0][:2].tolist() == [5.0, 5.0]
    assert leaver.membership.gives


def test_who_computes_offers_nothing_before_it_stands_still() -> None:
    """The gradient that is being computed is not in the sum; from the reduction on it is."""
    leaver = Party(1)
    leaver.hears()
    assert (leaver.asked, leaver.hands_on) == ([], True)

    compute(leaver.training, 0, 5.0)
    leaver.stand_still()

    assert leaver.fetch().state["held"] == "1"


@pytest.mark.parametrize("change", [Legacies.may_change, lambda leaver: commit(leaver)])
def test_what_changes_the_sum_withdraws_it_first(change: Callable[[Legacies], None]) -> None:
    """A commit in the first place: who comes later gets nothing, and a plan without this group ends it at once."""
    leaver = Party(1)
    compute(leaver.training, 0, 5.0)
    leaver.stand_still()
    leaver.hears()
    change(leaver)

    transfer = leaver.fetch()
    assert transfer.state is None
    assert "nothing is offered" in (transfer.error or "")
    assert not leaver.membership.gives


def commit(leaver: Legacies) -> None:
    """Alone: the reduction of this one sum."""
    leaver.training.entering(EPOCH, unseen=True)
    leaver.training.reduced = EPOCH
    leaver._commit()


def test_an_heir_that_reads_nothing_holds_no_commit_up() -> None:
    """It gets a part of what was offered, and then the end of the connection: never a byte of the next step's sum."""
    size = 8_000_000  # more than the kernel keeps for one who does not read
    leaver = Party(1, size)
    compute(leaver.training, 0, 5.0)
    leaver.stand_still()
    leaver.hears()
    with socket.create_connection(wire.Address.parse(leaver.asked[0].serves or "")) as heir:
        heir.sendall(json.dumps({"token": TOKEN, "epoch": EPOCH}).encode() + b"\n")
        assert heir.recv(1) == b"{"
        began = time.monotonic()
        commit(leaver)
        took = time.monotonic() - began
        received = b""
        heir.settimeout(20.0)
        while part := heir.recv(1 << 20):
            received += part

    assert took < 10.0
    header, _, rest = received.partition(b"\n")
    sums = rest[json.loads(b"{" + header)["skeleton"] :]
    assert 0 < len(sums) < 4 * size
    assert set(torch.frombuffer(bytearray(sums[: len(sums) // 4 * 4]), dtype=torch.float32).tolist()) == {5.0}


def test_it_is_offered_again_under_a_plan_that_keeps_the_group() -> None:
    """At the same place, to the epoch of that plan only."""
    leaver = Party(1)
    compute(leaver.training, 0, 5.0)
    leaver.stand_still()
    leaver.hears()
    leaver.may_change()
    leaver.line.epoch = EPOCH + 1
    leaver.stand_still()

    first, second = leaver.asked
    assert (first.serves, second.epoch) == (second.serves, EPOCH + 1)
    assert leaver.fetch(EPOCH + 1).state["held"] == "1"
    assert leaver.fetch(EPOCH).state is None


def test_work_stops_for_an_offer_once_under_each_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answers: it goes on, and holds nothing up again before another plan."""
    monkeypatch.setattr(spare_runtime.legacy, "HAND_ON_DEADLINE", 0.02)
    leaver = Party(1)
    leaver.hears()
    leaver.hand_on()

    assert not leaver.hands_on
    assert not leaver.membership.gives
    assert len(leaver.asked) == 1


def test_an_heir_adds_what_it_is_given() -> None:
    """Its own sum and set have both then."""
    leaver, heir = Party(1), Party(0)
    compute(leaver.training, 1, 5.0)
    compute(heir.training, 2, 1.0)
    leaver.stand_still()
    leaver.hears()
    heir.inherit(inherited(leaver))

    assert heir.training.held == 0b110
    assert heir.training.buffers.sums()[0][:2].tolist() == [6.0, 6.0]
    assert heir.notes[-1] == "spare: 1 micro-batches of group 1 are taken over"
    leaver.given()
    assert not leaver.membership.gives


def inherited(*leaver: Party) -> wire.Plan:
    """The heir's part of the plan that follows, without a group of these ranks."""
    serves = ",".join(rank.asked[-1].serves or "" for rank in leaver)
    return plan(EPOCH + 1, admission=EPOCH, legacies=(wire.Legacy(group=1, epoch=EPOCH, serves=serves),))


def test_an_heir_of_another_step_adds_nothing() -> None:
    """It has committed what the leaver had not: all have the reduced sum of that step."""
    leaver, heir = Party(1), Party(0)
    compute(leaver.training, 1, 5.0)
    leaver.stand_still()
    leaver.hears()
    compute(heir.training, 0, 1.0)
    commit(heir)
    heir.inherit(inherited(leaver))

    assert heir.training.held == 0
    assert "nothing is taken over from group 1: what it holds is of another step" in heir.notes[-1]


# --- of two ranks -----------------------------------------------------------------------------------------------


class Siblings:
    """Two ranks of a group, each in a thread of its own."""

    def __init__(self) -> None:
        self.meet = threading.Barrier(2, timeout=20.0)
        self.said: list[tuple[int, ...]] = [(), ()]

    def of(self, rank: int) -> Any:
        """As one of them sees them."""
        return SimpleNamespace(agree=lambda *mine: self.agree(rank, mine), all=self)

    def agree(self, rank: int, mine: tuple[int, ...]) -> list[tuple[int, ...]]:
        """See spare_runtime.siblings."""
        try:
            self.said[rank] = mine
            self.meet.wait()
            said = list(self.said)
            self.meet.wait()
        except threading.BrokenBarrierError as error:
            raise GroupBroken("a rank has died") from error
        return said


def pair(group: int, *held: tuple[int, ...]) -> tuple[Party, Party]:
    """Two ranks that hold these micro-batches; rank 1's gradients are tens."""
    siblings = Siblings()
    parties = Party(group, siblings=siblings, rank=0), Party(group, siblings=siblings, rank=1)
    for rank, (party, bits) in enumerate(zip(parties, held, strict=True)):
        for bit in bits:
            compute(party.training, bit, 10.0**rank)
    return parties


def leaving(*held: tuple[int, ...]) -> tuple[Party, Party]:
    """A pair that offers what it holds."""
    parties = pair(1, *held)
    for party in parties:
        party.stand_still()
        party.hears()
    return parties


def take_over(heirs: tuple[Party, Party], told: wire.Plan) -> None:
    """Both at once."""
    threads = [threading.Thread(target=heir.inherit, args=(told,)) for heir in heirs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
        assert not thread.is_alive()


def test_each_rank_of_an_heir_takes_over_its_part() -> None:
    """Rank j that of rank j."""
    leavers, heirs = leaving((1, 2), (1, 2)), pair(0, (0,), (0,))
    take_over(heirs, inherited(*leavers))

    assert [heir.training.held for heir in heirs] == [0b111, 0b111]
    assert [heir.training.buffers.sums()[0][0].item() for heir in heirs] == [3.0, 30.0]


@pytest.mark.parametrize("held", [((1, 2), (1,)), ((1, 2), (1, 2))])
def test_all_ranks_of_an_heir_take_over_or_none(
    held: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where the ranks of the leaver stopped apart, nor where one of them has withdrawn what it offered."""
    monkeypatch.setattr(spare_runtime.legacy, "INHERIT_DEADLINE", 0.2)
    leavers, heirs = leaving(*held), pair(0, (0,), (0,))
    if len(set(held)) == 1:
        leavers[1].may_change()
    take_over(heirs, inherited(*leavers))

    assert [heir.training.held for heir in heirs] == [1, 1]
    assert [heir.training.buffers.sums()[0][0].item() for heir in heirs] == [1.0, 10.0]
    assert "another rank of this group cannot take over its part" in heirs[0].notes[-1]


def test_a_rank_of_an_heir_dies_in_the_take_over() -> None:
    """The other has added nothing, and its group is lost."""
    leavers, heirs = leaving((1,), (1,)), pair(0, (0,), (0,))
    heirs[0].siblings.all.meet.abort()  # type: ignore[attr-defined]
    with pytest.raises(GroupBroken):
        heirs[0].inherit(inherited(*leavers))

    assert heirs[0].training.held == 1
