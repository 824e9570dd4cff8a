"""The training script: groups of processes share the work of each step, and those that are lost are made up for."""

import sys

import torch
from gpt import BATCH, GPT, loss_of

from spare_runtime import Session

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200

torch.manual_seed(0)
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
with Session(model, optimizer, micro_batch_size=BATCH) as session:
    for step in session.steps(until=STEPS):
        for micro in step:
            session.backward(loss_of(model, micro.samples))
