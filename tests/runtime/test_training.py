"""What one group has of the training: a commit, and what may not change it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from spare_runtime import buckets
from spare_runtime.buffers import TAIL
from spare_runtime.errors import CollectiveFailed, SessionMisuse
from spare_runtime.ledger import Ledger
from spare_runtime.training import Training

RATE = 0.5


def training(
    model: nn.Module,
    directory: Path | None = None,
    on_gradients: Callable[[], None] | None = None,
    digests: bool = False,
    reduction: str = "float",
) -> Training:
    """One group's training with plain gradient descent."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)
    ledger = Ledger(str(directory) if directory else None, 0, "uid")
    return Training(model, [optimizer], on_gradients, ledger, digests, reduction)


def compute(t: Training, bit: int, gradient: float) -> None:
    """One micro-batch whose gradient is the same number everywhere, and whose loss is that number."""
    t.buffers.check_attached(empty=not t.held)
    for p in t.model.parameters():
        if p.requires_grad and p.grad is not None:
            p.grad += gradient
        elif p.requires_grad:
            p.grad = torch.full_like(p, gradient)
    t.buffers.add_loss(torch.tensor(gradient))
    t.add(bit)


def model() -> nn.ParameterDict:
    """float32, bfloat16 and frozen."""
    return nn.ParameterDict(
        {
            "one": nn.Parameter(torch.zeros(3)),
            "two": nn.Parameter(torch.zeros(2, dtype=torch.bfloat16)),
            "still": nn.Parameter(torch.ones(2), requires_grad=False),
        }
    )


def test_the_sum_is_divided_by_the_whole_batch() -> None:
    """By N * m, however many groups computed: three lost groups do not make the step larger. So is the loss."""
    m = model()
    t = training(m)
    for bit, value in enumerate((1.0, 2.0, 3.0)):
        compute(t, bit, value)
    t.entering(1, unseen=True)
    t.reduced = 1
    computed = t.commit(micro_batches=64, schedule=0b101)

    assert computed == 3
    assert m["one"].eq(-RATE * 6 / 64).all()
    assert m["two"].eq(-RATE * 6 / 64).all()
    assert m["still"].eq(1.0).all()
    assert t.loss == 6 / 64


def test_a_commit_begins_the_next_step() -> None:
    """L is empty, nothing is held or reduced, and the schedule is to be done."""
    m = model()
    t = training(m)
    compute(t, 0, 1.0)
    t.entering(1, unseen=True)
    t.reduced = 1
    t.commit(64, schedule=0b101)

    assert (t.committed, t.held, t.todo) == (1, 0, 0b101)
    assert t.facts(0).reduced is None
    compute(t, 0, 2.0)
    assert t.todo == 0b100
    t.entering(1, unseen=True)
    t.reduced = 1
    t.commit(64, 0)
    assert m["one"].eq(-RATE * 3 / 64).all(), "the first step's gradient counted again, or the second's did not"


def test_entering_a_reduction_forgets_the_last_result() -> None:
    """A half overwritten W must never be called reduced."""
    t = training(model())
    t.entering(1, unseen=True)
    t.reduced = 1
    t.entering(2, unseen=True)

    assert t.reduced is None


def test_clipping_sees_the_gradient_of_all_groups() -> None:
    """`on_gradients` runs between the scaling and the optimizer, and what it does is applied."""
    m, norms = model(), []

    def clip() -> None:
        norms.append(float(nn.utils.clip_grad_norm_(m.parameters(), 1e-9)))

    t = training(m, on_gradients=clip)
    compute(t, 0, 64.0)
    t.entering(1, unseen=True)
    t.reduced = 1
    t.commit(64, 0)

    assert norms == pytest.approx([5**0.5], rel=1e-3)
    assert m["one"].abs().max() < 1e-8


def test_a_dropped_sum_is_gone() -> None:
    """What was held for a step that others committed must not reach the next one."""
    t = training(model())
    compute(t, 0, 5.0)
    t.drop_held()

    assert t.held == 0
    assert all(tensor.eq(0.0).all() for tensor in t.entering(1, unseen=False))


def test_the_ledger_tells_the_step_before_it_happens(tmp_path: Path) -> None:
    """What entered, and what was committed, with what was computed and what was computed again."""
    t = training(model(), tmp_path, digests=True)
    compute(t, 0, 1.0)
    compute(t, 5, 1.0)
    t.drop_held()
    compute(t, 5, 1.0)
    t.entering(3, unseen=True)
    t.reduced = 3
    computed = t.commit(64, 0)
    entries = [json.loads(line) for line in (tmp_path / "ledger" / "group-0-uid.jsonl").read_text().splitlines()]
    digest = entries[1].pop("digest")

    assert computed == 3
    assert entries == [
        {"step": 0, "epoch": 3, "enters": "20"},
        {"step": 0, "commits": 3, "computed": "21", "again": 1},
    ]
    assert len(digest) == 64


