"""A training script whose groups do not sum their gradients in the same way."""

import os

import torch

from spare_runtime import Session

model = torch.nn.Linear(2, 1)
exact = os.environ["SPARE_GROUP"] == "0"
with Session(model, torch.optim.SGD(model.parameters(), lr=0.1), reduction="exact" if exact else "float") as session:
    for step in session.steps(until=3):
        for _ in step:
            session.backward(model(torch.ones(2)).sum())
