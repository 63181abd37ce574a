"""BERT in pre-training (`bert`, `bert_large`): masked words and whether two sentences follow each other.

With hidden H, L layers, P positions and vocabulary v it has L(12H² + 13H) + Hv + PH + 2H² + 9H + v + 2 parameters: the
feed-forward layers are four times as wide, heads are 64 wide, and the decoder of words is the embedding again with a
bias of its own. It predicts at every position, of which the loss sees the masked ones. No dropout and no padding.
Source: Devlin et al. 2018, arXiv:1810.04805.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from workloads.catalogue.base import Batch
from workloads.text.tokens import IGNORED, draw, token_loss
from workloads.text.transformer import attend, small_weights

HEAD = 64
EPSILON = 1e-12
MASKED = 0.15
"""Share of words that are predicted."""

Logits = tuple[torch.Tensor, torch.Tensor]


class Layer(nn.Module):
    """x → norm(x + attention(x)), then norm(x + feed-forward(x))."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.heads = hidden // HEAD
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.attended = nn.Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden, EPSILON)
        self.wider = nn.Linear(hidden, 4 * hidden)
        self.gelu = nn.GELU()
        self.narrower = nn.Linear(4 * hidden, hidden)
        self.feed_norm = nn.LayerNorm(hidden, EPSILON)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        attended = attend(self.query(hidden), self.key(hidden), self.value(hidden), self.heads)
        hidden = self.attention_norm(hidden + self.attended(attended))
        normed: torch.Tensor = self.feed_norm(hidden + self.narrower(self.gelu(self.wider(hidden))))
        return normed


class BERT(nn.Module):
    """Words and the sentence each is of (batch × seq) → logits of words, batch × seq × vocab, and of two answers."""

    def __init__(self, layers: int, hidden: int, vocab: int, max_positions: int, **_sizes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(max_positions, hidden)
        self.sentences = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden, EPSILON)
        self.layers = nn.ModuleList(Layer(hidden) for _ in range(layers))
        self.pooler = nn.Linear(hidden, hidden)
        self.transform = nn.Linear(hidden, hidden)
        self.gelu = nn.GELU()
        self.transform_norm = nn.LayerNorm(hidden, EPSILON)
        self.bias = nn.Parameter(torch.zeros(vocab))
        self.follows = nn.Linear(hidden, 2)
        self.apply(small_weights)

    def forward(self, words: torch.Tensor, sentences: torch.Tensor) -> Logits:
        hidden = self.words(words) + self.positions.weight[: words.shape[1]] + self.sentences(sentences)
        hidden = self.norm(hidden)
        for layer in self.layers:
            hidden = layer(hidden)
        predicted = self.transform_norm(self.gelu(self.transform(hidden)))
        pooled = self.pooler(hidden[:, 0]).tanh()
        return nn.functional.linear(predicted, self.words.weight, self.bias), self.follows(pooled)


def loss(output: Logits, target: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Of the masked words, and of the answer whether the second sentence follows the first."""
    words, follows = output
    return token_loss(words, target[0]) + cross_entropy(follows, target[1])


def batch(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Inputs: size × seq words, and 0 or 1 for the sentence of each, its first half the first; target: the words that
    are masked (the first of a sample always is, so that there is one), and 0 or 1 for each sample."""
    sizes = (size, hyper["seq"])
    words, labels = (draw(sizes, hyper["vocab"], device, generator) for _ in range(2))
    masked = torch.rand(sizes, device=device, generator=generator) < MASKED
    masked[:, 0] = True
    half = (torch.arange(hyper["seq"], device=device) >= hyper["seq"] // 2).long()
    follows = draw((size,), 2, device, generator)
    return Batch((words, half.expand(sizes).contiguous()), (torch.where(masked, labels, IGNORED), follows))
