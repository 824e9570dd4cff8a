"""Gradients that are sent while backward still runs: the same sums, whatever a graph or a failure does to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from spare_runtime import buckets
from spare_runtime.buffers import TAIL, GradientBuffers
from spare_runtime.errors import CollectiveFailed

LAYERS, WIDTH = 6, 5


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets of one or two layers."""
    monkeypatch.setattr(buckets, "_FIRST", 4 * (WIDTH * WIDTH + WIDTH))
    monkeypatch.setattr(buckets, "_CAP", 8 * (WIDTH * WIDTH + WIDTH))


def model() -> nn.Sequential:
    """Six layers, the last of which backward reaches first."""
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def loss_of(m: nn.Module, seed: int) -> Tensor:
    """Of one micro-batch."""
    x = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(seed))
    loss: Tensor = m(x).square().mean()
    return loss


def micro(buffers: GradientBuffers, loss: Tensor, empty: bool) -> None:
    """What a session does with it."""
    buffers.check_attached(empty)
    loss.backward()  # type: ignore[no-untyped-call]
    buffers.add_loss(loss)


def test_the_sum_is_the_same_as_without() -> None:
    """Several buckets, all but the last sent in the middle of the last backward, none twice, none left out."""
    m, sent = model(), list[Tensor]()
    buffers = GradientBuffers(m.parameters())
    micro(buffers, loss_of(m, 1), empty=True)
    buffers.arm(sent.append)
    micro(buffers, loss_of(m, 2), empty=False)
    buffers.disarm()
    early = [t.clone() for t in sent]
    rest = buffers.fill(unseen=True)

    assert len(early) >= 3
    assert len(rest) == 1
    other = model()
    plain = GradientBuffers(other.parameters())
    micro(plain, loss_of(other, 1), empty=True)
    micro(plain, loss_of(other, 2), empty=False)
    whole = plain.fill(unseen=True)
    assert torch.equal(torch.cat([*early, *rest]), torch.cat(whole))
    assert len(whole) == len(early) + len(rest)


def test_what_was_sent_is_applied() -> None:
    """Twice the sum, as two groups with the same gradients would have it; the next step begins from nothing, and sends
    as much early."""
    m, sent = model(), list[Tensor]()
    buffers = GradientBuffers(m.parameters())
    for _ in range(3):
        sent.clear()
        buffers.arm(sent.append)
        micro(buffers, loss_of(m, 3), empty=True)
        buffers.disarm()
        mine = torch.cat([p.grad.reshape(-1) for p in m.parameters() if p.grad is not None])
        assert len(sent) >= 3
        for tensor in [*sent, *buffers.fill(unseen=False)]:
            tensor.mul_(2)
        buffers.apply(1.0)
        assert torch.equal(torch.cat([p.grad.reshape(-1) for p in m.parameters() if p.grad is not None]), 2 * mine)
        buffers.clear()


def test_a_parameter_without_gradient_holds_its_bucket_back() -> None:
    """The last layer takes no part: nothing is sent early, for the order is fixed; its sum is what it was."""
    m, sent = model(), list[Tensor]()
    buffers = GradientBuffers(m.parameters())
    buffers.arm(sent.append)
    micro(buffers, loss_of(m[:-1], 1), empty=True)
    buffers.disarm()

    assert sent == []
    rest = buffers.fill(unseen=True)
    assert len(rest) >= 4
    assert rest[0].eq(0).all()
    assert rest[-1][:-TAIL].ne(0).any()


def twice(m: nn.Module, buffers: GradientBuffers) -> None:
    """Two losses in one micro-batch."""
    micro(buffers, loss_of(m, 1), empty=True)
    micro(buffers, loss_of(m, 2), empty=False)


def again(m: nn.Module, buffers: GradientBuffers) -> None:
    """A graph that goes backward through a layer once more, inside of a backward, as checkpointing may."""
    inner = loss_of(m, 2)

    class Reenters(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, g: Tensor) -> Tensor:
            inner.backward()  # type: ignore[no-untyped-call]
            return g

    x = torch.randn(3, WIDTH, requires_grad=True)
    reenter: Callable[[Tensor], Tensor] = Reenters.apply
    micro(buffers, m(reenter(x)).square().mean(), empty=True)


