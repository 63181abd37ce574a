"""What transformers share: attention over heads as one operator of PyTorch, and small weights to begin with."""

from __future__ import annotations

import torch
from torch import nn

DEVIATION = 0.02
"""Of the normal distribution that BERT's and GPT-2's weights begin with."""


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int, causal: bool = False
) -> torch.Tensor:
    """Attention of each head for itself, put together again; all are batch × seq × width. No dropout, no mask but the
    causal one."""
    size, length, width = query.shape
    q, k, v = (part.view(size, length, heads, width // heads).transpose(1, 2) for part in (query, key, value))
    found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return found.transpose(1, 2).reshape(size, length, width)


def small_weights(module: nn.Module) -> None:
    """Begin with small normal weights and biases of 0; for `Module.apply`."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=DEVIATION)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
