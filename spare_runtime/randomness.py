"""Random state that depends on what is computed, not on who computes it."""

from __future__ import annotations

import hashlib
import random
import sys

import torch


def seed_of(*parts: int) -> int:
    """A 63-bit seed from numbers, the same on every machine and in every process."""
    digest = hashlib.blake2b(",".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def seed_all(seed: int) -> None:
    """Seed torch (all devices), `random`, and numpy where the script uses it."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)
