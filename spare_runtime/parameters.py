"""Digests of a model's parameters: one for people and proofs, one quick enough for every regroup."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import torch

from spare_runtime.shards import local

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def digest(model: torch.nn.Module) -> str:
    """SHA-256 over names, shapes, dtypes and bytes of all parameters, in the model's order."""
    sha = hashlib.sha256()
    for name, p in model.named_parameters():
        sha.update(f"{name}{tuple(p.shape)}{p.dtype}".encode())
        sha.update(local(p).detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def checksum(parameters: Iterable[torch.nn.Parameter], more: Sequence[int] = ()) -> str:
    """Sums over the parameters' bit patterns: tells whether two groups hold the same, one pass at memory speed. `more`
    are other numbers that must be the same."""
    sha = hashlib.sha256(",".join(map(str, more)).encode())
    for p in parameters:
        words = local(p).detach().contiguous().reshape(-1)
        size = words.element_size()
        if size in _WORDS:
            sha.update(str(words.view(_WORDS[size]).sum(dtype=torch.int64).item()).encode())
        else:  # complex128
            sha.update(str(words.view(torch.int64).sum(dtype=torch.int64).item()).encode())
    return sha.hexdigest()[:16]
