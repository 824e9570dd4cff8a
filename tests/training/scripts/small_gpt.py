"""The GPT of examples/gpt, made small, trained as there: float32, dropout, AdamW; reduction="exact"."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch

from spare_runtime import Session

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "gpt"))


def main() -> None:
    """Train STEPS steps; MICRO_SECONDS is what a micro-batch costs beside its arithmetic."""
    import gpt  # type: ignore[import-not-found]  # beside the examples, found by the path above

    gpt.CONTEXT, gpt.WIDTH, gpt.HEADS, gpt.LAYERS, gpt.BATCH = 16, 24, 2, 1, 1
    torch.manual_seed(0)
    model = gpt.GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    pause = float(os.environ["MICRO_SECONDS"])
    with Session(model, optimizer, micro_batch_size=gpt.BATCH, reduction="exact") as session:
        for step in session.steps(until=int(os.environ["STEPS"])):
            for micro in step:
                time.sleep(pause)
                session.backward(gpt.loss_of(model, micro.samples))


if __name__ == "__main__":
    main()
