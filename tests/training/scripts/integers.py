"""A training script whose gradients are integers in float64: their sum does not depend on its order.

Weights are then bit for bit those of a run without failures, whoever computed what. Every micro-batch draws its data
from the random state that the session seeds: wrong seeding, a lost or a doubled micro-batch all change the weights.
"""

from __future__ import annotations

import os
import time

import torch

from spare_runtime import Session

torch.set_num_threads(1)

RATE = 2.0**-4


def make_model() -> torch.nn.Module:
    """Linear maps with integer weights; WIDE makes one of them large enough for gradients to be sent in the middle of a
    backward."""
    wide = [torch.nn.Linear(6, int(os.environ["WIDE"]))] if "WIDE" in os.environ else []
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(6, 3), *wide).to(torch.float64)
    torch.manual_seed(7)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randint(-4, 5, p.shape))
    return model


class Descent:
    """Plain gradient descent. torch's own optimizers import its compiler, which takes longer than this whole job."""

    def __init__(self, model: torch.nn.Module, rate: float) -> None:
        self._parameters, self._rate = list(model.parameters()), rate

    @torch.no_grad()
    def step(self) -> None:
        """One step down the gradient."""
        for p in self._parameters:
            if p.grad is not None:
                p.sub_(self._rate * p.grad)


def loss_of(model: torch.nn.Module) -> torch.Tensor:
    """Linear in the weights; the gradient is a small integer times the data."""
    x = torch.randint(-3, 4, (4, 6), dtype=torch.float64)
    signs = torch.randint(0, 2, (4, 1), dtype=torch.float64) * 2 - 1
    return torch.stack([(layer(x) * signs).sum() for layer in model.children()]).sum()


def pause(group: int, step: int) -> float:
    """Seconds that a micro-batch costs beside its arithmetic: MICRO_SECONDS.

    SLOW is `group,first,end,seconds`: what it costs that group more in steps first to end - 1.
    """
    who, first, end, more = (float(part) for part in os.environ.get("SLOW", "-1,0,0,0").split(","))
    return float(os.environ.get("MICRO_SECONDS", "0.002")) + more * (group == who and first <= step < end)


def main() -> None:
    """Train STEPS steps."""
    model = make_model()
    with Session(model, [Descent(model, RATE)]) as session:
        for step in session.steps(until=int(os.environ["STEPS"])):
            for _ in step:
                time.sleep(pause(session.group, step.number))
                session.backward(loss_of(model))


if __name__ == "__main__":
    main()
