"""One group's process of the steady-state benchmark: blocks of steps under plain DDP and under a session, in turn.

Both train the same model on the same amount of data in the same process, so that whatever else the machine does hits
both alike. Writes one JSON object: for each block the seconds of each step, and the processor seconds of a step, of all
threads; with ACCOUNT, also what each phase of a step took (account.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "gpt"))
import account
import gpt

from spare_runtime import Session

SIZES = {"0.1M": (64, 4, 2), "1M": (192, 6, 2), "10M": (512, 8, 3)}
"""Width, heads and layers of the GPT."""


def model_of(size: str) -> gpt.GPT:
    """The same on every group."""
    gpt.WIDTH, gpt.HEADS, gpt.LAYERS = SIZES[size]
    gpt.DROPOUT = 0.0
    torch.manual_seed(0)
    return gpt.GPT()


def samples_of(step: int, micro: int) -> range:
    """Of a micro-batch, numbered over all groups."""
    return range((step * 64 + micro) * gpt.BATCH, (step * 64 + micro + 1) * gpt.BATCH)


class Plain:
    """DistributedDataParallel over gloo, as its documentation has it: gradients accumulate without synchronisation, and
    the last micro-batch's backward reduces."""

    def __init__(self, size: str, group: int, groups: int, micro_batches: int, store: str) -> None:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=group, world_size=groups)
        self.model = torch.nn.parallel.DistributedDataParallel(model_of(size), gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.first, self.count, self.number = group * micro_batches, micro_batches, 0
        self.loss_of: Callable[..., torch.Tensor] = gpt.loss_of
        self.backward: Callable[[torch.Tensor], None] = torch.Tensor.backward

    def step(self) -> None:
        """One step."""
        for i in range(self.count):
            last = i == self.count - 1
            with contextlib.nullcontext() if last else self.model.no_sync():
                loss = self.loss_of(self.model, samples_of(self.number, self.first + i))
                self.backward(loss / self.count)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.number += 1


def timed(step: Callable[[], object], count: int) -> dict[str, Any]:
    """Seconds of each of `count` steps, and processor seconds of one."""
    found, busy = [], time.process_time()
    for _ in range(count):
        began = time.perf_counter()
        step()
        found.append(time.perf_counter() - began)
    return {"steps": found, "processor": (time.process_time() - busy) / count}


def main() -> None:
    """SIZE, BLOCKS, STEPS of a block, REDUCTION, OUT and ACCOUNT (1 or 0) come from the environment."""
    env = os.environ
    torch.set_num_threads(1)
    size, blocks, count = env["SIZE"], int(env["BLOCKS"]), int(env["STEPS"])
    group, out = int(env["SPARE_GROUP"]), Path(env["OUT"])
    model = model_of(size)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    found: dict[str, list[dict[str, Any]]] = {"plain": [], "ours": []}
    accounts = {name: account.Account() for name in found} if env["ACCOUNT"] == "1" else {}
    with Session(model, optimizer, micro_batch_size=gpt.BATCH, reduction=env["REDUCTION"]) as session:
        plain = Plain(size, group, session.groups, session.micro_batches, str(out / "store"))
        loss_of, backward = gpt.loss_of, session.backward
        if accounts:
            account.of_plain(accounts["plain"], plain, gpt)
            account.of_session(accounts["ours"], session, model, optimizer)
            loss_of = accounts["ours"].timed(account.DATA, loss_of)
            backward = accounts["ours"].timed(account.BACKWARD, backward)
        steps = session.steps(until=(blocks + 1) * count)

        def ours() -> None:
            for micro in next(steps):
                number = micro.shard * session.micro_batches + micro.index
                backward(loss_of(model, samples_of(micro.step, number)))

        for block in range(blocks + 1):  # the first of each is for warming up
            for name, step in (("plain", plain.step), ("ours", ours))[:: 1 if block % 2 else -1]:
                dist.barrier()
                if accounts and block:
                    accounts[name].begin()
                found[name].append(timed(step, count))
                if accounts and block:
                    accounts[name].end()
        for _ in steps:
            raise AssertionError("there must be no step left")
    if group == 0:
        told: dict[str, Any] = {name: each[1:] for name, each in found.items()}
        told["parameters"] = sum(p.numel() for p in model.parameters())
        told["accounts"] = {name: each.of_a_step(blocks * count, session.groups) for name, each in accounts.items()}
        (out / "found.json").write_text(json.dumps(told))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
