"""bAbI's first task for `memnet`, and two texts that translate each other (WMT) for `seq2seq`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from workloads.catalogue.base import Batch, Workload
from workloads.fathom.data import babi_stories
from workloads.fathom.data_sets.load import sliced
from workloads.fathom.models.seq2seq import END, GO, PAD, WORDS
from workloads.text.tokens import log_uniform

TASK = "qa1_single-supporting-fact_train.txt"
UNKNOWN = 3
MOST_LINES = 100_000
"""Sentences that are read of each language."""

_TOKEN = re.compile(r"\w+|[^\w\s]")


def babi(directory: Path, workload: Workload, size: int) -> Iterator[Batch]:
    """Stories as far as each question, the last sentences of those that are longer than the memory."""
    hyper, path = workload.hyper, directory / TASK
    stories, asked, answered = [], [], []
    story: list[list[int]] = []
    for number, line in enumerate(_lines(path), start=1):
        try:
            place, _, text = line.partition(" ")
            story = [] if int(place) == 1 else story
            question, *answer = text.split("\t")
            words = babi_stories.numbers(question)
            if not answer:
                story.append(_padded(words, hyper["sentence"]))
                continue
            stories.append(_rows(story[-hyper["memory"] :], hyper["memory"], hyper["sentence"]))
            asked.append(_padded(words, hyper["sentence"]))
            answered.append(babi_stories.numbers(answer[0])[0])
        except (KeyError, ValueError, IndexError) as fault:
            raise ValueError(
                f"{path}, line {number}: expected a line of bAbI's first task, got {line[:60]!r}"
            ) from fault
    if not stories:
        raise ValueError(f"{path}: expected stories with questions, got none")
    return sliced((torch.tensor(stories), torch.tensor(asked)), torch.tensor(answered), size)


def _rows(story: list[list[int]], memory: int, sentence: int) -> list[list[int]]:
    return story + [[babi_stories.PAD] * sentence] * (memory - len(story))


def _padded(words: list[int], length: int) -> list[int]:
    if len(words) > length:
        raise ValueError(f"expected {length} words at most, got {len(words)}")
    return words + [PAD] * (length - len(words))


def wmt(directory: Path, workload: Workload, size: int) -> Iterator[Batch]:
    """Pairs that fit the bucket, of NAME.en and NAME.fr; each language's most frequent words are its vocabulary."""
    hyper, (source, target) = workload.hyper, _texts(directory)
    read, written = (
        [_TOKEN.findall(re.sub(r"\d", "0", line.lower())) for line in _lines(path)[:MOST_LINES]]
        for path in (source, target)
    )
    if len(read) != len(written):
        raise ValueError(f"{target}: expected as many lines as {source.name} has, {len(read)}, got {len(written)}")
    numbers, others = (_vocabulary(each, hyper["vocab"]) for each in (read, written))
    longest, room = hyper["source_words"], hyper["target_words"] - 1
    inputs, fed, labels = [], [], []
    for one, other in zip(read, written, strict=True):
        if not one or not other or len(one) > longest or len(other) > room:
            continue
        inputs.append(_padded([numbers.get(word, UNKNOWN) for word in one], longest)[::-1])
        translated = [others.get(word, UNKNOWN) for word in other]
        fed.append(_padded([GO, *translated], room + 1))
        labels.append(_padded([*translated, END], room + 1))
    if not inputs:
        raise ValueError(f"{source}: expected a pair of at most {longest} and {room} words, got none")
    samples = torch.tensor(inputs), torch.tensor(fed), torch.tensor(labels)
    return _with_negatives(sliced(samples, samples[2], size), hyper)


def _with_negatives(batches: Iterator[Batch], hyper: Mapping[str, int]) -> Iterator[Batch]:
    drawn = torch.Generator().manual_seed(0)
    for batch in batches:
        sizes = (hyper["target_words"], hyper["negatives"])
        negatives = log_uniform(sizes, hyper["vocab"], torch.device("cpu"), drawn)
        yield Batch((*batch.inputs, negatives), batch.target)


def _texts(directory: Path) -> tuple[Path, Path]:
    """The first pair of a directory. Raises ValueError if there is none."""
    for source in sorted(directory.glob("*.en")):
        target = source.with_suffix(".fr")
        if target.is_file():
            return source, target
    raise ValueError(f"{directory}: expected NAME.en and NAME.fr, two texts of one name; got no such pair")


def _vocabulary(sentences: list[list[str]], size: int) -> dict[str, int]:
    """Word → number, the more frequent the smaller; of equally frequent ones the first seen comes first."""
    counted = Counter(word for sentence in sentences for word in sentence)
    return {word: WORDS + place for place, (word, _) in enumerate(counted.most_common(size - WORDS))}


def _lines(path: Path) -> list[str]:
    """Raises ValueError, one line, for a file that is missing, empty or no text."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as fault:
        raise ValueError(f"{path.parent}: expected {path.name}, there is none") from fault
    except (OSError, UnicodeDecodeError) as fault:
        raise ValueError(f"{path}: expected a text in UTF-8: {' '.join(str(fault).split())[:120]}") from fault
    if not lines:
        raise ValueError(f"{path}: expected lines of text, the file is empty")
    return lines
