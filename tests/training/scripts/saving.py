"""Trains as `integers` does, counts its steps in something that it registers, and saves what it has after the loop."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from spare_runtime import Session
from spare_runtime.parameters import digest
from tests.training.scripts.integers import RATE, Descent, loss_of, make_model


class Counter:
    """Behaves like a scheduler."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, int]:
        """See Stateful."""
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """See Stateful."""
        self.count = state["count"]


def wait_for_starts(final: Path, count: int) -> None:
    """Until so many processes have come up, or a while has passed."""
    end = time.monotonic() + 60
    while len(list(final.parent.glob("started-*"))) < count and time.monotonic() < end:
        time.sleep(0.05)


def main() -> None:
    """Train STEPS steps of micro-batches that take MICRO_SECONDS each, the last not before STARTS processes have come
    up; write FINAL/GROUP-PID.json."""
    final, steps = Path(os.environ["FINAL"]), int(os.environ["STEPS"])
    model, counter = make_model(), Counter()
    (final.parent / f"started-{os.getpid()}").touch()
    session = Session(model, Descent(model, RATE))
    session.register("counter", counter)
    with session:
        for step in session.steps(until=steps):
            for micro in step:
                if micro.step == steps - 1:
                    wait_for_starts(final, int(os.environ["STARTS"]))
                time.sleep(float(os.environ["MICRO_SECONDS"]))
                session.backward(loss_of(model))
            counter.count += 1
        found = {"digest": digest(model), "count": counter.count, "committed": session.committed}
        (final / f"{session.group}-{os.getpid()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
