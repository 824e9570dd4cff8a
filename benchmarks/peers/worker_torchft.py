"""torchft: a replica group of one process, with torchft's manager and gloo.

DATA=replica: each replica reads its own part of every step, as torchft's sampler has it; the quorum runs beside the
forward. DATA=position: the stream is read on from `batches_committed`, so that nothing is left out when replicas are
missing, which needs the quorum before the forward. In both an uncommitted step is tried again with the same data.
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torchft import Manager, ProcessGroupGloo
from workload import GROUPS, MICRO_BATCHES, Journal, Workload


def main() -> None:
    """Train until killed."""
    group = int(os.environ["REPLICA"])
    journal = Journal(group)
    module = Workload()
    optimizer = module.optimizer()

    def load(state: dict) -> None:
        module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        journal.write("joined")

    timeout = timedelta(seconds=float(os.environ["TIMEOUT"]))
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timeout),
        load_state_dict=load,
        state_dict=lambda: {"model": module.state_dict(), "optimizer": optimizer.state_dict()},
        min_replica_size=2,
        timeout=timeout,
        quorum_timeout=max(timeout, timedelta(seconds=60)),
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
        replica_id=f"group_{group}",
    )
    # All gradients in one flat buffer, summed by one call of the manager. torchft's own DistributedDataParallel would
    # do the same with hooks, but in 0.2.0 the survivors of a failed all-reduce die in its hook (AttributeError:
    # 'Future' object has no attribute '_fut').
    flat = torch.zeros(sum(p.numel() for p in module.parameters()))
    for p, part in zip(module.parameters(), flat.split([p.numel() for p in module.parameters()]), strict=True):
        p.grad = part.view(p.shape)
    by_position = os.environ["DATA"] == "position"
    while True:
        manager.start_quorum()
        flat.zero_()
        step, first = manager.current_step(), (manager.current_step() * GROUPS + group) * MICRO_BATCHES
        if by_position:
            place = manager.participating_rank()
            step = manager.current_step()
            first = (manager.batches_committed() + (place or 0)) * MICRO_BATCHES
        for i in range(MICRO_BATCHES):
            (module(first + i) / MICRO_BATCHES).backward()
            journal.computed(step, first + i, i + 1)
        manager.allreduce(flat).wait()
        participants = manager.num_participants()
        if manager.should_commit():
            optimizer.step()
            journal.committed(manager.current_step() - 1, module.witnessed(1 / (participants * MICRO_BATCHES)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
