"""Catamount's language models: `wordlm`, LSTM layers over words; `charlm`, a recurrent highway network over letters.

With hidden h, vocabulary v and L layers, wordlm has 8Lh² + 2hv + 4Lh + v parameters; charlm of depth D has
(2D + 2)h² + 2hv + 2Dh + v. Sources: Jozefowicz et al. 2016, arXiv:1602.02410; Zilly et al. 2016, arXiv:1607.03474.
Every output is predicted from; there is no dropout.
"""

from __future__ import annotations

import torch
from torch import nn

from workloads.catamount.cells import LSTM

CARRIED = -2.0
"""Bias of the transform gates at first: a highway network begins with most of its state carried on."""


class WordLM(nn.Module):
    """Embedding, LSTM layers with one bias each, softmax layer: batch × seq tokens → batch × seq × vocab logits."""

    def __init__(self, hidden: int, vocab: int, layers: int, **_sizes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.lstm = LSTM(hidden, hidden, layers, batch_first=True)
        self.softmax = nn.Linear(hidden, vocab)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        logits: torch.Tensor = self.softmax(states)
        return logits


class Highway(nn.Module):
    """A sublayer: state s → (H − s)·T + s, with H = tanh and T = sigmoid of products with what is `seen`."""

    def __init__(self, seen: int, hidden: int) -> None:
        super().__init__()
        self.candidate = nn.Linear(seen, hidden)
        self.transform = nn.Linear(seen, hidden)
        nn.init.constant_(self.transform.bias, CARRIED)

    def forward(self, seen: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        candidate, transform = self.candidate(seen).tanh(), self.transform(seen).sigmoid()
        moved: torch.Tensor = (candidate - state) * transform + state
        return moved


class CharLM(nn.Module):
    """One recurrent layer of `depth` highway sublayers a step, of which the first sees the letter, too."""

    def __init__(self, hidden: int, vocab: int, depth: int, **_sizes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.first = Highway(2 * hidden, hidden)
        self.deeper = nn.ModuleList(Highway(hidden, hidden) for _ in range(depth - 1))
        self.softmax = nn.Linear(hidden, vocab)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded = self.embedding(tokens)
        state = torch.zeros_like(embedded[:, 0])
        states = []
        for letter in embedded.unbind(1):
            state = self.first(torch.cat([letter, state], dim=1), state)
            for sublayer in self.deeper:
                state = sublayer(state, state)
            states.append(state)
        logits: torch.Tensor = self.softmax(torch.stack(states, dim=1))
        return logits
