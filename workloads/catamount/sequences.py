"""Models of text and speech as workloads, written here: Catamount's and a GPT-2. One row each in a literal table.

They start from random weights and are fed random tokens, uniform below the vocabulary, or normal noise for sound. The
batch is dimension 0 of each input unless the family says otherwise. It does not claim that anything is learned beyond
the batch itself.
"""

from __future__ import annotations

from workloads.catalogue.base import Workload
from workloads.catalogue.catalogue import entry, hyper_of
from workloads.catamount import bert, nmt, recurrent_lm, speech, word2vec
from workloads.text import gpt
from workloads.text.families import Family, family_workload

TASKS = ("language", "translation", "speech", "embedding")
"""Tasks of the catalogue whose workloads are made here."""


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
    return family_workload(name, FAMILIES[name], known, sizes)
