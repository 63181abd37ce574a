"""What models of text share: batches of random tokens, the loss of their predictions, and how many tokens there are.

A token is a whole number below the vocabulary. The one that is predicted is the next one, so that a batch is drawn one
token longer than the model reads. Nothing is padded and nothing masked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch.nn.functional import cross_entropy

from workloads.catalogue.base import Batch

IGNORED = -100
"""A label that no loss is taken of."""


def draw(sizes: tuple[int, ...], vocab: int, device: torch.device, generator: torch.Generator | None) -> torch.Tensor:
    """Uniform random tokens, int64."""
    return torch.randint(vocab, sizes, device=device, generator=generator)


def log_uniform(
    sizes: tuple[int, ...], vocab: int, device: torch.device, generator: torch.Generator | None
) -> torch.Tensor:
    """Random tokens, int64, whose frequency falls with their number as that of words in a text does (Zipf).

    Token w has the probability ln((w + 2) / (w + 1)) / ln(vocab + 1), as in TensorFlow's log-uniform sampler.
    """
    uniform = torch.rand(sizes, device=device, generator=generator)
    return (torch.exp(uniform * math.log(vocab + 1)).long() - 1).clamp(0, vocab - 1)


def log_expected(words: torch.Tensor, vocab: int, count: int) -> torch.Tensor:
    """Logarithm of how often each word is expected among `count` that are log-uniform."""
    share = torch.log((words + 2.0) / (words + 1.0)) / math.log(vocab + 1)
    return torch.log(share * count)


def next_tokens(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Inputs: size × seq tokens; target: the token after each."""
    drawn = draw((size, hyper["seq"] + 1), hyper["vocab"], device, generator)
    return Batch((drawn[:, :-1].clone(),), drawn[:, 1:].clone())


def token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy. logits: … × vocab; labels: …, of which those that are IGNORED do not count."""
    return cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED)


def tokens_of(hyper: Mapping[str, int], size: int) -> int:
    """How many tokens a batch holds."""
    return size * hyper["seq"]
