"""Stories of bAbI's first task, made by its grammar: who walked where, and where is somebody now? (Weston et al. 2015)

A story has two sentences to begin with and a question after every second one; each person walks to a place where they
are not. The vocabulary is the task's 19 words and padding. All of it is calculated with tensors, so that a batch can be
made on any device, and on fake tensors.
"""

from __future__ import annotations

import torch
from torch.nn import functional

PAD = 0
PEOPLE = ("mary", "john", "daniel", "sandra")
PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
WALKS = ("moved to the", "went to the", "journeyed to the", "travelled to the", "went back to the")
WORDS = ("", *PEOPLE, *PLACES, "moved", "went", "journeyed", "travelled", "back", "to", "the", "where", "is")
"""Word by its number; 0 is padding."""

LONGEST = 6
"""Words of the longest sentence: "mary went back to the kitchen"."""

_NUMBER = {word: number for number, word in enumerate(WORDS)}
_PERSON, _PLACE = _NUMBER[PEOPLE[0]], _NUMBER[PLACES[0]]


def numbers(sentence: str) -> list[int]:
    """The numbers of a sentence's words, without its stop or question mark. Raises KeyError for another word."""
    return [_NUMBER[word] for word in sentence.lower().strip().rstrip(".?").split()]


def words(sentence: torch.Tensor) -> str:
    """The words of a sentence's numbers, without padding."""
    return " ".join(WORDS[number] for number in sentence.tolist() if number != PAD)


def draw(
    memory: int, sentence: int, size: int, device: torch.device, generator: torch.Generator | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Stories, size × memory × sentence; questions, size × sentence; answers, size: the number of a place."""

    def below(bound: int, *sizes: int) -> torch.Tensor:
        return torch.randint(bound, sizes, device=device, generator=generator)

    person, length = below(len(PEOPLE), size, memory), 2 * (1 + below(memory // 2, size, 1))
    there = torch.arange(memory, device=device) < length
    place = _walks(person, below(len(PLACES), size, len(PEOPLE)), 1 + below(len(PLACES) - 1, size, memory))
    stories = torch.where(there.unsqueeze(2), _sentences(person, place, below(len(WALKS), size, memory), sentence), PAD)
    which = (torch.rand(size, 1, device=device, generator=generator) * length).long()
    asked = person.gather(1, which)
    last = ((person == asked) & there).long().cumsum(dim=1).argmax(dim=1, keepdim=True)
    return stories, _question(asked, sentence), _PLACE + place.gather(1, last).squeeze(1)


def _walks(person: torch.Tensor, first: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """Where the person of each sentence is after it: they never walk to where they are. first: size × people."""
    walking = person.unsqueeze(2) == torch.arange(len(PEOPLE), device=person.device)
    steps = walking * step.unsqueeze(2)
    everywhere = (first.unsqueeze(1) + steps.cumsum(dim=1)) % len(PLACES)
    return everywhere.gather(2, person.unsqueeze(2)).squeeze(2)


def _sentences(person: torch.Tensor, place: torch.Tensor, walk: torch.Tensor, sentence: int) -> torch.Tensor:
    """Sentences' words: size × memory × sentence. The place stands after the walk, which has three or four words."""
    rows = [numbers(each) for each in WALKS]
    table = torch.tensor([row + [PAD] * (sentence - 1 - len(row)) for row in rows], device=person.device)
    ends = torch.tensor([len(row) for row in rows], device=person.device)
    after = table[walk]
    at_end = torch.arange(sentence - 1, device=person.device) == ends[walk].unsqueeze(2)
    after = torch.where(at_end, _PLACE + place.unsqueeze(2), after)
    return torch.cat([_PERSON + person.unsqueeze(2), after], dim=2)


def _question(person: torch.Tensor, sentence: int) -> torch.Tensor:
    """ "where is PERSON": size × sentence."""
    where = torch.tensor(numbers("where is"), device=person.device).expand(person.shape[0], 2)
    return functional.pad(torch.cat([where, _PERSON + person], dim=1), (0, sentence - 3))
