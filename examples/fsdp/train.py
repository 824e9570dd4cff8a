"""FSDP2 inside each group, SPARe between the groups.

The ranks of a group share the parameters, and the samples of each micro-batch; that is FSDP2's business, and the only
process group that the script sees is that of its own group. What is lost with another group is made up for by the
session.
"""

import sys

import torch
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

from spare_runtime import Session, group_mesh

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
BATCH, FEATURES, CLASSES = 16, 32, 8


def sample(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One sample and its class: which of some fixed directions it lies nearest to."""
    x = torch.randn(FEATURES, generator=torch.Generator().manual_seed(number))
    directions = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(-1))
    return x, (directions @ x).argmax()


def loss_of(model: torch.nn.Module, numbers: range) -> torch.Tensor:
    """Mean loss over some samples."""
    inputs, classes = zip(*(sample(number) for number in numbers), strict=True)
    return cross_entropy(model(torch.stack(inputs)), torch.stack(classes))


def block(inputs: int, outputs: int) -> torch.nn.Module:
    """What is gathered, used and let go of again as one."""
    return torch.nn.Sequential(torch.nn.Linear(inputs, outputs), torch.nn.GELU())


mesh = group_mesh()
torch.manual_seed(0)
model = torch.nn.Sequential(block(FEATURES, 128), block(128, 128), torch.nn.Linear(128, CLASSES))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

with Session(model, optimizer, micro_batch_size=BATCH) as session:
    for step in session.steps(until=STEPS):
        for micro in step:
            session.backward(loss_of(model, micro.samples[session.rank :: session.ranks]))
