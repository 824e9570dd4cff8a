"""A small character GPT (about one million parameters) and its data: text that every Python ships.

Nothing here knows of SPARe: `plain.py` and `train.py` both use it as it is.
"""

from __future__ import annotations

import pydoc_data.topics

import torch
from torch import Tensor, nn
from torch.nn import functional

CONTEXT = 32
WIDTH = 192
HEADS = 6
LAYERS = 2
DROPOUT = 0.1
BATCH = 4
"""Samples in a micro-batch."""

TEXT = "".join(text for _, text in sorted(pydoc_data.topics.topics.items()))
ALPHABET = sorted(set(TEXT))
TOKENS = torch.tensor([ALPHABET.index(c) for c in TEXT], dtype=torch.uint8)


def batch_of(samples: range) -> tuple[Tensor, Tensor]:
    """Input and target of the samples with these numbers: the same wherever and whenever it is asked for."""
    last = len(TOKENS) - CONTEXT - 1
    starts = [number * 2654435761 % last for number in samples]  # a multiplicative hash: all over the text
    windows = torch.stack([TOKENS[start : start + CONTEXT + 1] for start in starts]).long()
    return windows[:, :-1], windows[:, 1:]


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH)))
        return x + self.dropout(self.down(functional.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    """Predicts the next character at each position."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(len(ALPHABET), WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(ALPHABET))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(self.dropout(x))))


def loss_of(model: nn.Module, samples: range) -> Tensor:
    """Mean cross entropy, in nats a character, of one micro-batch."""
    tokens, targets = batch_of(samples)
    return functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
