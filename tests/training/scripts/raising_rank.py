"""Rank 1 of group 1 raises in step 3, in the midst of the others' collectives."""

from __future__ import annotations

from spare_runtime import Session, group_mesh
from tests.training.scripts.halves import loss_of, summed
from tests.training.scripts.integers import RATE, Descent, make_model

group_mesh("cpu")
model = make_model()
for p in model.parameters():
    p.register_hook(summed)  # type: ignore[no-untyped-call]
with Session(model, [Descent(model, RATE)]) as session:
    for step in session.steps(until=8):
        for micro in step:
            if (session.group, session.rank, micro.step) == (1, 1, 3):
                raise ValueError("bad sample in rank 1")
            session.backward(loss_of(model, session.rank, session.ranks))
