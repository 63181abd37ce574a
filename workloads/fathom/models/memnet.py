"""Fathom's `memnet`: an end-to-end memory network on bAbI's first task (Sukhbaatar et al. 2015, arXiv:1503.08895).

With embedding e, vocabulary v and m sentences of memory it has 3ev + me + e² parameters: embeddings of the question and
of the story (which is input and output memory alike), of time, a product between hops and one for the answer. Nothing
is nonlinear but the softmax over the memory. It is small enough to measure what a framework adds to a step.

Stories are those of the task, made by its grammar: people walk from place to place, and one is asked for. Word vectors
are weighted by where a word stands before they are added up. Word 0 is padding and stays zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import nn
from torch.nn import functional

from workloads.catalogue.base import Batch
from workloads.fathom.data import babi_stories
from workloads.fathom.models.optimizers import clipped_with_noise

DEVIATION = 0.1
"""Of the normal distribution that all weights begin with."""


class MemNet(nn.Module):
    """Stories, batch × memory × sentence words, and questions, batch × sentence → logits of words, batch × vocab."""

    def __init__(self, embedding: int, vocab: int, sentence: int, memory: int, hops: int) -> None:
        super().__init__()
        self.hops = hops
        self.story = nn.Embedding(vocab, embedding, padding_idx=babi_stories.PAD)
        self.question = nn.Embedding(vocab, embedding, padding_idx=babi_stories.PAD)
        self.time = nn.Parameter(torch.empty(memory, embedding))
        self.between = nn.Linear(embedding, embedding, bias=False)
        self.answer = nn.Linear(embedding, vocab, bias=False)
        self.register_buffer("places", places(sentence, embedding))
        for weight in self.parameters():
            nn.init.normal_(weight, std=DEVIATION)
        for words in (self.story, self.question):
            words.weight.data[babi_stories.PAD] = 0.0

    def forward(self, story: torch.Tensor, question: torch.Tensor) -> torch.Tensor:
        state = (self.question(question) * self.places).sum(dim=1)
        memory = (self.story(story) * self.places).sum(dim=2) + self.time
        for _ in range(self.hops):
            weights = (memory * state.unsqueeze(1)).sum(dim=2).softmax(dim=1)
            state = self.between(state) + (memory * weights.unsqueeze(2)).sum(dim=1)
        logits: torch.Tensor = self.answer(state)
        return logits


def places(sentence: int, embedding: int) -> torch.Tensor:
    """sentence × embedding weights of word j's component k: 1 + 4 (k - (e + 1) / 2) (j - (s + 1) / 2) / (e s)."""
    words = torch.arange(1, sentence + 1) - (sentence + 1) / 2
    components = torch.arange(1, embedding + 1) - (embedding + 1) / 2
    return 1 + 4 * words.unsqueeze(1) * components / (embedding * sentence)


def loss(logits: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """Cross entropy, added up over the batch."""
    return functional.cross_entropy(logits, answers, reduction="sum")


def batch(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Inputs: stories and questions; target: the word that answers."""
    story, question, answer = babi_stories.draw(hyper["memory"], hyper["sentence"], size, device, generator)
    return Batch((story, question), answer)


def questions_of(_hyper: Mapping[str, int], size: int) -> int:
    """How many questions a batch holds."""
    return size


def optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Adam of rate 0.01, each gradient of norm 40 at most, noise of deviation 0.001 added."""
    return clipped_with_noise(torch.optim.Adam(parameters, lr=0.01), 40.0, 1e-3)
