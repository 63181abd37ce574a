"""Catamount's `speech`: letters from sound, by three LSTM layers in both directions and hybrid attention.

The encoder normalises sound by stored means and deviations (buffers, no parameters), and halves the time after each of
its first two layers: the largest of two steps, the last of an odd number dropped. The decoder writes one letter for
each of the encoder's steps that are left. At each it adds fresh noise to its cells' weights and reads, instead of the
letter before, one in ten times a letter drawn from its own prediction; both in training only. Attention scores see
what is attended to, the attention cell's state, and a convolution over the last step's weights, and are sums of
elementwise products. Source: Battenberg et al. 2017, arXiv:1707.07413, sizes as in Hestness et al. 2019.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from workloads.catalogue.base import Batch
from workloads.catamount.cells import LSTM, Cell, State
from workloads.text.tokens import draw

NOISE = 0.01
"""Deviation of the noise on the weights of the decoder's cells."""

OWN_LETTERS = 0.1
"""Share of letters that the decoder reads from its own predictions."""


class Encoder(nn.Module):
    """batch × frames × audio → batch × frames / 4 × 2·hidden."""

    means: torch.Tensor
    deviations: torch.Tensor

    def __init__(self, hidden: int, audio: int) -> None:
        super().__init__()
        self.register_buffer("means", torch.zeros(audio))
        self.register_buffer("deviations", torch.ones(audio))
        inputs = (audio, 2 * hidden, 2 * hidden)
        self.layers = nn.ModuleList(LSTM(each, hidden, 1, batch_first=True, bidirectional=True) for each in inputs)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        first, second, third = self.layers
        heard: torch.Tensor
        heard, _ = first((sound - self.means) / self.deviations)
        heard, _ = second(_halved(heard))
        heard, _ = third(_halved(heard))
        return heard


class HybridAttention(nn.Module):
    """Weights over the encoder's steps: softmax of w·tanh(V·heard + W·state + U∗(Q∗last weights) + b)."""

    def __init__(self, heard: int, state: int, keys: int, conv_width: int, filters: int) -> None:
        super().__init__()
        self.keys = nn.Linear(heard, keys)
        self.state = nn.Linear(state, keys, bias=False)
        self.seen = nn.Conv1d(1, filters, conv_width, bias=False)
        self.mixed = nn.Conv1d(filters, keys, 1, bias=False)
        self.bias = nn.Parameter(torch.zeros(keys))
        self.weights = nn.Parameter(torch.empty(keys))
        nn.init.normal_(self.weights, std=keys**-0.5)
        self.margins = ((conv_width - 1) // 2, conv_width // 2)

    def forward(self, keys: torch.Tensor, state: State, last: torch.Tensor) -> torch.Tensor:
        """keys: batch × steps × keys; last: batch × steps."""
        asked = self.state(torch.cat([state[1], state[0]], dim=1)).unsqueeze(1)
        location = self.mixed(self.seen(functional.pad(last.unsqueeze(1), self.margins)))
        scores = (self.weights * (keys + asked + location.transpose(1, 2) + self.bias).tanh()).sum(dim=2)
        weights: torch.Tensor = scores.softmax(dim=1)
        return weights


class Speech(nn.Module):
    """Sound, and the letter before each: batch × steps → logits, batch × steps × vocab."""

    letters: torch.Tensor

    def __init__(
        self, hidden: int, attention_hidden: int, decoder_hidden: int, keys: int, vocab: int, audio: int,
        conv_width: int, filters: int, **_sizes: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.register_buffer("letters", torch.eye(vocab))
        self.encoder = Encoder(hidden, audio)
        self.attention_cell = Cell(vocab + 2 * hidden, attention_hidden, NOISE)
        self.attention = HybridAttention(2 * hidden, 2 * attention_hidden, keys, conv_width, filters)
        self.decoder_cell = Cell(attention_hidden + 2 * hidden, decoder_hidden, NOISE)
        self.output = nn.Linear(decoder_hidden, vocab)

    def forward(self, sound: torch.Tensor, letters: torch.Tensor) -> torch.Tensor:
        heard = self.encoder(sound)
        keys = self.attention.keys(heard)
        asking, writing = self.attention_cell.zeros(heard), self.decoder_cell.zeros(heard)
        weights, context = torch.zeros_like(heard[:, :, 0]), torch.zeros_like(heard[:, 0])
        written: list[torch.Tensor] = []
        for letter in letters.unbind(1):
            read = functional.embedding(self._read(letter, written), self.letters)
            asking = self.attention_cell(torch.cat([read, context], dim=1), asking)
            weights = self.attention(keys, asking, weights)
            context = (weights.unsqueeze(2) * heard).sum(dim=1)
            writing = self.decoder_cell(torch.cat([asking[0], context], dim=1), writing)
            written.append(self.output(writing[0]))
        return torch.stack(written, dim=1)

    def _read(self, letter: torch.Tensor, written: list[torch.Tensor]) -> torch.Tensor:
        """The letters given, or in training some of those that were predicted a step before."""
        if not self.training or not written:
            return letter
        own = torch.multinomial(written[-1].detach().float().softmax(dim=1), 1).squeeze(1)
        return torch.where(torch.rand(letter.shape, device=letter.device) < OWN_LETTERS, own, letter)


def _halved(heard: torch.Tensor) -> torch.Tensor:
    """Half as many steps, each the largest of two."""
    return functional.max_pool1d(heard.transpose(1, 2), 2).transpose(1, 2)


def steps(hyper: Mapping[str, int]) -> int:
    """How many steps the encoder is left with, and letters the decoder writes."""
    return hyper["frames"] // 2 // 2


def batch(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Inputs: normal noise, size × frames × audio, and size × steps letters; target: the letter after each."""
    sound = torch.randn(size, hyper["frames"], hyper["audio"], device=device, generator=generator)
    letters = draw((size, steps(hyper) + 1), hyper["vocab"], device, generator)
    return Batch((sound, letters[:, :-1].clone()), letters[:, 1:].clone())


def frames_of(hyper: Mapping[str, int], size: int) -> int:
    """How many frames of sound a batch holds."""
    return size * hyper["frames"]
