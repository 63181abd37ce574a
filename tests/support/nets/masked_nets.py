"""Modules with attention under a mask, one that is learnt or one that is an argument; and one around such a model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch


class Biased(torch.nn.Module):
    """Attention over 8 tokens of 16 numbers, with 2 heads. PyTorch runs it in parts on a CPU, CUDA may have one
    kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.bias = torch.nn.Linear(16, 48), torch.nn.Parameter(torch.zeros(8, 8))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        queries, keys, values = self.inputs(tokens).view(-1, 8, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return torch.nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=self.bias)


def build() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    """The first model and a batch of 2."""
    return Biased(), (torch.randn(2, 8, 16),)


class Configured(torch.nn.Module):
    """One with a config of its own, which is none of transformers', around a model."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model, self.config = model, {"name": "mine"}

    def forward(self, **given: Any) -> Any:
        return self.model(**given)


class Attends(torch.nn.Module):
    """Attention to all keys that padding leaves, which says so as those of transformers do. width: of all heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.is_causal, self.config = False, SimpleNamespace()
        self.heads = heads
        self.project = torch.nn.Linear(width, 3 * width)

    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """x: (sequences, length, width); attention_mask: (sequences, length)."""
        sequences, length, width = x.shape
        parts = self.project(x).view(sequences, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        kept = attention_mask.bool()[:, None, None, :].expand(sequences, 1, length, length)
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, kept)