def test_what_comes_next_follows_the_schedule() -> None:
    """What is left of this step, then the schedule for ever; nothing at all when there is neither."""
    t = training(model())
    t.committed, t.todo = 4, 0b1010
    ahead = t.upcoming(0b101)

    assert [next(ahead) for _ in range(6)] == [(4, 1), (4, 3), (5, 0), (5, 2), (6, 0), (6, 2)]
    t.todo = 0
    assert list(t.upcoming(0)) == []


def test_parameters_can_be_taken_over() -> None:
    """From copies that later steps do not change, frozen ones included."""
    one, other = training(model()), training(model())
    with torch.no_grad():
        one.model.get_parameter("one").fill_(3.0)
        one.model.get_parameter("still").fill_(4.0)
    copies = one.copies()
    with torch.no_grad():
        one.model.get_parameter("one").fill_(9.0)
    other.replace(copies)

    assert other.model.get_parameter("one").eq(3.0).all()
    assert other.model.get_parameter("still").eq(4.0).all()


def test_a_state_of_other_optimizers_is_refused() -> None:
    """Torch would load them without a word. Older states do not say of which optimizers they are."""
    one, other = training(model()), training(model())
    other._optimizers = [torch.optim.AdamW(other.model.parameters())]
    with pytest.raises(SessionMisuse, match=r"the optimizers \['AdamW'\], that of the state had \['SGD'\]"):
        other.load(one.state())
    with pytest.raises(SessionMisuse, match="optimizers"):
        one.load({**one.state(), "kinds": ["SGD", "SGD"]})

    one.load({key: value for key, value in one.state().items() if key != "kinds"})


def step(t: Training) -> None:
    """One whole step of this group alone."""
    compute(t, 0, 1.0)
    t.entering(1, unseen=True)
    t.reduced = 1
    t.commit(64, 0)


def test_parameters_that_come_too_late_are_refused_by_name() -> None:
    """Nobody sums their gradients: each group would step them by its own. Nothing is stepped."""
    m = model()
    t = training(m)
    step(t)
    m["late"] = nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    m["other"] = nn.Parameter(torch.zeros(1))
    late = [m["late"], m["other"], nn.Parameter(torch.zeros(1))]
    t._optimizers[0].add_param_group({"params": late})  # type: ignore[attr-defined]
    before = m["one"].clone()

    t.reduced = 1
    with pytest.raises(SessionMisuse, match=r"after the session was entered: late, other, 1 that the model has not\."):
        t.commit(64, 0)
    assert m["one"].equal(before)
    assert t.committed == 1


def test_parameters_that_only_an_optimizer_has_are_refused() -> None:
    """Of the loss, say: each group would train its own. Frozen ones may be there, and those of two modules."""
    m, margin, still = model(), nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2), requires_grad=False)
    m["tied"] = m["one"]
    training(m)
    optimizer = torch.optim.SGD([m["one"], still], lr=RATE)
    Training(m, [optimizer], None, Ledger(None, 0, "uid"), False)
    optimizer.add_param_group({"params": [margin]})
    with pytest.raises(SessionMisuse, match="the optimizers have 1 parameter that the model has not"):
        Training(m, [optimizer], None, Ledger(None, 0, "uid"), False)


def test_who_begins_a_last_micro_batch_anew_sends_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others' buckets would be summed with the wrong ones; now the reduction fails, and L is whole."""
    monkeypatch.setattr(buckets, "_FIRST", 4)
    monkeypatch.setattr(buckets, "_CAP", 4)
    m, sent = nn.Linear(3, 1), list[torch.Tensor]()
    t = training(m)
    for _ in range(2):
        t.arm(0, 1, sent.append)
        m.zero_grad()
        t.buffers.check_attached(empty=True)
        loss = m(torch.ones(3)).sum()
        loss.backward()
    t.buffers.add_loss(loss)
    t.disarm()
    t.add(0)

    assert len(sent) == 1
    with pytest.raises(CollectiveFailed, match="changed after they had been sent"):
        t.entering(1, unseen=True)
    assert torch.cat([*t.entering(2, unseen=True)])[:-TAIL].tolist() == [1.0] * 4


