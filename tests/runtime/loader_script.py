"""Loads batches with and without workers and prints what came, as JSON. Run as a script: workers import it again."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from spare_runtime.loader import Loader
from spare_runtime.micro import Micro
from spare_runtime.randomness import seed_all, seed_of

LENGTH, SIZE, M, SEED = 10, 3, 4, 9


class Noisy:
    """Samples with random augmentation from torch and from Python; they break while a file is there."""

    def __init__(self, broken: Path) -> None:
        self.broken = broken

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Tensor:
        if self.broken.exists():
            raise LookupError(f"sample {index} is broken")
        return torch.tensor([index, float(torch.rand(1)), random.random(), os.getpid()], dtype=torch.float64)


def micro(step: int, index: int) -> Micro:
    """Micro-batch `index` of the only shard."""
    first = (step * M + index) * SIZE
    return Micro(step, 0, index, range(first, first + SIZE))


@dataclass
class Group:
    """What a group will compute: its order can change, as by another plan."""

    left: list[tuple[int, int]] = field(default_factory=list)

    def upcoming(self) -> Iterator[Micro]:
        """As a session tells its loader."""
        for step, index in self.left:
            yield micro(step, index)


def loaded(loader: Loader, group: Group, ahead: bool) -> dict[str, list[float]]:
    """All batches of three steps; in the middle of the second, another plan gives the rest in another order."""
    group.left = [(step, index) for step in range(3) for index in range(M)]
    batches = {}
    while group.left:
        step, index = group.left[0]
        seed_all(seed_of(SEED, step, 0, index))
        batch = loader[micro(step, index)]
        dropout = float(torch.rand(1))
        batches[f"{step}/{index}"] = [*batch[:, :3].flatten().tolist(), dropout]
        assert (os.getpid() not in batch[:, 3]) == ahead
        group.left.pop(0)
        if ahead and (step, index) == (1, 0):
            group.left.reverse()
    return batches


def failing(loader: Loader, broken: Path) -> str:
    """What reaches the caller when samples cannot be read."""
    broken.touch()
    try:
        loader[micro(5, 0)]
    except LookupError as error:
        return str(error)
    finally:
        broken.unlink()
    return "nothing was raised"


def main() -> None:
    """Print what was found, and be killed while a worker waits for more."""
    broken, group = Path(sys.argv[1]), Group()
    plain = loaded(Loader(Noisy(broken), group.upcoming, SEED), group, ahead=False)
    loader = Loader(Noisy(broken), group.upcoming, SEED, workers=1, prefetch=4)
    found = {"plain": plain, "workers": loaded(loader, group, ahead=True), "failing": failing(loader, broken)}
    first = int(loader[micro(6, 0)][0, 3])
    os.kill(first, signal.SIGKILL)
    found["after_a_kill"] = loader[micro(6, 1)][:, 0].tolist()
    worker = int(loader[micro(6, 0)][0, 3])
    print(json.dumps(found | {"first": first, "worker": worker}), flush=True)  # noqa: T201
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
