"""`integers` with FSDP2 inside the group: each rank holds a part of the parameters and computes a part of the rows.

FSDP2 takes the mean of the ranks' gradients; each rank's loss is multiplied by their number, a power of two, so that
the mean is the sum over all rows, exactly.
"""

from __future__ import annotations

import os
import time

from torch.distributed.fsdp import fully_shard

from spare_runtime import Session, group_mesh
from tests.training.scripts.halves import loss_of
from tests.training.scripts.integers import RATE, Descent, make_model


def main() -> None:
    """As in `integers`."""
    mesh = group_mesh("cpu")
    model = make_model()
    for layer in model.children():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    pause = float(os.environ.get("MICRO_SECONDS", "0.002"))
    with Session(model, [Descent(model, RATE)]) as session:
        for step in session.steps(until=int(os.environ["STEPS"])):
            for _ in step:
                time.sleep(pause)
                session.backward(loss_of(model, session.rank, session.ranks) * session.ranks)


if __name__ == "__main__":
    main()
