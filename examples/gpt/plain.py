"""The training loop without SPARe, in one process: what `train.py` is to be compared with."""

import sys

import torch

from gpt import BATCH, GPT, loss_of

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
MICRO_BATCHES = 32

torch.manual_seed(0)
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(STEPS):
    for micro in range(step * MICRO_BATCHES, (step + 1) * MICRO_BATCHES):
        loss = loss_of(model, range(micro * BATCH, (micro + 1) * BATCH))
        (loss / MICRO_BATCHES).backward()
    optimizer.step()
    optimizer.zero_grad()
