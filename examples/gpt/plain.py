"""The same training in one process, without SPARe: `train.py` differs in five lines. 32 micro-batches a step."""

import sys

import torch
from gpt import BATCH, GPT, loss_of

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200

torch.manual_seed(0)
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(STEPS):
    optimizer.zero_grad()
    for micro in range(step * 32, (step + 1) * 32):
        (loss_of(model, range(micro * BATCH, (micro + 1) * BATCH)) / 32).backward()
    optimizer.step()