@pytest.mark.parametrize("changes", [twice, again])
def test_gradients_that_change_after_they_were_sent_fail_the_reduction(
    changes: Callable[[nn.Module, GradientBuffers], None],
) -> None:
    """Nobody commits it; L is right, the next reduction sends it as it is, and nothing is sent early again."""
    m, sent = model(), list[Tensor]()
    buffers = GradientBuffers(m.parameters())
    buffers.arm(sent.append)
    changes(m, buffers)
    buffers.disarm()
    assert sent
    with pytest.raises(CollectiveFailed, match="gradients changed after they had been sent"):
        buffers.fill(unseen=True)

    other = model()
    plain = GradientBuffers(other.parameters())
    changes(other, plain)
    assert torch.equal(torch.cat(buffers.fill(unseen=True)), torch.cat(plain.fill(unseen=True)))
    sent.clear()
    buffers.arm(sent.append)
    micro(buffers, loss_of(m, 3), empty=False)
    buffers.disarm()
    assert sent == []


def test_a_reduction_that_was_given_up_may_still_write_into_its_own_tensors() -> None:
    """Somebody's thread holds them after a failure: what is sent next lies elsewhere."""
    m, sent = model(), list[Tensor]()
    buffers = GradientBuffers(m.parameters())
    buffers.arm(sent.append)
    micro(buffers, loss_of(m, 1), empty=True)
    buffers.disarm()
    first = [*sent, *buffers.fill(unseen=True)]
    expected = torch.cat(first).clone()
    second = buffers.fill(unseen=True)
    for tensor in first:
        tensor.fill_(float("nan"))

    assert torch.equal(torch.cat(second), expected)


def test_arming_again_forgets_what_was_sent() -> None:
    """A plan came in between and gave this group a patch to compute: all of L goes into the new reduction."""
    m, sent = model(), list[Tensor]()
    buffers = GradientBuffers(m.parameters())
    buffers.arm(sent.append)
    micro(buffers, loss_of(m, 1), empty=True)
    buffers.disarm()
    old, count = sent[0], len(sent)
    buffers.arm(sent.append)
    micro(buffers, loss_of(m, 2), empty=False)
    buffers.disarm()
    rest = buffers.fill(unseen=True)

    assert len(sent) == 2 * count
    assert sent[count].data_ptr() != old.data_ptr()
    other = model()
    plain = GradientBuffers(other.parameters())
    twice(other, plain)
    assert torch.equal(torch.cat([*sent[count:], *rest]), torch.cat(plain.fill(unseen=True)))


class Joined(nn.Module):
    """Its matrices are used as one: backward gives them parts of one tensor as their gradients."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.parts = nn.ParameterList(nn.Parameter(torch.randn(WIDTH, WIDTH)) for _ in range(LAYERS))
        self.last = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        mapped: Tensor = self.last((x @ torch.cat(list(self.parts)).T).view(-1, WIDTH))
        return mapped


@pytest.mark.parametrize("micros", [1, 2, 3])
def test_gradients_that_share_memory_are_sent_as_any_other(micros: int) -> None:
    """They are parts of L, each by itself, and each is added to after others of them have been sent."""
    found = []
    for armed in (True, False):
        m, sent = Joined(), list[Tensor]()
        buffers = GradientBuffers(m.parameters())
        for i in range(micros):
            if armed and i == micros - 1:
                buffers.arm(sent.append)
            micro(buffers, loss_of(m, i), empty=i == 0)
        buffers.disarm()
        early = [t.clone() for t in sent]
        found.append(torch.cat([*early, *buffers.fill(unseen=True)]))
        assert bool(early) is armed

    assert torch.equal(*found)


def test_a_backward_that_takes_another_way_sends_the_same() -> None:
    """Hooks are where the first one ended each bucket; the second reaches the layers in another order."""
    m, sent = model(), list[Tensor]()
    buffers = GradientBuffers(m.parameters())
    for order in (range(LAYERS), range(LAYERS - 1, -1, -1)):
        layers = nn.Sequential(*(m[i] for i in order))
        sent.clear()
        buffers.arm(sent.append)
        micro(buffers, loss_of(layers, 1), empty=True)
        buffers.disarm()
        got = torch.cat([*(t.clone() for t in sent), *buffers.fill(unseen=True)])
        buffers.apply(1.0)
        buffers.clear()
        other = model()
        plain = GradientBuffers(other.parameters())
        micro(plain, loss_of(nn.Sequential(*(other[i] for i in order)), 1), empty=True)
        assert torch.equal(got, torch.cat(plain.fill(unseen=True)))


def test_layers_that_are_frozen_later_are_not_watched() -> None:
    """Torch refuses hooks at them."""
    m, sent = model(), list[Tensor]()
    buffers = GradientBuffers(m.parameters())
    for frozen in (False, True):
        m[LAYERS // 2].requires_grad_(not frozen)
        sent.clear()
        buffers.arm(sent.append)
        micro(buffers, loss_of(m, 1), empty=True)
        buffers.disarm()
        count = len(sent) + len(buffers.fill(unseen=True))
        buffers.apply(1.0)
        buffers.clear()

    assert sent
    assert count > len(sent)
