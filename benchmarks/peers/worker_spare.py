"""Ours: a session."""

from __future__ import annotations

import os

from workload import GROUPS, MICRO_BATCHES, Journal, Workload

from spare_runtime import Session


def main() -> None:
    """Train until killed."""
    journal = Journal(int(os.environ["SPARE_GROUP"]))
    module = Workload()
    counts: dict[int, float] = {}

    def look() -> None:
        counts.clear()
        counts.update(module.witnessed(1 / (GROUPS * MICRO_BATCHES)))

    with Session(module, module.optimizer(), on_gradients=look) as session:
        for step in session.steps(until=1 << 30):
            for done, micro in enumerate(step):
                number = (micro.step * GROUPS + micro.shard) * MICRO_BATCHES + micro.index
                session.backward(module(number))
                journal.computed(micro.step, number, done + 1)
            journal.committed(step.number, counts)


if __name__ == "__main__":
    main()
