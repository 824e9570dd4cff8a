"""The two gradient buffers: what backward adds up, what is reduced, and who may touch it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from spare_runtime.buffers import TAIL, Buffers, GradientBuffers
from spare_runtime.errors import SessionMisuse
from spare_runtime.exact import ExactBuffers


def mixed() -> nn.ParameterDict:
    """float32 and bfloat16, and one that is frozen."""
    return nn.ParameterDict(
        {
            "a": nn.Parameter(torch.zeros(2, 3)),
            "b": nn.Parameter(torch.zeros(5, dtype=torch.bfloat16)),
            "frozen": nn.Parameter(torch.zeros(7), requires_grad=False),
            "c": nn.Parameter(torch.zeros(())),
        }
    )


def gradient(p: nn.Parameter) -> Tensor:
    """Its gradient, which must be there."""
    assert p.grad is not None
    return p.grad


def add(buffers: GradientBuffers, model: nn.ParameterDict, factor: float, empty: bool) -> None:
    """One micro-batch whose gradient is `factor` everywhere."""
    buffers.check_attached(empty)
    loss = sum((model[name].float() * factor).sum() for name in ("a", "b", "c"))
    assert isinstance(loss, Tensor)
    loss.backward()  # type: ignore[no-untyped-call]
    buffers.add_loss(torch.tensor(factor))


def test_micro_batches_add_up_in_place() -> None:
    """All gradients of one dtype are reduced in one buffer; the frozen parameter has no place in any."""
    model = mixed()
    buffers = GradientBuffers(model.parameters())
    add(buffers, model, 2.0, empty=True)
    add(buffers, model, 3.0, empty=False)
    tensors = buffers.fill(unseen=False)

    assert [(t.dtype, t.numel()) for t in tensors] == [(torch.bfloat16, 5), (torch.float32, 7 + TAIL)]
    assert all(gradient(model[name]).eq(5.0).all() for name in ("a", "b", "c"))
    assert model["frozen"].grad is None
    assert buffers.loss() == 5.0


def test_a_failed_reduction_leaves_the_sum_alone() -> None:
    """W may hold anything after it; L, and so the next reduction, is as before."""
    model = mixed()
    buffers = GradientBuffers(model.parameters())
    add(buffers, model, 2.0, empty=True)
    for tensor in buffers.fill(unseen=True):
        tensor.fill_(float("nan"))
    tensors = buffers.fill(unseen=True)

    assert tensors[0].eq(2.0).all()
    assert tensors[1][:-TAIL].eq(2.0).all()


@pytest.mark.parametrize(("votes", "expected"), [((0, 0), True), ((0, 1), False), ((1, 1), False)])
def test_one_vote_is_enough_to_say_that_somebody_has_not_seen_it(votes: tuple[int, int], expected: bool) -> None:
    """The sum over the members is 0 only when all have seen a newer plan."""
    one, other = (GradientBuffers(mixed().parameters()) for _ in range(2))
    mine, others = one.fill(unseen=bool(votes[0])), other.fill(unseen=bool(votes[1]))
    for tensor, more in zip(mine, others, strict=True):
        tensor += more

    assert one.all_have_seen() is expected


def test_apply_scales_what_was_reduced() -> None:
    """Every parameter's gradient is the reduced one, times the scale, in its own dtype."""
    model = mixed()
    buffers = GradientBuffers(model.parameters())
    add(buffers, model, 2.0, empty=True)
    for tensor in buffers.fill(unseen=False):
        tensor *= 4
    buffers.apply(1 / 16)

    assert all(gradient(model[name]).eq(0.5).all() for name in ("a", "b", "c"))
    assert buffers.loss() == 8.0
    buffers.clear()
    assert all(model[name].grad is None for name in ("a", "b", "c"))
    add(buffers, model, 3.0, empty=True)
    assert buffers.fill(unseen=False)[0].eq(3.0).all()


@pytest.mark.parametrize("micro_batches", [3, 16])
@pytest.mark.parametrize("counted", [16, 15, 3])
def test_when_the_sum_is_divided_changes_no_bit(micro_batches: int, counted: int) -> None:
    """Before the reduction where N * m is a power of two, behind it else: the gradients are the same."""
    found = []
    for expected in (None, micro_batches):
        model = mixed()
        buffers = GradientBuffers(model.parameters())
        if expected is not None:
            buffers.expect(expected)
        for i in range(3):
            add(buffers, model, 0.1 * (i + 1), empty=i == 0)
        for tensor in buffers.fill(unseen=False):
            tensor *= 3
        assert buffers.loss() == pytest.approx(1.8)
        buffers.apply(1 / counted)
        found.append([gradient(model[name]) for name in ("a", "b", "c")])

    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_half_precision_is_not_made_smaller_before_it_is_summed() -> None:
    """What float16 could no longer hold would be lost: its smallest number, from each of 1,024 micro-batches."""
    model = nn.ParameterDict({name: nn.Parameter(torch.zeros(3, dtype=torch.float16)) for name in ("a", "b", "c")})
    buffers = GradientBuffers(model.parameters())
    buffers.expect(1024)
    for i in range(1024):
        add(buffers, model, 2.0**-24, empty=i == 0)
    buffers.fill(unseen=False)
    buffers.apply(1 / 1024)

    assert all(gradient(model[name]).eq(2.0**-24).all() for name in ("a", "b", "c"))


