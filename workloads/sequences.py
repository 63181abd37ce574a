"""Builds models of text and speech as workloads (BERT, word2vec, a GPT-2), and lists them with Catamount's.

Catamount is Baidu's library of symbolic training cost; its networks are in `recurrent.py`. `get` takes a name and
sizes, and returns a `Workload`. Models start from random weights. They get random tokens, uniform below the vocabulary,
or normal noise for sound. The batch is dimension 0 of each input unless the family says otherwise. The classes `BERT`
and `Word2Vec` have their task, number of parameters and source. Not claimed: that anything is learned beyond the batch
itself.
"""

from collections.abc import Mapping
from functools import partial
from typing import cast

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from workloads import recurrent
from workloads.catalogue.base import (
    IGNORED,
    Batch,
    Family,
    Workload,
    draw,
    family_workload,
    log_expected,
    log_uniform,
    token_loss,
)
from workloads.catalogue.catalogue import entry, hyper_of

HEAD = 64
EPSILON = 1e-12
MASKED = 0.15
"""Share of words that are predicted."""

Logits = tuple[torch.Tensor, torch.Tensor]


DEVIATION = 0.02
"""Standard deviation of the normal distribution that BERT's and GPT-2's weights begin with."""


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int, causal: bool = False
) -> torch.Tensor:
    """Return multi-head attention; inputs and result are batch × seq × width. There is no dropout, and no mask but the
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
    """A GPT-2: batch × seq tokens → batch × seq × vocab logits, for texts of at most S positions.

    With width d, L layers, S positions and vocabulary v it has L(12d² + 13d) + Sd + vd + 2d parameters; the head shares
    the embedding's weight. Source: Radford et al. 2019. Dropout is left out, as is usual in training on more text than
    the model can memorise.
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
        return cast(torch.Tensor, self.feed_norm(hidden + self.narrower(self.gelu(self.wider(hidden)))))


class BERT(nn.Module):
    """Words and the number of each word's sentence (batch × seq) → logits of words, batch × seq × vocab, and of the two
    answers whether one sentence follows the other, batch × 2.

    This is BERT in pre-training. With hidden H, L layers, P positions and vocabulary v it has L(12H² + 13H) + Hv + PH +
    2H² + 10H + v + 2 parameters. The feed-forward layers are four times as wide as H, heads are 64 wide, and the
    decoder of words shares the embedding's weight and adds a bias. The model predicts at every position; the loss takes
    the masked ones. There is no dropout and no padding. Source: Devlin et al. 2018, arXiv:1810.04805.
    """

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


def masked_loss(output: Logits, target: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return cross entropy of the masked words, and of the answer whether the second sentence follows the first."""
    words, follows = output
    return token_loss(words, target[0]) + cross_entropy(follows, target[1])


def masked_batch(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Draw inputs: size × seq words, and the sentence of each (0 in the first half, 1 in the second). Target: the
    masked words (always with a sample's first word, so that there is one), and 0 or 1 for each sample."""
    sizes = (size, hyper["seq"])
    words, labels = (draw(sizes, hyper["vocab"], device, generator) for _ in range(2))
    masked = torch.rand(sizes, device=device, generator=generator) < MASKED
    masked[:, 0] = True
    half = (torch.arange(hyper["seq"], device=device) >= hyper["seq"] // 2).long()
    follows = draw((size,), 2, device, generator)
    return Batch((words, half.expand(sizes).contiguous()), (torch.where(masked, labels, IGNORED), follows))


class Word2Vec(nn.Module):
    """Words and their contexts (batch × positions), and noise words → logits of contexts (n), of the noise (n ×
    negatives), with n = batch × positions.

    It distinguishes the contexts of skip-grams from noise (Mikolov et al. 2013, arXiv:1301.3781). With hidden h and
    vocabulary v it has 2hv + v parameters. Each of the `positions` of a sample is a word and a word of its context. The
    `negatives` words of noise are drawn for the whole batch, as by TensorFlow's log-uniform sampler. The loss is
    noise-contrastive estimation: a logit less the logarithm of its word's expected count in the noise. Gradients are
    dense.
    """

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


def contrastive_loss(output: Logits, _target: None) -> torch.Tensor:
    """Return noise-contrastive estimation: classifies contexts from noise; mean over the positions."""
    true, sampled = output
    context_loss = binary_cross_entropy_with_logits(true, torch.ones_like(true), reduction="sum")
    noise_loss = binary_cross_entropy_with_logits(sampled, torch.zeros_like(sampled), reduction="sum")
    return (context_loss + noise_loss) / true.numel()


def skip_gram_batch(
    hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    """Draw inputs: size × positions words, as many contexts, and `negatives` words of noise for the whole batch."""
    words, contexts = (draw((size, hyper["positions"]), hyper["vocab"], device, generator) for _ in range(2))
    noise = log_uniform((hyper["negatives"],), hyper["vocab"], device, generator)
    return Batch((words, contexts, noise), None)


TASKS = ("language", "translation", "speech", "embedding")
"""Tasks of the catalogue whose workloads are made here."""


FAMILIES = {
    "wordlm": Family(recurrent.WordLM),
    "charlm": Family(recurrent.CharLM),
    "nmt": Family(recurrent.Translator, recurrent.translation_batch),
    "speech": Family(
        recurrent.Speech, recurrent.speech_batch, items=lambda hyper, size: size * hyper["frames"], item="frame"
    ),
    "word2vec": Family(
        Word2Vec, skip_gram_batch, contrastive_loss, lambda hyper, size: size * hyper["positions"], "word pair"
    ),
    "bert": Family(BERT, masked_batch, masked_loss),
    "bert_large": Family(BERT, masked_batch, masked_loss),
    "gpt": Family(GPT),
}
"""Name → the parts of its workload."""


def get(name: str, /, **hyper: int) -> Workload:
    """Return the workload of this name, at its default sizes but for those in `hyper`.

    Raises ValueError, one line, for a name or a size that it does not have, or sizes that do not go together.
    """
    known, sizes = entry(name), hyper_of(name, **hyper)
    if name not in FAMILIES:
        raise ValueError(f"{name} is a {known.task} workload; those made here are {', '.join(FAMILIES)}")
    return family_workload(name, FAMILIES[name], known, sizes)
