"""What every system trains in this benchmark, and the journal that its processes keep. Knows of none of the systems.

The GPT of examples/gpt, with one parameter more, the *witness*: it has an element for each micro-batch of the run, and
a micro-batch adds 1 to its own element's gradient. So the reduced gradient itself tells which micro-batches are in it,
and how often, whatever a system says of itself. The witness is not stepped.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "gpt"))
import gpt

GROUPS, MICRO_BATCHES = 4, 2
"""Groups of one process, and micro-batches that each computes in a step while all live."""
STREAM = 8192
"""Micro-batches of a run, at most; they are numbered in the order in which they are to be read."""


class Workload(nn.Module):
    """The model with its witness: returns a micro-batch's loss."""

    def __init__(self) -> None:
        super().__init__()
        gpt.DROPOUT = 0.0
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.gpt = gpt.GPT()
        self.witness = nn.Parameter(torch.zeros(STREAM))

    def forward(self, number: int) -> Tensor:
        """Loss of micro-batch `number`."""
        loss = gpt.loss_of(self.gpt, range(number * gpt.BATCH, (number + 1) * gpt.BATCH))
        mark = self.witness[number]
        return loss + (mark - mark.detach())

    def optimizer(self) -> torch.optim.Optimizer:
        """Of the model; the witness stays zero."""
        return torch.optim.SGD(self.gpt.parameters(), lr=1e-3)

    def witnessed(self, unit: float) -> dict[int, float]:
        """Which micro-batches are in the gradient at hand, and how often; one that is in it once has `unit`."""
        grad = self.witness.grad
        assert grad is not None
        return {int(i): round(float(grad[i]) / unit, 3) for i in grad.nonzero().flatten()}


class Journal:
    """One process's journal: a JSON line an event, each written at once. The clock is the machine's monotonic one."""

    def __init__(self, group: int) -> None:
        folder = Path(os.environ["JOURNAL"])
        self._file = os.open(folder / f"{group}-{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.group = group
        kill = os.environ.get("KILL", "")
        victim, step, point = kill.split(":") if kill else ("-1", "-1", "")
        self._due = (int(victim) == group, int(step), point)
        self._once = folder / "killed"
        self.write("start")

    def write(self, event: str, **more: Any) -> None:
        """Add a line."""
        entry = {"event": event, "at": time.monotonic(), "group": self.group, **more}
        os.write(self._file, json.dumps(entry).encode() + b"\n")

    def computed(self, step: int, number: int, done: int) -> None:
        """Micro-batch `number` has its gradient, this process's `done`-th of the step. May be the end of it."""
        self.write("computed", step=step, number=number)
        if done == max(1, MICRO_BATCHES // 2):
            self._perhaps(step, "mid")

    def committed(self, step: int, counts: dict[int, float]) -> None:
        """The optimizer has stepped with a gradient that holds these micro-batches. May be the end of the process."""
        self.write("committed", step=step, counts=counts)
        self._perhaps(step, "between")

    def _perhaps(self, step: int, point: str) -> None:
        mine, due, where = self._due
        if mine and step >= due and point == where and not self._once.exists():
            self._once.touch()
            self.write("killed", step=step, point=point)
            os.kill(os.getpid(), signal.SIGKILL)
