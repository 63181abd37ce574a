"""What workloads of text share, a GPT-2, and how a family of networks becomes a workload.

A token is a whole number below the vocabulary. The one that is predicted is the next one, so that a batch is drawn one
token longer than the model reads. Nothing is padded and nothing masked. Weights and tokens are random.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from workloads.catalogue.base import Batch, Workload
from workloads.catalogue.catalogue import reason_not_trainable
from workloads.catalogue.entries import Entry

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


DEVIATION = 0.02
"""Standard deviation of the normal distribution that BERT's and GPT-2's weights begin with."""


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int, causal: bool = False
) -> torch.Tensor:
    """Attention of each head for itself, put together again; all are batch × seq × width. No dropout, no mask but the
    causal one."""
    size, length, width = query.shape
    q, k, v = (part.view(size, length, heads, width // heads).transpose(1, 2) for part in (query, key, value))
    attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return attended.transpose(1, 2).reshape(size, length, width)


def small_weights(module: nn.Module) -> None:
    """Begin with small normal weights and biases of 0; for `Module.apply`."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=DEVIATION)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


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
        return cast(torch.Tensor, hidden + self.narrower(self.gelu(self.wider(self.feed_norm(hidden)))))


class GPT(nn.Module):
    """A GPT-2: batch × seq tokens → batch × seq × vocab logits, as many positions as the batch is long.

    With width d, L layers, S positions and vocabulary v it has L(12d² + 13d) + Sd + vd + 2d parameters; the head is the
    embedding again. Source: Radford et al. 2019, whose dropout is left out, as it is by those who train it on more text
    than it can learn by heart.
    """

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


@dataclass(frozen=True)
class Family:
    """What a workload is made of. model(**hyper) → module; the others are as in `Workload`."""

    model: Callable[..., torch.nn.Module]
    batch: Callable[[Mapping[str, int], int, torch.device, torch.Generator | None], Batch] = next_tokens
    loss: Callable[[Any, Any], torch.Tensor] = token_loss
    items: Callable[[Mapping[str, int], int], int] = tokens_of
    item: str = "token"
    optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer] | None = None


def family_workload(name: str, family: Family, known: Entry, sizes: Mapping[str, int]) -> Workload:
    """The workload of a family at these sizes. Raises ValueError, one line, for sizes that do not go together."""
    reason = reason_not_trainable(name, sizes, batch_size=2)
    if reason is not None:
        raise ValueError(reason)
    return Workload(
        name=name,
        task=known.task,
        hyper=sizes,
        build=partial(build, family),
        batch=family.batch,
        loss=family.loss,
        items=family.items,
        item=family.item,
        source=known.source,
        optimizer=family.optimizer,
    )


def build(family: Family, /, **hyper: int) -> torch.nn.Module:
    """The model in training mode with random weights, on the current default device; without weights on meta."""
    return family.model(**hyper).train()
