"""A training script of the ordinary kind: float32, dropout, Adam. Each group saves its weights at the end."""

from __future__ import annotations

import os

import torch
from torch import nn

from spare_runtime import Session

torch.set_num_threads(1)


def main() -> None:
    """Groups start from different weights on purpose: the session must make them one."""
    torch.manual_seed(1000 + int(os.environ["SPARE_GROUP"]))
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Dropout(0.2), nn.Linear(32, 4))
    if os.environ["SPARE_GROUP"] == "0":
        torch.manual_seed(3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-4)
    with Session(model, optimizer) as session:
        for step in session.steps(until=int(os.environ["STEPS"])):
            for _ in step:
                x = torch.randn(8, 16)
                session.backward(nn.functional.mse_loss(model(x), x[:, :4].sin()))
    torch.save(model.state_dict(), f"{os.environ['SPARE_DIR']}/weights-{os.environ['SPARE_GROUP']}.pt")


if __name__ == "__main__":
    main()
