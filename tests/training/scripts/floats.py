"""A training script of the ordinary kind: float32, dropout, Adam. Each group saves its weights at the end.

REDUCTION is the session's; in step SPIKE one micro-batch has a gradient that is far too large; MICRO_SECONDS is what a
micro-batch costs beside its arithmetic.
"""

from __future__ import annotations

import os
import time

import torch
from torch import nn

from spare_runtime import Session

torch.set_num_threads(1)


def main() -> None:
    """Groups start from different weights on purpose: the session must make them one. Which one's it takes depends on
    who is there at the start, so not where runs are compared bit for bit."""
    torch.manual_seed(3 if "REDUCTION" in os.environ else 1000 + int(os.environ["SPARE_GROUP"]))
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Dropout(0.2), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-4)
    with Session(model, optimizer, reduction=os.environ.get("REDUCTION", "float")) as session:
        for step in session.steps(until=int(os.environ["STEPS"])):
            for micro in step:
                time.sleep(float(os.environ.get("MICRO_SECONDS", "0")))
                x = torch.randn(8, 16)
                loss = nn.functional.mse_loss(model(x), x[:, :4].sin())
                spike = str(micro.step) == os.environ.get("SPIKE") and (micro.shard, micro.index) == (1, 0)
                session.backward(loss * 2.0**40 if spike else loss)
    torch.save(model.state_dict(), f"{os.environ['SPARE_DIR']}/weights-{os.environ['SPARE_GROUP']}.pt")


if __name__ == "__main__":
    main()
