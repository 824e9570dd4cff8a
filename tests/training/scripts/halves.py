"""`integers`, with several ranks a group: each computes its part of a micro-batch's rows, and they sum the gradients.

The sum inside the group goes over the group's own process group, in the midst of `backward`, as a script's own data
parallelism does. Gradients are integers, so every rank of every group ends with the weights of `integers`, bit for bit.
"""

from __future__ import annotations

import os
import time

import torch
import torch.distributed

from spare_runtime import Session, group_mesh
from tests.training.scripts.integers import RATE, Descent, make_model, pause


def summed(gradient: torch.Tensor) -> torch.Tensor:
    """Over the ranks of this group."""
    gradient = gradient.clone()
    torch.distributed.all_reduce(gradient)
    return gradient


def loss_of(model: torch.nn.Module, rank: int, ranks: int) -> torch.Tensor:
    """Of this rank's rows."""
    x = torch.randint(-3, 4, (4, 6), dtype=torch.float64)
    signs = torch.randint(0, 2, (4, 1), dtype=torch.float64) * 2 - 1
    x, signs = x[rank::ranks], signs[rank::ranks]
    return torch.stack([(layer(x) * signs).sum() for layer in model.children()]).sum()


def main() -> None:
    """As in `integers`."""
    group_mesh("cpu")
    model = make_model()
    for p in model.parameters():
        p.register_hook(summed)  # type: ignore[no-untyped-call]
    with Session(model, [Descent(model, RATE)]) as session:
        for step in session.steps(until=int(os.environ["STEPS"])):
            for _ in step:
                time.sleep(pause(session.group, step.number))
                session.backward(loss_of(model, session.rank, session.ranks))


if __name__ == "__main__":
    main()
