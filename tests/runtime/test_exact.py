"""Sums in fixed point: the same bits in any order and for any members; what does not fit is noticed by all alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from spare_runtime.buffers import GradientBuffers
from spare_runtime.errors import SessionMisuse
from spare_runtime.exact import ExactBuffers

SHAPES = {"weight": (2, 3), "bias": (2,), "scalar": ()}
SIZE = 9
Gradient = Sequence[float]


def model(dtype: torch.dtype = torch.float32) -> nn.ParameterDict:
    """Three parameters, nine elements, and one that is frozen."""
    parameters = {name: nn.Parameter(torch.zeros(shape, dtype=dtype)) for name, shape in SHAPES.items()}
    return nn.ParameterDict(parameters | {"frozen": nn.Parameter(torch.zeros(3), requires_grad=False)})


class Group:
    """One member: its model and its sums."""

    def __init__(self, micro_batches: int, dtype: torch.dtype = torch.float32) -> None:
        self.model = model(dtype)
        names = {id(p): name for name, p in self.model.items()}
        self.buffers = ExactBuffers(self.model.parameters(), names)
        self.buffers.expect(micro_batches)
        self.held = 0

    def compute(self, gradient: Gradient, loss: float = 0.0) -> None:
        """A micro-batch with this gradient."""
        self.buffers.check_attached(empty=not self.held)
        values = torch.tensor(gradient, dtype=torch.float64)
        for name, part in zip(SHAPES, torch.split(values, [6, 2, 1]), strict=True):
            place = self.model[name].grad
            assert place is not None
            place += part.view(SHAPES[name]).to(place.dtype)
        self.buffers.add_loss(torch.tensor(loss, dtype=torch.float64))
        self.held += 1

    def gradient(self) -> Tensor:
        """What the optimizer sees."""
        return torch.cat([self.model[name].grad.reshape(-1) for name in SHAPES])


def reduce(groups: Sequence[Group]) -> None:
    """What the process group does."""
    parts = [g.buffers.fill(unseen=True, empty=not g.held) for g in groups]
    total = [torch.stack(each).sum(0) for each in zip(*parts, strict=True)]
    for part in parts:
        for mine, whole in zip(part, total, strict=True):
            mine.copy_(whole)


def step(groups: Sequence[Group], gradients: Sequence[Gradient], owners: Sequence[int], order: Sequence[int]) -> int:
    """A whole step; micro-batch `i` is computed by group `owners[i]`. Returns how often it was begun again."""
    again = 0
    while True:
        for i in order:
            groups[owners[i]].compute(gradients[i], float(gradients[i][0]))
        reduce(groups)
        misfits = [g.buffers.overflown() for g in groups]
        assert len(set(misfits)) == 1, "all must decide alike"
        for g in groups:
            if not misfits[0]:
                g.buffers.apply(1.0 / len(gradients))
            g.buffers.rescale()
            g.held = 0
        if not misfits[0]:
            return again
        for g in groups:
            g.buffers.clear()
        again += 1
        assert again < 3


floats = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**60), max_value=2.0**60)
gradients = st.lists(st.lists(floats, min_size=SIZE, max_size=SIZE), min_size=1, max_size=7)


@given(gradients, st.randoms(use_true_random=False))
def test_the_sum_does_not_depend_on_order_or_membership(given: list[Gradient], chance: st.DataObject) -> None:
    """One group in order, and five with the micro-batches dealt and shuffled: the same bits, the same scales, twice."""
    one, many = [Group(len(given))], [Group(len(given)) for _ in range(5)]
    for _ in range(2):
        order = list(range(len(given)))
        step(one, given, [0] * len(given), order)
        chance.shuffle(order)  # type: ignore[attr-defined]
        step(many, given, [chance.randrange(5) for _ in given], order)  # type: ignore[attr-defined]

        for g in many:
            assert torch.equal(g.gradient(), one[0].gradient())
            assert g.buffers.scales() == one[0].buffers.scales()
            assert g.buffers.loss() == one[0].buffers.loss()
        for g in [*one, *many]:
            g.buffers.clear()


@given(gradients)
@example([[0.0] * 8 + [2.0**-126]])
@example([[2.0**-125] * SIZE] * 7)
def test_the_error_is_bounded_by_the_largest_element(given: list[Gradient]) -> None:
    """At most half a quantum for each micro-batch; the quantum is 2^-28 or less of the parameter's largest element, or
    2^-123 or less, which is near the smallest that float32 can scale by. The loss has no error at all."""
    group = Group(len(given))
    step([group], given, [0] * len(given), range(len(given)))

    for at in ((0, 6), (6, 8), (8, 9)):
        largest = max(abs(x) for g in given for x in g[slice(*at)])
        for i in range(*at):
            exact = sum((Fraction(g[i]) for g in given), Fraction(0)) / len(given)
            found = float(group.gradient()[i])
            quantum = max(Fraction(largest) / 2**28, Fraction(2.0**-124))
            assert abs(Fraction(found) - exact) <= quantum + abs(exact) / 2**24
    assert group.buffers.loss() == float(sum((Fraction(g[0]) for g in given), Fraction(0)))


def test_elements_are_rounded_to_the_nearest() -> None:
    """The smallest power of two of which three quarters do not vanish is the quantum: they are rounded up to it."""
    for exponent in range(-80, 0):
        group = Group(4)
        step([group], [[1.0, 0.75 * 2.0**exponent] + [0.0] * 7] * 4, [0] * 4, range(4))
        if found := float(group.gradient()[1]):
            break

    assert found == 2.0**exponent


@pytest.mark.parametrize("element", range(SIZE))
@pytest.mark.parametrize("who", [0, 1, 2])
def test_one_element_too_large_is_noticed_by_everybody(element: int, who: int) -> None:
    """Wherever it is and whoever has it: all begin again, with scales that fit, and the sum is right."""
    groups, usual = [Group(3) for _ in range(3)], [[0.25] * SIZE] * 3
    step(groups, usual, [0, 1, 2], range(3))
    for g in groups:
        g.buffers.clear()
    large = [list(g) for g in usual]
    large[who][element] = 2.0**40

    assert step(groups, large, [0, 1, 2], range(3)) == 1
    for g in groups:
        assert g.gradient()[element] == torch.tensor((2.0**40 + 0.5) / 3)
        assert all(float(x) == 0.25 for i, x in enumerate(g.gradient()) if i != element)


def test_the_text_names_parameter_and_range() -> None:
    """What a user is told of it."""
    group = Group(1)
    group.compute([0.0] * 6 + [2.0**40] * 2 + [1.0])
    reduce([group])

    [text] = group.buffers.overflown()
    assert text.startswith("bias: an element of up to 2^4")


def test_what_fits_for_sure_cannot_overflow() -> None:
    """All of N * m micro-batches at the largest value that a scale admits, all of one sign."""
    count = 5
    group = Group(count)
    top = 1.0
    while True:  # the largest power of two that is not noticed
        probe = Group(count)
        probe.compute([top * 2] * SIZE)
        reduce([probe])
        if probe.buffers.overflown():
            break
        top *= 2
    for sign in (1.0, -1.0):
        for _ in range(count):
            group.compute([sign * top * (2 - 2.0**-23)] * SIZE)
        reduce([group])
        assert not group.buffers.overflown()
        group.buffers.apply(1.0)
        assert group.gradient().tolist() == [float(torch.tensor(sign * top * (2 - 2.0**-23) * count))] * SIZE
        group.buffers.clear()


def test_a_first_guess_far_too_large_is_noticed_too() -> None:
    """Gradients of 1e-15 in the first step keep their bits: the step is begun again with a finer quantum."""
    group = Group(4)

    assert step([group], [[1.1e-15] * SIZE] * 4, [0] * 4, range(4)) == 1
    assert torch.allclose(group.gradient(), torch.full((SIZE,), 1.1e-15), rtol=1e-7, atol=0.0)


def test_scales_follow_the_gradients() -> None:
    """Growth and decay of any length in small steps never begin a step again."""
    group = Group(4)
    for exponent in [*range(0, 90, 6), *range(90, -110, -4)]:
        assert step([group], [[2.0**exponent] * SIZE] * 4, [0] * 4, range(4)) == 0
        assert group.gradient().tolist() == [2.0**exponent] * SIZE
        group.buffers.clear()


def test_a_parameter_without_gradients_keeps_its_scale() -> None:
    """Zeros say nothing about a magnitude."""
    group = Group(2)
    step([group], [[3.0] * SIZE] * 2, [0, 0], range(2))
    before = group.buffers.scales()
    group.buffers.clear()
    step([group], [[0.0] * SIZE] * 2, [0, 0], range(2))

    assert group.buffers.scales() == before
    assert group.gradient().tolist() == [0.0] * SIZE


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_inf_and_nan_reach_the_whole_parameter(value: float) -> None:
    """As NaN, and only that parameter; the step is not begun again, and the scales stay."""
    groups = [Group(3) for _ in range(2)]
    given = [[1.0] * SIZE, [1.0] * 6 + [value] + [1.0] * 2, [2.0] * SIZE]

    assert step(groups, given, [0, 1, 1], range(3)) == 0
    for g in groups:
        assert g.gradient()[6:8].isnan().all()
        assert g.gradient()[[0, 1, 2, 3, 4, 5, 8]].tolist() == [float(torch.tensor(4.0 / 3))] * 7
        g.buffers.clear()
    assert step(groups, [[1.0] * SIZE] * 3, [0, 1, 0], range(3)) == 0
    assert groups[0].gradient().tolist() == [1.0] * SIZE


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype) -> None:
    """A parameter's gradient has its dtype; half precision is summed without its own rounding."""
    groups = [Group(300, dtype) for _ in range(2)]
    step(groups, [[1.0] * SIZE] * 299 + [[2.0**-7] * SIZE], [i % 2 for i in range(300)], range(300))

    expected = torch.tensor((299 + 2.0**-7) / 300, dtype=torch.float64).to(dtype)
    assert groups[1].gradient().dtype is dtype
    assert groups[1].gradient().eq(expected).all()