def test_a_parameter_that_some_micro_batches_do_not_use_has_the_sum_of_the_others() -> None:
    """Zero if none does, and not None: an optimizer treats it as in any other step."""
    model = mixed()
    buffers = GradientBuffers(model.parameters())
    for value, used in enumerate(("ab", "b", "ab"), start=1):
        buffers.check_attached(empty=value == 1)
        loss = sum((model[name].float() * value).sum() for name in used)
        assert isinstance(loss, Tensor)
        loss.backward()  # type: ignore[no-untyped-call]
        buffers.add_loss(loss)
    buffers.fill(unseen=False)
    buffers.apply(1.0)

    assert [float(gradient(model[name]).max()) for name in ("a", "b", "c")] == [4.0, 6.0, 0.0]


def test_sparse_gradients_are_summed_as_any_other() -> None:
    """An embedding that asks for them gets the dense sum."""
    model = nn.Embedding(5, 2, sparse=True)
    buffers = GradientBuffers(model.parameters())
    for i, row in enumerate((1, 3, 1)):
        buffers.check_attached(empty=i == 0)
        loss = model(torch.tensor([row])).sum()
        loss.backward()
        buffers.add_loss(loss)
    buffers.fill(unseen=False)
    buffers.apply(1.0)

    [weight] = model.parameters()
    assert gradient(weight)[:, 0].tolist() == [0.0, 2.0, 0.0, 1.0, 0.0]


def test_another_groups_sum_is_added_to_ones_own() -> None:
    """Also of a parameter that one of both has nothing of; the loss with it."""
    sums = []
    for used in ("ab", "bc"):
        model = mixed()
        buffers = GradientBuffers(model.parameters())
        buffers.check_attached(empty=True)
        loss = sum((model[name].float() * 2).sum() for name in used)
        assert isinstance(loss, Tensor)
        loss.backward()  # type: ignore[no-untyped-call]
        buffers.add_loss(torch.tensor(3.0))
        sums.append((model, buffers))
    (model, one), (_, other) = sums
    one.add_sums(other.sums())
    add(one, model, 5.0, empty=False)
    one.fill(unseen=False)

    assert one.loss() == 11.0
    one.apply(1.0)
    assert [float(gradient(model[name]).max()) for name in ("a", "b", "c")] == [7.0, 9.0, 7.0]


def test_a_model_in_half_precision_counts_losses_in_single() -> None:
    """A sum of 1,000 losses in bfloat16 would be worthless, and so would the vote."""
    model = nn.Linear(3, 3, dtype=torch.bfloat16)
    buffers = GradientBuffers(model.parameters())
    for _ in range(1000):
        buffers.add_loss(torch.tensor(1.0))
    buffers.fill(unseen=True)

    assert buffers.loss() == 1000.0
    assert not buffers.all_have_seen()


def test_a_model_without_gradients_is_refused() -> None:
    """There would be nothing to train."""
    with pytest.raises(SessionMisuse, match="no parameter that requires a gradient"):
        GradientBuffers([nn.Parameter(torch.zeros(1), requires_grad=False)])


def unbind(model: nn.Module) -> None:
    """What optimizer.zero_grad() does by default."""
    model.zero_grad()


def zero(model: nn.Module) -> None:
    """The same, in place."""
    model.zero_grad(set_to_none=False)


def clip(model: nn.Module) -> None:
    """What belongs into `on_gradients`."""
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)


@pytest.mark.parametrize("touch", [unbind, zero])
def test_gradients_may_be_cleared_between_steps(touch: Callable[[nn.Module], None]) -> None:
    """Scripts for one process do it at the start of each step, and nothing is lost by it."""
    model = mixed()
    buffers = GradientBuffers(model.parameters())
    touch(model)
    add(buffers, model, 2.0, empty=True)
    tensors = buffers.fill(unseen=False)

    assert tensors[0].eq(2.0).all()
    assert gradient(model["a"]).eq(2.0).all()


@pytest.mark.parametrize("touch", [unbind, zero, clip])
def test_gradients_must_not_be_touched_in_mid_step(touch: Callable[[nn.Module], None]) -> None:
    """The sum of the micro-batches so far would be lost or bent; the text says what to do instead."""
    model = mixed()
    buffers = GradientBuffers(model.parameters())
    add(buffers, model, 2.0, empty=True)
    touch(model)

    with pytest.raises(SessionMisuse, match=r"in the middle of a step.*at each commit"):
        add(buffers, model, 2.0, empty=False)


