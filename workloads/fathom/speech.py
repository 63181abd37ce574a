"""Fathom's `fathom-speech`: phonemes from sound by layers over each frame, trained by CTC.

As coded: three layers of h and one of the phonemes, each followed by a ReLU that is clipped at 20, the last one, too:
2h² + (c + p + 3)h + p parameters for c coefficients and p phonemes. Its code also builds a recurrent layer in both
directions, whose output nothing reads, so that none was ever run: this "recurrent" workload of the paper's measurements
is three matrix products. Weights are repeated for each sample and biases for each frame before they are used, which is
the paper's share of Tile; CTC sees as many frames as there are labels.

As in the paper (Deep Speech, Hannun et al. 2014, arXiv:1412.5567) the recurrent layer is alive, between the third layer
and one more: 6h² + (c + p + 5)h + p parameters. Both directions read the same product. CTC sees all frames.

Weights begin random; those of Fathom's code begin at zero, from where nothing trains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from workloads.catalogue.base import Batch
from workloads.text import draw

CLIP = 20.0


class Tiled(nn.Module):
    """A layer whose weight is repeated for each sample and whose bias for each frame: batch × frames × inputs →
    batch × frames × outputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.normal_(self.weight, std=(2 / inputs) ** 0.5)

    def forward(self, heard: torch.Tensor) -> torch.Tensor:
        size, frames, _ = heard.shape
        return torch.bmm(heard, self.weight.repeat(size, 1, 1)) + self.bias.repeat(size, frames, 1)


class Speech(nn.Module):
    """As coded: sound, batch × frames × coefficients → log probabilities, frames × batch × phonemes."""

    def __init__(self, hidden: int, coefficients: int, phonemes: int, **_sizes: int) -> None:
        super().__init__()
        sizes = (coefficients, hidden, hidden, hidden, phonemes)
        self.layers = nn.ModuleList(Tiled(*each) for each in pairwise(sizes))

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            sound = _clipped(layer(sound))
        return sound.log_softmax(dim=2).transpose(0, 1)


class DeepSpeech(nn.Module):
    """As in the paper: sound, batch × frames × coefficients → log probabilities, frames × batch × phonemes."""

    def __init__(self, hidden: int, coefficients: int, phonemes: int, **_sizes: int) -> None:
        super().__init__()
        sizes = (coefficients, hidden, hidden, hidden)
        self.layers = nn.ModuleList(nn.Linear(*each) for each in pairwise(sizes))
        self.entered = nn.Linear(hidden, hidden)
        self.onward, self.backward_ = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))
        self.fifth = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, phonemes)
        self.apply(_unfading)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            sound = _clipped(layer(sound))
        entered = self.entered(sound)
        heard = _recurrent(entered, self.onward) + _recurrent(entered.flip(1), self.backward_).flip(1)
        logits: torch.Tensor = self.output(_clipped(self.fifth(heard)))
        return logits.log_softmax(dim=2).transpose(0, 1)


def _clipped(values: torch.Tensor) -> torch.Tensor:
    return values.clamp(0.0, CLIP)


def _recurrent(entered: torch.Tensor, again: nn.Linear) -> torch.Tensor:
    """The states of a layer that reads its last state again: batch × frames × hidden."""
    state, states = torch.zeros_like(entered[:, 0]), []
    for frame in entered.unbind(1):
        state = _clipped(frame + again(state))
        states.append(state)
    return torch.stack(states, dim=1)


def _unfading(module: nn.Module) -> None:
    """Weights through which values neither grow nor fade, layer after ReLU layer; for `Module.apply`."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)


def loss(heard: torch.Tensor, target: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Mean CTC loss; the last phoneme is the blank. target: labels, batch × labels, and how many frames and labels of
    each sample there are."""
    labels, frames, lengths = target
    return functional.ctc_loss(heard, labels, frames, lengths, blank=heard.shape[2] - 1, zero_infinity=True)


def as_coded(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Input: size × frames × coefficients of sound; CTC sees the first frames, as many as there are labels."""
    return _spoken(hyper, size, device, generator, seen=hyper["labels"])


def as_paper(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Input: size × frames × coefficients of sound; CTC sees all frames."""
    return _spoken(hyper, size, device, generator, seen=hyper["frames"])


def _spoken(
    hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None, seen: int
) -> Batch:
    """Each phoneme sounds for as many of the frames that are seen as any other: a tone of its own in normal noise. No
    phoneme follows itself, so that there need not be a blank between."""
    count, blank = hyper["labels"], hyper["phonemes"] - 1
    steps = 1 + draw((size, count), blank - 1, device, generator)
    labels = steps.cumsum(dim=1) % blank
    when = (torch.arange(hyper["frames"], device=device) * count // seen).clamp(max=count - 1)
    tone = torch.arange(hyper["coefficients"], device=device)
    sound = torch.randn(size, hyper["frames"], hyper["coefficients"], device=device, generator=generator)
    sound = sound + 2 * torch.cos((labels[:, when].unsqueeze(2) + 1.0) * (tone + 0.5) * (torch.pi / blank))
    lengths = torch.full((size,), count, device=device)
    return Batch((sound,), (labels, torch.full((size,), seen, device=device), lengths))


def frames_of(hyper: Mapping[str, int], size: int) -> int:
    """How many frames of sound a batch holds."""
    return size * hyper["frames"]


def optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """SGD of rate 0.01."""
    return torch.optim.SGD(parameters, lr=0.01)
