"""A training script that raises: in the groups and at the step that its environment names."""

from __future__ import annotations

import os

from spare_runtime import Session
from tests.training.scripts.integers import RATE, Descent, loss_of, make_model


def main() -> None:
    """RAISE_IN: group numbers, separated by commas. RAISE_AT: the step, or `import`, or `end`."""
    raises = os.environ["SPARE_GROUP"] in os.environ["RAISE_IN"].split(",")
    at = os.environ["RAISE_AT"]
    if raises and at == "import":
        raise ImportError("no module named 'flux_capacitor'")
    model = make_model()
    with Session(model, [Descent(model, RATE)]) as session:
        for step in session.steps(until=6):
            for _ in step:
                if raises and str(step.number) == at:
                    raise ValueError(f"bad sample in step {step.number}")
                if raises and at == "exit" and step.number == 3:
                    raise SystemExit(3)
                session.backward(loss_of(model))
            if raises and at == "break":
                break
    if raises and at == "end":
        raise OSError("cannot save the model")


if __name__ == "__main__":
    main()
