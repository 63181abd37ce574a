"""Builds Fathom's `memnet`, an end-to-end memory network, and makes the stories that it is trained on.

Fathom is a suite of eight deep-learning workloads; this one is small enough to measure the overhead of a framework.
`batch` draws stories, questions and answers. `MemNet` takes stories and questions, and returns logits of words; `loss`
compares them with the answers. The network learns bAbI's first task (Sukhbaatar et al. 2015, arXiv:1503.08895). Stories
follow the grammar of the task (Weston et al. 2015): who walked where, and where is somebody now?
"""

from collections.abc import Iterable, Mapping

import torch
from torch import nn
from torch.nn import functional

from workloads.catalogue.base import Batch
from workloads.fathom.seq2seq import clip_gradients

PAD = 0
PEOPLE = ("mary", "john", "daniel", "sandra")
PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
WALKS = ("moved to the", "went to the", "journeyed to the", "travelled to the", "went back to the")
WORDS = ("", *PEOPLE, *PLACES, "moved", "went", "journeyed", "travelled", "back", "to", "the", "where", "is")
"""Word number → word; 0 is padding. These are the 19 words of the task."""


_NUMBER = {word: number for number, word in enumerate(WORDS)}
_PERSON, _PLACE = _NUMBER[PEOPLE[0]], _NUMBER[PLACES[0]]


def numbers(sentence: str) -> list[int]:
    """Return the numbers of a sentence's words, without its stop or question mark. Raises KeyError for another word."""
    return [_NUMBER[word] for word in sentence.lower().strip().rstrip(".?").split()]


def draw_stories(
    memory: int, sentence: int, size: int, device: torch.device, generator: torch.Generator | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw stories (size × memory × sentence words), questions (size × sentence words) and answers (size).

    An answer is the word number of a place. A story has 2, 4, … up to `memory` sentences, and its question comes after
    them. Each person walks to a place where they are not. All of it is computed with tensors, so that a batch can
    be made on any device, and on fake tensors.
    """

    def below(bound: int, *sizes: int) -> torch.Tensor:
        return torch.randint(bound, sizes, device=device, generator=generator)

    person, length = below(len(PEOPLE), size, memory), 2 * (1 + below(memory // 2, size, 1))
    used = torch.arange(memory, device=device) < length
    place = _walks(person, below(len(PLACES), size, len(PEOPLE)), 1 + below(len(PLACES) - 1, size, memory))
    stories = torch.where(used.unsqueeze(2), _sentences(person, place, below(len(WALKS), size, memory), sentence), PAD)
    which = (torch.rand(size, 1, device=device, generator=generator) * length).long()
    whom = person.gather(1, which)
    last = ((person == whom) & used).long().cumsum(dim=1).argmax(dim=1, keepdim=True)
    where = torch.tensor(numbers("where is"), device=whom.device).expand(whom.shape[0], 2)
    return (
        stories,
        functional.pad(torch.cat([where, _PERSON + whom], dim=1), (0, sentence - 3)),
        _PLACE + place.gather(1, last).squeeze(1),
    )


def _walks(person: torch.Tensor, first: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """Return where the person of each sentence is after it: they never walk to where they are. first: size × people."""
    walking = person.unsqueeze(2) == torch.arange(len(PEOPLE), device=person.device)
    steps = walking * step.unsqueeze(2)
    everywhere = (first.unsqueeze(1) + steps.cumsum(dim=1)) % len(PLACES)
    return everywhere.gather(2, person.unsqueeze(2)).squeeze(2)


def _sentences(person: torch.Tensor, place: torch.Tensor, walk: torch.Tensor, sentence: int) -> torch.Tensor:
    """Return sentences' words: size × memory × sentence. The place stands after the walk, which has three or four
    words."""
    rows = [numbers(text) for text in WALKS]
    table = torch.tensor([row + [PAD] * (sentence - 1 - len(row)) for row in rows], device=person.device)
    ends = torch.tensor([len(row) for row in rows], device=person.device)
    after = table[walk]
    at_end = torch.arange(sentence - 1, device=person.device) == ends[walk].unsqueeze(2)
    after = torch.where(at_end, _PLACE + place.unsqueeze(2), after)
    return torch.cat([_PERSON + person.unsqueeze(2), after], dim=2)


class MemNet(nn.Module):
    """Stories, batch × memory × sentence words, and questions, batch × sentence → logits of words, batch × vocab.

    With embedding e, vocabulary v and m sentences of memory it has 3ev + me + e² parameters. They are embeddings of the
    question, of the story and of time, a product between hops, and one for the answer. Input and output memory share
    the story's embedding. Only the softmax over the memory is nonlinear. Word vectors are weighted by their position
    before they are added up. The vector of word 0, padding, stays zero.
    """

    def __init__(self, embedding: int, vocab: int, sentence: int, memory: int, hops: int) -> None:
        super().__init__()
        self.hops = hops
        self.story = nn.Embedding(vocab, embedding, padding_idx=PAD)
        self.question = nn.Embedding(vocab, embedding, padding_idx=PAD)
        self.time = nn.Parameter(torch.empty(memory, embedding))
        self.between = nn.Linear(embedding, embedding, bias=False)
        self.answer = nn.Linear(embedding, vocab, bias=False)
        self.register_buffer("places", position_weights(sentence, embedding))
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.1)
        for table in (self.story, self.question):
            table.weight.data[PAD] = 0.0

    def forward(self, story: torch.Tensor, question: torch.Tensor) -> torch.Tensor:
        state = (self.question(question) * self.places).sum(dim=1)
        memory = (self.story(story) * self.places).sum(dim=2) + self.time
        for _ in range(self.hops):
            weights = (memory * state.unsqueeze(1)).sum(dim=2).softmax(dim=1)
            state = self.between(state) + (memory * weights.unsqueeze(2)).sum(dim=1)
        logits: torch.Tensor = self.answer(state)
        return logits


def position_weights(sentence: int, embedding: int) -> torch.Tensor:
    """Return sentence × embedding weights of word j's component k: 1 + 4 (k - (e + 1) / 2) (j - (s + 1) / 2) / (e
    s)."""
    word_offset = torch.arange(1, sentence + 1) - (sentence + 1) / 2
    components = torch.arange(1, embedding + 1) - (embedding + 1) / 2
    return 1 + 4 * word_offset.unsqueeze(1) * components / (embedding * sentence)


def loss(logits: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """Return cross entropy, added up over the batch."""
    return functional.cross_entropy(logits, answers, reduction="sum")


def batch(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Draw inputs: stories and questions; target: the word that answers."""
    story, question, answer = draw_stories(hyper["memory"], hyper["sentence"], size, device, generator)
    return Batch((story, question), answer)


def optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Return Adam of rate 0.01, each gradient of norm 40 at most, noise of deviation 0.001 added."""
    return clip_gradients(torch.optim.Adam(parameters, lr=0.01), 40.0, 1e-3)
