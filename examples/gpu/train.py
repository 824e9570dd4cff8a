"""Training on GPUs, one or several in each group. Where there is none it trains on the CPU: the same script, to try it.

Only the lines that name the device differ from training on the CPU.
"""

import os
import sys

import torch
from torch.nn.functional import cross_entropy

from spare_runtime import Session

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
BATCH, FEATURES, CLASSES = 32, 64, 16

device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))  # the rank's own among the GPUs of its pod
    torch.cuda.set_device(device)


def batch(numbers: range) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples by number, and their classes: which of some fixed directions each lies nearest to. Made on the host."""
    directions = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(-1))
    inputs = torch.stack([torch.randn(FEATURES, generator=torch.Generator().manual_seed(n)) for n in numbers])
    return inputs, (inputs @ directions.T).argmax(1)


torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 512), torch.nn.GELU(), torch.nn.Linear(512, CLASSES)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # made after the model is on its device
with Session(model, optimizer, micro_batch_size=BATCH) as session:
    for step in session.steps(until=STEPS):
        for micro in step:
            inputs, classes = (each.to(device, non_blocking=True) for each in batch(micro.samples))
            session.backward(cross_entropy(model(inputs), classes))