def test_extremes_of_float64() -> None:
    """Far beyond float32, in both directions."""
    for value in (1e300, 1e-300):
        group = Group(2, torch.float64)
        step([group], [[value] * SIZE, [value] * SIZE], [0, 0], range(2))
        assert torch.allclose(group.gradient(), torch.full((SIZE,), value, dtype=torch.float64), rtol=1e-8, atol=0.0)


def test_large_parameters_are_taken_in_pieces() -> None:
    """Of several pieces, the last one not full: each element is its own sum, and one too large in any piece is seen."""
    parameter = nn.Parameter(torch.zeros(70_001))
    buffers = ExactBuffers([parameter])
    buffers.expect(2)
    values = torch.randn(2, 70_001)
    for each in values:
        assert parameter.grad is not None
        parameter.grad += each
        buffers.add_loss(torch.tensor(0.0))
    buffers.fill(unseen=False)
    buffers.apply(0.5)
    assert torch.equal(parameter.grad, (values.double().sum(0) / 2).float())  # type: ignore[arg-type]
    for at in (0, 32_767, 32_768, 70_000):
        buffers.clear()
        assert parameter.grad is not None
        parameter.grad[at] = 2.0**100
        buffers.add_loss(torch.tensor(0.0))
        buffers.fill(unseen=False)
        assert buffers.overflown()


