"""As `integers`, with one group that gets stuck in one step, alive: WHERE says in what.

GROUP and STEP say who and when; a replacement of the group does not get stuck again (it leaves a file in MARKS).
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import NoReturn

import torch

from spare_runtime import Session
from tests.training.scripts.integers import RATE, Descent, loss_of, make_model

GROUP, STEP, WHERE = int(os.environ["GROUP"]), int(os.environ["STEP"]), os.environ["WHERE"]
MINE = int(os.environ["SPARE_GROUP"]) == GROUP


def loop() -> NoReturn:
    """Python that goes on for ever."""
    while True:
        pass


def native() -> None:
    """A call into C that keeps Python's lock: no other thread of the process runs, the heartbeat's neither."""
    ctypes.PyDLL(None).sleep(600)


def stopped() -> None:
    """Nothing in the process runs."""
    os.kill(os.getpid(), signal.SIGSTOP)


STUCK = {"loop": loop, "native": native, "stopped": stopped, "loader": loop, "optimizer": loop, "hello": stopped}


def here(where: str, step: int) -> None:
    """Get stuck, if this is the place, for the first time."""
    mark = Path(os.environ["MARKS"]) / "stuck"
    if MINE and (where, step) == (WHERE, STEP) and not mark.exists():
        mark.touch()
        STUCK[WHERE]()


class Samples(torch.utils.data.Dataset[int]):
    """Numbers; reading them may take for ever."""

    def __len__(self) -> int:
        return 1024

    def __getitem__(self, index: int) -> int:
        here("loader", STEP)
        return index


class Stepper(Descent):
    """An optimizer that may never return."""

    steps = 0

    def step(self) -> None:
        """See Descent."""
        here("optimizer", self.steps)
        self.steps += 1
        super().step()


def main() -> None:
    """Train STEPS steps."""
    here("hello", STEP)
    model = make_model()
    with Session(model, [Stepper(model, RATE)]) as session:
        loader = session.loader(Samples(), prefetch=1)
        for step in session.steps(until=int(os.environ["STEPS"])):
            for micro in step:
                for where in ("loop", "native", "stopped"):
                    here(where, step.number)
                if WHERE == "loader" and step.number >= STEP:
                    loader[micro]
                time.sleep(0.002)
                session.backward(loss_of(model))


if __name__ == "__main__":
    main()