def test_parameters_that_thaw_are_refused_and_those_that_are_stepped_later_are_not() -> None:
    """A frozen one that an optimizer has had from the beginning; one that was summed, and not stepped, until now."""
    m = model()
    t = Training(m, [torch.optim.SGD([m["one"], m["still"]], lr=RATE)], None, Ledger(None, 0, "uid"), False)
    step(t)
    t._optimizers[0].add_param_group({"params": [m["two"]]})  # type: ignore[attr-defined]
    step(t)
    assert m["two"].eq(-RATE / 64).all()

    m["still"].requires_grad_()
    t.reduced = 1
    with pytest.raises(SessionMisuse, match=r"entered: still\."):
        t.commit(64, 0)


def test_facts_say_what_the_group_has() -> None:
    """As they stand, with a checksum over all parameters."""
    t = training(model())
    compute(t, 3, 1.0)
    before = t.facts(2)
    with torch.no_grad():
        t.model.get_parameter("still").fill_(4.0)

    assert (before.group, before.committed, before.reduced, before.whole, before.held) == (2, 0, None, True, 0b1000)
    assert t.facts(2).checksum != before.checksum


# --- sums in fixed point --------------------------------------------------------------------------------------------


def exact(directory: Path | None = None) -> Training:
    """A training whose steps have two micro-batches."""
    t = training(model(), directory, reduction="exact")
    t.buffers.expect(2)
    return t


def reduce(t: Training, epoch: int = 1) -> None:
    """A reduction with nobody else."""
    t.entering(epoch, unseen=True)
    t.reduced = epoch


def test_a_step_that_does_not_fit_is_begun_again(tmp_path: Path) -> None:
    """Each group computes again what it held; nothing of the first try counts, and the ledger tells of both."""
    t = exact(tmp_path)
    for bit in (0, 3):
        compute(t, bit, 2.0**30)
    reduce(t)
    assert t.must_begin_again()
    assert t.facts(0).overflown
    t.begin_again()

    assert (t.committed, t.held, t.todo, t.reduced, t.begun_again) == (0, 0, 0b1001, None, 1)
    for bit in (0, 3):
        compute(t, bit, 2.0**30)
    reduce(t)
    assert not t.must_begin_again()
    assert t.commit(2, 0) == 2
    assert t.model.get_parameter("one").eq(-RATE * 2.0**30).all()
    assert (t.loss, t.begun_again) == (2.0**30, 0)
    entries = [json.loads(line) for line in (tmp_path / "ledger" / "group-0-uid.jsonl").read_text().splitlines()]
    assert entries == [
        {"step": 0, "epoch": 1, "enters": "9"},
        {"step": 0, "begins_again": 1, "computed": "9"},
        {"step": 0, "epoch": 1, "enters": "9"},
        {"step": 0, "commits": 1, "computed": "9"},
    ]


def test_gradients_that_never_come_out_the_same_end_the_job() -> None:
    """Far larger each time it is computed again: no scale fits."""
    t, value = exact(), 2.0**20

    def another() -> None:
        compute(t, 0, value)
        compute(t, 1, value)
        reduce(t)
        t.begin_again()

    for _ in range(4):
        another()
        value *= 2.0**20
    with pytest.raises(SessionMisuse, match=r"step 0 was begun again 4 times.*must give the same gradient"):
        another()


def test_a_joiner_takes_over_the_scales() -> None:
    """Its first step fits as the donor's does, and the checksum would tell if it did not."""
    donor, joiner = exact(), exact()
    for bit in (0, 1):
        compute(donor, bit, 2.0**-40)
    reduce(donor)
    donor.begin_again()
    state = donor.state()
    assert donor.facts(0).checksum != joiner.facts(0).checksum
    joiner.load(state)

    assert joiner.buffers.scales() == donor.buffers.scales()
    assert (joiner.committed, joiner.begun_again) == (0, 1)
    assert donor.facts(0).checksum == joiner.facts(0).checksum
    assert joiner.facts(1).reduction == "exact"


def test_a_state_of_the_other_reduction_can_be_gone_on_from() -> None:
    """A checkpoint of floating sums has no scales, one of exact sums has some too many."""
    plain, fixed = training(model()), exact()
    before = fixed.buffers.scales()
    fixed.load(plain.state())
    plain.load(fixed.state())

    assert fixed.buffers.scales() == before
    compute(fixed, 0, 1.0)
    reduce(fixed)
    assert not fixed.must_begin_again()
