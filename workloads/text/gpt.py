"""A GPT-2 (`gpt`): blocks of causal attention and a feed-forward layer of four times the width, normalised before each.

With width d, L layers, S positions and vocabulary v it has L(12d² + 13d) + Sd + vd + 2d parameters; the head is the
embedding again. There are as many positions as the batch is long. Source: Radford et al. 2019, whose dropout is left
out, as it is by those who train it on more text than it can learn by heart.
"""

from __future__ import annotations

import torch
from torch import nn

from workloads.text.transformer import attend, small_weights


class Block(nn.Module):
    """x → x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.feed_norm = nn.LayerNorm(width)
        self.wider = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU(approximate="tanh")
        self.narrower = nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        query, key, value = self.queries_keys_values(self.attention_norm(hidden)).chunk(3, dim=2)
        hidden = hidden + self.attended(attend(query, key, value, self.heads, causal=True))
        added: torch.Tensor = self.narrower(self.gelu(self.wider(self.feed_norm(hidden))))
        return hidden + added


class GPT(nn.Module):
    """batch × seq tokens → batch × seq × vocab logits."""

    def __init__(self, d_model: int, layers: int, heads: int, seq: int, vocab: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, d_model)
        self.positions = nn.Embedding(seq, d_model)
        self.blocks = nn.ModuleList(Block(d_model, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d_model)
        self.apply(small_weights)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            hidden = block(hidden)
        return nn.functional.linear(self.norm(hidden), self.tokens.weight)
