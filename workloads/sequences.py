"""Models of text and speech as workloads, written here: Catamount's and a GPT-2. One row each in a literal table.

They start from random weights and are fed random tokens, uniform below the vocabulary, or normal noise for sound. The
batch is dimension 0 of each input unless the family says otherwise. It does not claim that anything is learned beyond
the batch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from workloads import gpt, tokens
from workloads.base import Batch, Workload
from workloads.catalogue import entry, hyper_of, reason_not_trainable
from workloads.catamount import bert, nmt, recurrent_lm, speech, word2vec
from workloads.meta import sizes_alone

TASKS = ("language", "translation", "speech", "embedding")
"""Tasks of the catalogue whose workloads are made here."""


@dataclass(frozen=True)
class Family:
    """What a workload is made of. model(**hyper) → module; the others are as in `Workload`."""

    model: Callable[..., torch.nn.Module]
    batch: Callable[[Mapping[str, int], int, torch.device, torch.Generator | None], Batch] = tokens.next_tokens
    loss: Callable[[Any, Any], torch.Tensor] = tokens.token_loss
    items: Callable[[Mapping[str, int], int], int] = tokens.tokens_of
    item: str = "token"


FAMILIES = {
    "wordlm": Family(recurrent_lm.WordLM),
    "charlm": Family(recurrent_lm.CharLM),
    "nmt": Family(nmt.Translator, nmt.batch),
    "speech": Family(speech.Speech, speech.batch, items=speech.frames_of, item="frame"),
    "word2vec": Family(word2vec.Word2Vec, word2vec.batch, word2vec.loss, word2vec.pairs_of, "word pair"),
    "bert": Family(bert.BERT, bert.batch, bert.loss),
    "bert_large": Family(bert.BERT, bert.batch, bert.loss),
    "gpt": Family(gpt.GPT),
}
"""Name → what its workload is made of."""


def get(name: str, /, **hyper: int) -> Workload:
    """The workload of this name, at its own sizes or at those in `hyper`.

    Raises ValueError, one line, for a name or a size that it does not have, or sizes that do not go together.
    """
    known, sizes = entry(name), hyper_of(name, **hyper)
    if name not in FAMILIES:
        raise ValueError(f"{name} is a {known.task} workload; those made here are {', '.join(FAMILIES)}")
    reason = reason_not_trainable(name, sizes, batch_size=2)
    if reason is not None:
        raise ValueError(reason)
    family = FAMILIES[name]
    return Workload(
        name=name,
        task=known.task,
        hyper=sizes,
        build=partial(build, name),
        batch=family.batch,
        loss=family.loss,
        items=family.items,
        item=family.item,
        source=known.source,
    )


def build(name: str, /, **hyper: int) -> torch.nn.Module:
    """The model in training mode with random weights, on the current default device; without weights on meta."""
    with sizes_alone():
        return FAMILIES[name].model(**hyper).train()
