"""As `integers`, with one micro-batch that kills whoever computes it, the first TIMES times.

POISON is `step,shard,index`; HOW is a signal's name, or `exit` and a code. Who dies leaves a file in the folder DEATHS.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from spare_runtime import Session
from tests.training.scripts.integers import RATE, Descent, loss_of, make_model


def die(how: str, group: int) -> None:
    """At once, as native code does."""
    (Path(os.environ["DEATHS"]) / f"{time.monotonic_ns()}-{group}").touch()
    if how.startswith("exit"):
        os._exit(int(how.removeprefix("exit")))
    os.kill(os.getpid(), signal.Signals[how])
    signal.pause()


def main() -> None:
    """Train STEPS steps."""
    poison = tuple(map(int, os.environ["POISON"].split(",")))
    model = make_model()
    with Session(model, [Descent(model, RATE)]) as session:
        for step in session.steps(until=int(os.environ["STEPS"])):
            for micro in step:
                deaths = len(os.listdir(os.environ["DEATHS"]))
                if (micro.step, micro.shard, micro.index) == poison and deaths < int(os.environ["TIMES"]):
                    die(os.environ["HOW"], session.group)
                time.sleep(0.002)
                session.backward(loss_of(model))


if __name__ == "__main__":
    main()
