"""Catamount's `word2vec`: skip-grams whose context is distinguished from noise (Mikolov et al. 2013, arXiv:1301.3781).

With hidden h and vocabulary v it has 2hv + v parameters. Each of the `positions` of a sample is a word and one of its
context; the same `negatives` words, drawn with the batch as TensorFlow's log-uniform sampler would, are noise to all of
them. The loss is noise-contrastive estimation: a logit less the logarithm of how often its word is expected in the
noise. Gradients are dense.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from workloads.catalogue.base import Batch
from workloads.text.tokens import draw, log_expected, log_uniform

Logits = tuple[torch.Tensor, torch.Tensor]


class Word2Vec(nn.Module):
    """Words and their contexts (batch × positions), and noise words → logits of contexts (n), of the noise (n ×
    negatives), with n = batch × positions."""

    def __init__(self, hidden: int, vocab: int, negatives: int, **_sizes: int) -> None:
        super().__init__()
        self.vocab, self.negatives = vocab, negatives
        self.embedding = nn.Embedding(vocab, hidden)
        self.contexts = nn.Embedding(vocab, hidden)
        self.biases = nn.Parameter(torch.zeros(vocab))
        nn.init.uniform_(self.embedding.weight, -1.0, 1.0)
        nn.init.normal_(self.contexts.weight, std=hidden**-0.5)

    def forward(self, words: torch.Tensor, contexts: torch.Tensor, noise: torch.Tensor) -> Logits:
        embedded, targets = self.embedding(words.flatten()), contexts.flatten()
        true = (embedded * self.contexts(targets)).sum(dim=1) + self.biases[targets]
        sampled = embedded @ self.contexts(noise).t() + self.biases[noise]
        expected = partial(log_expected, vocab=self.vocab, count=self.negatives)
        return true - expected(targets), sampled - expected(noise)


def loss(output: Logits, _target: None) -> torch.Tensor:
    """Noise-contrastive estimation: classifies contexts from noise; mean over the positions."""
    true, sampled = output
    missed = binary_cross_entropy_with_logits(true, torch.ones_like(true), reduction="sum")
    taken = binary_cross_entropy_with_logits(sampled, torch.zeros_like(sampled), reduction="sum")
    return (missed + taken) / true.numel()


def batch(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Inputs: size × positions words, as many contexts, and `negatives` words of noise, for the batch as a whole."""
    words, contexts = (draw((size, hyper["positions"]), hyper["vocab"], device, generator) for _ in range(2))
    noise = log_uniform((hyper["negatives"],), hyper["vocab"], device, generator)
    return Batch((words, contexts, noise), None)


def pairs_of(hyper: Mapping[str, int], size: int) -> int:
    """How many words with a context a batch holds."""
    return size * hyper["positions"]
