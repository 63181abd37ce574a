"""Builds Fathom's `seq2seq`: translation by LSTMs of three layers, a reader and a writer that attends to the reader.

Fathom is a suite of eight deep-learning workloads. `Seq2Seq` takes source words, the writer's input, labels and
negatives (words drawn at random), and returns logits. Attention is Bahdanau's. Both loops are unrolled, as in
TensorFlow. In `FusedSeq2Seq` the reader is one operation (`nn.LSTM`). The writer is not, because its attention is part
of its next input. The loss of training is a sampled softmax with negatives drawn per step of the writer. In evaluation
mode the writer's input is its own likeliest word, which needs all logits at each step. At the sizes of the code,
inference thus costs more than training. `pairs` draws words of a made-up language by Zipf's law, translated one by one.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from workloads.catalogue.base import Batch, draw, log_expected, log_uniform
from workloads.recurrent import LSTM, LSTMCell, State

Optimizer = torch.optim.Optimizer


def clip_gradients(optimizer: Optimizer, norm: float, noise: float | None = None) -> Optimizer:
    """Return the optimizer, whose gradients are scaled down together to `norm` before each step. With noise, each
    gradient is scaled separately, and normal noise of this deviation is added, except to rows whose gradient is 0, such
    as padding's."""

    @torch.no_grad()
    def prepare(_optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for scaled in [parameters] if noise is None else [[parameter] for parameter in parameters]:
            torch.nn.utils.clip_grad_norm_(scaled, norm)
        for gradient in (parameter.grad for parameter in parameters if noise is not None):
            if gradient is not None:
                has_gradient = (gradient != 0).any(dim=-1, keepdim=True)
                gradient.add_(torch.randn_like(gradient) * has_gradient, alpha=noise or 0.0)

    optimizer.register_step_pre_hook(prepare)
    return optimizer


PAD, GO, END, WORDS = 0, 1, 2, 4
"""Padding, the first input of the writer, the end of a sentence, and the first number of a word; 3 is the
unknown word."""


Logits = tuple[torch.Tensor, torch.Tensor]
"""batch × target × answers, and the index of the right answer, batch × target."""


class Stack(nn.Module):
    """One step of layers of LSTM cells: batch × hidden → output of the last layer, and the states of all."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(LSTMCell(hidden, hidden) for _ in range(layers))

    def forward(self, inputs: torch.Tensor, states: list[State]) -> tuple[torch.Tensor, list[State]]:
        after = []
        for cell, state in zip(self.cells, states, strict=True):
            after.append(cell(inputs, state))
            inputs = after[-1][0]
        return inputs, after

    def zeros(self, like: torch.Tensor) -> list[State]:
        """Return the states before the first step."""
        cells: Iterable[Any] = self.cells
        return [cell.zeros(like) for cell in cells]


class BahdanauAttention(nn.Module):
    """Bahdanau's attention: weights over the source are softmax of v·tanh(key + query). Keys are a convolution of the
    reader's outputs, made once; the query is a product with the states of all of the writer's layers; scores are sums
    of elementwise products."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.keys = nn.Conv1d(hidden, hidden, 1, bias=False)
        self.query = nn.Linear(2 * layers * hidden, hidden)
        self.scores = nn.Parameter(torch.empty(hidden))
        nn.init.normal_(self.scores, std=hidden**-0.5)

    def forward(self, states: list[State], keys: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """Attend. keys, memory: batch × source × hidden. Returns batch × hidden."""
        query = self.query(torch.cat([part for state in states for part in state], dim=1))
        weights = (self.scores * (keys + query.unsqueeze(1)).tanh()).sum(dim=2).softmax(dim=1)
        seen: torch.Tensor = (weights.unsqueeze(2) * memory).sum(dim=1)
        return seen


class Seq2Seq(nn.Module):
    """Source words, words fed to the writer, labels (batch × source or target), negatives (target × n) → Logits.

    In training the logits are those of the label and of the negatives; in inference those of the whole vocabulary, and
    the writer is fed the most likely word of the step before. With hidden h, L layers of each and vocabulary v the
    network has 3vh + v + 16Lh² + 8Lh + (2L + 5)h² + 4h parameters.
    """

    def __init__(self, hidden: int, layers: int, vocab: int, **_sizes: int) -> None:
        super().__init__()
        self.vocab = vocab
        self.source, self.target = nn.Embedding(vocab, hidden), nn.Embedding(vocab, hidden)
        self.reader = Stack(hidden, layers)
        self.writer = Stack(hidden, layers)
        self.attention = BahdanauAttention(hidden, layers)
        self.entered = nn.Linear(2 * hidden, hidden)
        self.written = nn.Linear(2 * hidden, hidden)
        self.projection = nn.Linear(hidden, vocab)

    def forward(self, source: torch.Tensor, fed: torch.Tensor, labels: torch.Tensor, negatives: torch.Tensor) -> Logits:
        memory, states = self._read(self.source(source))
        keys = self.attention.keys(memory.transpose(1, 2)).transpose(1, 2)
        if self.training:
            sampled = self._sampled(self._fed(self.target(fed), states, keys, memory), labels, negatives)
            return sampled, torch.zeros_like(labels)
        return self._greedy(fed, states, keys, memory), labels

    def _read(self, words: torch.Tensor) -> tuple[torch.Tensor, list[State]]:
        """Return the outputs of the reader's last layer, batch × source × hidden, and the states of all its layers."""
        states, read = self.reader.zeros(words), []
        for word in words.unbind(1):
            output, states = self.reader(word, states)
            read.append(output)
        return torch.stack(read, dim=1), states

    def _step(
        self, word: torch.Tensor, context: torch.Tensor, states: list[State], keys: torch.Tensor, memory: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, list[State]]:
        """Return output, context and states after one more word."""
        output, states = self.writer(self.entered(torch.cat([word, context], dim=1)), states)
        context = self.attention(states, keys, memory)
        return self.written(torch.cat([output, context], dim=1)), context, states

    def _fed(self, words: torch.Tensor, states: list[State], keys: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """Return the writer's outputs for given words: batch × target × hidden."""
        context, outputs = torch.zeros_like(memory[:, 0]), []
        for word in words.unbind(1):
            output, context, states = self._step(word, context, states, keys, memory)
            outputs.append(output)
        return torch.stack(outputs, dim=1)

    def _greedy(self, fed: torch.Tensor, states: list[State], keys: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """Return the logits of a writer that gets the first word, and then at each step its likeliest word."""
        context, every, word = torch.zeros_like(memory[:, 0]), [], fed[:, 0]
        for _ in range(fed.shape[1]):
            output, context, states = self._step(self.target(word), context, states, keys, memory)
            every.append(self.projection(output))
            word = every[-1].argmax(dim=1)
        return torch.stack(every, dim=1)

    def _sampled(self, outputs: torch.Tensor, labels: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        """Return logits minus the logarithm of each word's expected number of draws; a negative that is the label
        itself is left out.

        The rows of the projection are looked up once a sequence, because each lookup fills a dense gradient.
        """
        weight, bias, count = self.projection.weight, self.projection.bias.unsqueeze(1), negatives.shape[1]
        true = (outputs * functional.embedding(labels, weight)).sum(dim=2, keepdim=True)
        true = true + functional.embedding(labels, bias) - log_expected(labels, self.vocab, count).unsqueeze(2)
        drawn = torch.bmm(outputs.transpose(0, 1), functional.embedding(negatives, weight).transpose(1, 2))
        drawn = drawn.transpose(0, 1) + functional.embedding(negatives, bias).squeeze(2)
        drawn = drawn - log_expected(negatives, self.vocab, count)
        return torch.cat([true, drawn.masked_fill(labels.unsqueeze(2) == negatives, -1e4)], dim=2)


class FusedSeq2Seq(Seq2Seq):
    """Fathom's network with a reader that is one operation; it has the same number of parameters."""

    def __init__(self, hidden: int, layers: int, vocab: int, **sizes: int) -> None:
        super().__init__(hidden, layers, vocab, **sizes)
        self.reader = LSTM(hidden, hidden, layers, batch_first=True)  # type: ignore[assignment]
        for layer in range(layers):  # PyTorch's gates: entered, kept, new, shown
            nn.init.constant_(getattr(self.reader, f"bias_ih_l{layer}")[hidden : 2 * hidden], 1.0)

    def _read(self, words: torch.Tensor) -> tuple[torch.Tensor, list[State]]:
        memory, (outputs, cells) = self.reader(words)
        return memory, list(zip(outputs.unbind(0), cells.unbind(0), strict=True))


def loss(output: Logits, labels: torch.Tensor) -> torch.Tensor:
    """Return mean cross entropy over the words that are not padding. labels: batch × target."""
    logits, answers = output
    is_word = (labels != PAD).flatten().to(logits.dtype)
    missed = functional.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="none")
    return (missed * is_word).sum() / is_word.sum()


def pairs(
    hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None, is_one: bool = False
) -> Batch:
    """Draw a pair of sentences for each sample, as in the paper, or (is_one) one pair for the whole batch, as coded.
    Sentences are padded to the workload's sizes, and the source is then reversed."""
    sentences = _sentences(hyper, 1 if is_one else size, device, generator).expand(size, -1).contiguous()
    length = sentences.shape[1]
    translated = WORDS + (sentences - WORDS + 7) % (hyper["vocab"] - WORDS)
    translated = torch.where(sentences == PAD, PAD, translated)
    source = functional.pad(sentences, (0, hyper["source_words"] - length)).flip(1)
    room = hyper["target_words"] - length
    first = torch.full((size, 1), GO, device=device)
    fed = torch.cat([first, functional.pad(translated, (0, room - 1))], dim=1)
    labels = functional.pad(translated, (0, room))
    after = (labels == PAD).long().cumsum(dim=1) == 1
    labels = torch.where(after, END, labels)
    negatives = log_uniform((hyper["target_words"], hyper["negatives"]), hyper["vocab"], device, generator)
    return Batch((source, fed, labels, negatives), labels)


def _sentences(
    hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> torch.Tensor:
    """Draw size × length words, each sentence padded. length is the longest for which a translation has room; a
    sentence has at least half of it."""
    length = min(hyper["source_words"], hyper["target_words"] - 1)
    words = WORDS + log_uniform((size, length), hyper["vocab"] - WORDS, device, generator)
    ends = (length + 1) // 2 + draw((size, 1), length // 2 + 1, device, generator)
    return torch.where(torch.arange(length, device=device) < ends, words, PAD)


def words_of(hyper: Mapping[str, int], size: int) -> int:
    """Return the number of target words in a batch, padding included."""
    return size * hyper["target_words"]


def optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Return SGD of rate 0.5, the norm of all gradients together at most 5."""
    return clip_gradients(torch.optim.SGD(parameters, lr=0.5), 5.0)