@pytest.mark.parametrize("touch", [zero, clip])
def test_a_bent_sum_is_not_reduced(touch: Callable[[nn.Module], None]) -> None:
    """Also when it happens after the last micro-batch of the step."""
    model = mixed()
    buffers = GradientBuffers(model.parameters())
    add(buffers, model, 2.0, empty=True)
    touch(model)

    with pytest.raises(SessionMisuse, match="in the middle of a step"):
        buffers.fill(unseen=False)


def test_unbinding_after_the_last_micro_batch_loses_nothing() -> None:
    """`zero_grad()` at the end of the loop's body only lets go of the places; the sum is still there."""
    model = mixed()
    buffers = GradientBuffers(model.parameters())
    add(buffers, model, 2.0, empty=True)
    unbind(model)

    assert buffers.fill(unseen=False)[0].eq(2.0).all()


@pytest.mark.parametrize("touch", [unbind, zero])
def test_a_group_that_computes_nothing_may_clear_too(touch: Callable[[nn.Module], None]) -> None:
    """It has no micro-batch in this step, and reduces zeros."""
    model = mixed()
    buffers = GradientBuffers(model.parameters())
    model["a"].grad = torch.full((2, 3), 7.0)
    touch(model)

    assert all(t.eq(0.0).all() for t in buffers.fill(unseen=False, empty=True))


def test_parameters_must_not_be_stepped_in_mid_step() -> None:
    """optimizer.step() by the script would leave this group with a model of its own; between steps it may."""
    model = mixed()
    buffers = GradientBuffers(model.parameters())
    optimizer = torch.optim.SGD([model["a"]], lr=0.1)
    optimizer.step()
    add(buffers, model, 1.0, empty=True)
    optimizer.step()

    with pytest.raises(SessionMisuse, match=r"parameters were changed in the middle of a step \(optimizer.step"):
        add(buffers, model, 1.0, empty=False)
    with pytest.raises(SessionMisuse, match="parameters were changed"):
        buffers.fill(unseen=True)


class Aliased(nn.Module):
    """Backward gives its first parameters views of one tensor as their gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in ((3, 3), (9,), (9, 1), (4,), (5,)))

    def forward(self, factor: float) -> Tensor:
        a, b, c, d, e = self.parts
        loss: Tensor = (a.view(-1) + b.view(9) + c.squeeze(1) + torch.cat([d, e])).mul(factor).sum()
        return loss


@pytest.mark.parametrize("micros", [1, 2, 4])
def test_what_is_added_to_one_gradient_is_not_added_to_another(micros: int) -> None:
    """Else a sum would depend on who computed what: autograd shares memory where it hands over, not where it adds."""
    model = Aliased()
    buffers = GradientBuffers(model.parameters())
    for i in range(micros):
        buffers.check_attached(empty=i == 0)
        loss = model(2.0**i)
        loss.backward()
        buffers.add_loss(loss)
    buffers.fill(unseen=False)
    buffers.apply(1.0)

    assert all(gradient(p).eq(2.0**micros - 1).all() for p in model.parameters())


@pytest.mark.parametrize("buffers_of", [GradientBuffers, ExactBuffers])
def test_a_parameter_that_is_frozen_later_has_no_gradient(buffers_of: type[Buffers]) -> None:
    """None, and not zeros, by which momentum and weight decay would change it."""
    model = nn.Linear(3, 1)
    buffers = buffers_of(model.parameters())  # type: ignore[call-arg]
    buffers.expect(2)
    for frozen in (False, True):
        model.bias.requires_grad_(not frozen)
        buffers.check_attached(empty=True)
        loss = model(torch.ones(3)).sum()
        loss.backward()
        buffers.add_loss(loss)
        buffers.fill(unseen=False)
        buffers.apply(1.0)
        assert (model.bias.grad is None) is frozen
        assert model.weight.grad is not None
        assert model.weight.grad.eq(1.0).all()
        buffers.clear()


@pytest.mark.parametrize("buffers_of", [GradientBuffers, ExactBuffers])
@pytest.mark.parametrize("unbound", [False, True])
def test_gradients_of_the_scripts_own_are_not_thrown_away_unsaid(buffers_of: type[Buffers], unbound: bool) -> None:
    """A part of the loss that was not given to the session, say. Cleared by the script, they are its own business."""
    model = nn.Linear(3, 1)
    buffers = buffers_of(model.parameters())  # type: ignore[call-arg]
    buffers.expect(2)
    if unbound:
        unbind(model)
    model(torch.ones(3)).sum().backward()
    with pytest.raises(SessionMisuse, match="before the first session"):
        buffers.check_attached(empty=True)
    zero(model)
    buffers.check_attached(empty=True)