def test_the_vote_rides_along() -> None:
    """As in the other reduction: 0 only when nobody has not seen it."""
    groups = [Group(1), Group(1)]
    parts = [g.buffers.fill(unseen=vote, empty=True)[0] for g, vote in zip(groups, (False, True), strict=True)]
    parts[0] += parts[1]

    assert not groups[0].buffers.all_have_seen()
    groups[0].buffers.fill(unseen=False, empty=True)
    assert groups[0].buffers.all_have_seen()


def test_a_reduction_that_was_given_up_may_still_write_into_its_own_tensor() -> None:
    """Somebody's thread holds it after a failure: what is reduced next lies elsewhere."""
    group = Group(2)
    group.compute([1.0] * SIZE)
    [first] = group.buffers.fill(unseen=True)
    expected = first.clone()
    [second] = group.buffers.fill(unseen=True)
    first.fill_(-1)

    assert torch.equal(second, expected)


def test_what_cannot_be_summed_is_refused() -> None:
    """By dtype, and on an accelerator; and gradients changed in mid-step as ever."""
    with pytest.raises(SessionMisuse, match=r"not torch\.complex64"):
        ExactBuffers([nn.Parameter(torch.zeros(1, dtype=torch.complex64))])
    with pytest.raises(SessionMisuse, match="on the CPU only, and parameters are on meta"):
        ExactBuffers([nn.Parameter(torch.zeros(1, device="meta"))])
    group = Group(2)
    group.compute([1.0] * SIZE)
    group.gradient()
    group.model["bias"].grad.mul_(2)
    with pytest.raises(SessionMisuse, match="gradients were changed in the middle of a step"):
        group.compute([1.0] * SIZE)


def test_both_reductions_agree_where_floats_are_exact() -> None:
    """Small integers: nothing is rounded in either."""
    exact, plain = Group(4), GradientBuffers((m := model()).parameters())
    for value in (1.0, -3.0, 5.0, 7.0):
        exact.compute([value] * SIZE, value)
        sum(m[name].sum() * value for name in SHAPES).backward()
        plain.add_loss(torch.tensor(value))
    reduce([exact])
    plain.fill(unseen=False)
    exact.buffers.apply(0.25)
    plain.apply(0.25)

    assert torch.equal(exact.gradient(), torch.cat([m[name].grad.reshape(-1) for name in SHAPES]))
    assert exact.buffers.loss() == plain.loss()
