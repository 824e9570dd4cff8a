"""Random state that depends on what is computed, not on who computes it."""

from __future__ import annotations

import functools
import hashlib
import random
import sys

import torch


def seed_of(*parts: int) -> int:
    """A 63-bit seed from numbers, the same on every machine and in every process."""
    digest = hashlib.blake2b(",".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@functools.cache
def _has_accelerator() -> bool:
    return torch.accelerator.is_available()


def seed_all(seed: int) -> None:
    """Seed torch (all devices), `random`, and numpy where the script uses it."""
    if _has_accelerator():
        torch.manual_seed(seed)
    else:  # the same generator; `manual_seed` looks for devices of all kinds, which takes 0.2 ms each time
        torch.default_generator.manual_seed(seed)
    random.seed(seed)
    generator = getattr(sys.modules.get("numpy"), "random", None)  # absent, too, while another thread imports numpy
    seed_numpy = getattr(generator, "seed", None)
    if seed_numpy is not None:
        seed_numpy(seed & 0xFFFFFFFF)
