"""Plain DistributedDataParallel over gloo, started by torchrun.

With CHECKPOINT it goes on from the last checkpoint after a restart, as torchrun's documentation asks of a script:
rank 0 writes one every EVERY steps into memory (/dev/shm).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
from workload import GROUPS, MICRO_BATCHES, Journal, Workload

EVERY = 10


def main() -> None:
    """Train until killed."""
    rank = int(os.environ["RANK"])
    journal = Journal(rank)
    dist.init_process_group("gloo")
    module = Workload()
    optimizer = module.optimizer()
    place = os.environ.get("CHECKPOINT")
    step = 0
    if place and Path(place).exists():
        saved = torch.load(place)
        module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
        journal.write("loaded", step=step)
    model = torch.nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True)
    while True:
        optimizer.zero_grad()
        module.zero_grad()
        for i in range(MICRO_BATCHES):
            number = (step * GROUPS + rank) * MICRO_BATCHES + i
            with contextlib.nullcontext() if i == MICRO_BATCHES - 1 else model.no_sync():
                (model(number) / MICRO_BATCHES).backward()
            journal.computed(step, number, i + 1)
        optimizer.step()
        journal.committed(step, module.witnessed(1 / (GROUPS * MICRO_BATCHES)))
        step += 1
        if place and step % EVERY == 0 and rank == 0:
            torch.save(
                {"model": module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, place + ".new"
            )
            os.replace(place + ".new", place)


if __name__ == "__main__":
    main()
