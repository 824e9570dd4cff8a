"""A training script whose weights say how often each sample was trained on: one parameter each, minus one each time.

SAMPLES in the data set, SIZE of them in a micro-batch. `on_gradients` takes the mean back, so a step's gradient is the
number of times that each sample is in it, whatever the division into groups and micro-batches.
"""

from __future__ import annotations

import os
import time

import torch

from spare_runtime import Session
from spare_runtime.parameters import digest
from tests.training.scripts.integers import Descent

SAMPLES = int(os.environ.get("SAMPLES", "100"))
SIZE = int(os.environ.get("SIZE", "1"))


def counting_model(samples: int = SAMPLES) -> torch.nn.Module:
    """A weight for each sample, all 0."""
    model = torch.nn.Embedding(samples, 1, dtype=torch.float64)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    return model


def digest_after(times: int, samples: int) -> str:
    """Of the weights once each sample was trained on so often."""
    model = counting_model(samples)
    with torch.no_grad():
        for p in model.parameters():
            p.sub_(times)
    return digest(model)


class Calls:
    """Counts what the script does behind each step: it must be once for each committed one."""

    count = 0

    def state_dict(self) -> dict[str, int]:
        """See Stateful."""
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """See Stateful."""
        self.count = state["count"]


def main() -> None:
    """Train STEPS steps."""
    model = counting_model()
    calls = Calls()

    def counts() -> None:
        for p in model.parameters():
            assert p.grad is not None
            p.grad.mul_(session.groups * session.micro_batches * SIZE).round_()

    session = Session(model, [Descent(model, 1.0)], micro_batch_size=SIZE, on_gradients=counts)
    session.register("calls", calls)
    with session:
        loader = session.loader(range(SAMPLES), name=os.environ.get("DATA", "numbers"))
        for step in session.steps(until=int(os.environ["STEPS"])):
            for micro in step:
                time.sleep(float(os.environ.get("MICRO_SECONDS", "0.002")))
                session.backward(model(loader[micro]).mean())
            calls.count += 1
            assert calls.count == session.committed == step.number + 1, (calls.count, session.committed, step.number)


if __name__ == "__main__":
    main()
