"""Catamount's `nmt`: translation by an LSTM in both directions, and one that attends to it (Luong et al. 2015).

With hidden h and vocabulary v it has 33h² + 3hv + 12h parameters. The decoder is fed its last attention beside the
word (input feeding), so that its steps are a loop. Sizes are TensorFlow's tutorial's: one encoder layer of two
directions, one decoder layer, dropout of both inputs, scores that are plain products, an attention without tanh.
Source and target are equally long, and no word is padding: nothing is masked.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from workloads.catalogue.base import Batch
from workloads.catamount.cells import LSTM, Cell
from workloads.text.tokens import draw, next_tokens

DROPPED = 0.2


class Attention(nn.Module):
    """Luong's, general form: keys are a product with the memory, made once; a step's scores are products with them."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.keys = nn.Linear(2 * hidden, hidden, bias=False)
        self.layer = nn.Linear(3 * hidden, hidden, bias=False)

    def forward(self, query: torch.Tensor, keys: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """query: batch × hidden; keys: batch × seq × hidden; memory: batch × seq × 2·hidden."""
        weights = torch.bmm(keys, query.unsqueeze(2)).squeeze(2).softmax(dim=1)
        context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
        attended: torch.Tensor = self.layer(torch.cat([query, context], dim=1))
        return attended


class Translator(nn.Module):
    """Source words, target words (batch × seq each) → logits of the target's next words, batch × seq × vocab."""

    def __init__(self, hidden: int, vocab: int, **_sizes: int) -> None:
        super().__init__()
        self.source = nn.Embedding(vocab, hidden)
        self.target = nn.Embedding(vocab, hidden)
        self.encoder = LSTM(hidden, hidden, 1, batch_first=True, bidirectional=True)
        self.decoder = Cell(2 * hidden, hidden)
        self.attention = Attention(hidden)
        self.projection = nn.Linear(hidden, vocab, bias=False)
        self.dropout = nn.Dropout(DROPPED)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory, (outputs, cells) = self.encoder(self.dropout(self.source(source)))
        state = outputs[1], cells[1]  # of the backward direction, which ends at the first word
        keys = self.attention.keys(memory)
        attended = torch.zeros_like(state[0])
        every = []
        for word in self.target(target).unbind(1):
            state = self.decoder(self.dropout(torch.cat([word, attended], dim=1)), state)
            attended = self.attention(state[0], keys, memory)
            every.append(attended)
        logits: torch.Tensor = self.projection(torch.stack(every, dim=1))
        return logits


def batch(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Inputs: size × seq source words, as many target words; target: the word after each of these."""
    source = draw((size, hyper["seq"]), hyper["vocab"], device, generator)
    translated = next_tokens(hyper, size, device, generator)
    return Batch((source, *translated.inputs), translated.target)
