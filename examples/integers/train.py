"""A job that checks itself: at its end it compares its weights with those of a plain loop, bit for bit.

Gradients and weights are integers (times powers of two) in float64, so sums do not depend on their order, and a
micro-batch that was lost, counted twice or mixed up shows. Kill what you like; whoever ends with other weights fails.
"""

import argparse
import time

import torch
from torch import nn

from spare_runtime import Session

RATE = 2.0**-4


def make_model() -> nn.Module:
    """Two linear maps with integer weights."""
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(6, 3)).to(torch.float64)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randint(-4, 5, p.shape, generator=generator))
    return model


class Descent:
    """Plain gradient descent; torch's own optimizers import its compiler, which takes longer than this whole job."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = list(model.parameters())

    @torch.no_grad()
    def step(self) -> None:
        """One step down the gradient."""
        for p in self._parameters:
            if p.grad is not None:
                p.sub_(RATE * p.grad)


def loss_of(model: nn.Module, step: int, shard: int, index: int) -> torch.Tensor:
    """Linear in the weights, so the gradient is made of the data alone; these depend on which micro-batch it is."""
    generator = torch.Generator().manual_seed(1_000_000 * step + 2_000 * shard + index)
    x = torch.randint(-3, 4, (4, 6), dtype=torch.float64, generator=generator)
    signs = torch.randint(0, 2, (4, 1), dtype=torch.float64, generator=generator) * 2 - 1
    return torch.stack([(layer(x) * signs).sum() for layer in model.children()]).sum()


def plain_loop(steps: int, groups: int, micro_batches: int) -> nn.Module:
    """The same training in one process, without SPARe."""
    model = make_model()
    optimizer = Descent(model)
    for step in range(steps):
        model.zero_grad()
        for shard in range(groups):
            for index in range(micro_batches):
                loss_of(model, step, shard, index).backward()
        for p in model.parameters():
            assert p.grad is not None
            p.grad /= groups * micro_batches
        optimizer.step()
    return model


def main() -> None:
    """Train, compare, and say so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument(
        "--groups", type=int, required=True, help="spec.groups of the job; a power of two divides exactly"
    )
    parser.add_argument("--micro-batches", type=int, required=True, help="spec.microBatches, a power of two")
    parser.add_argument("--seconds", type=float, default=0.05, help="what a micro-batch takes beside its arithmetic")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    model = make_model()
    with Session(model, Descent(model)) as session:
        for step in session.steps(until=arguments.steps):
            for micro in step:
                time.sleep(arguments.seconds)
                session.backward(loss_of(model, micro.step, micro.shard, micro.index))
        expected = plain_loop(arguments.steps, arguments.groups, arguments.micro_batches)
        if any(not torch.equal(*pair) for pair in zip(model.parameters(), expected.parameters(), strict=True)):
            raise AssertionError("other weights than the plain loop's: a micro-batch was lost or counted twice")
    print("exact: the weights are those of the plain loop, bit for bit")  # noqa: T201


if __name__ == "__main__":
    main()
