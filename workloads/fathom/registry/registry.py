"""Fathom's eight workloads, a GPT-2 and a ViT, by name: one row each in a literal table.
`workloads/catalogue/fathom_sizes.py` has their sizes."""

from __future__ import annotations

from functools import partial

from workloads.catalogue.base import Workload
from workloads.catalogue.catalogue import entry, hyper_of
from workloads.catalogue.fathom_sizes import large
from workloads.fathom.data import images
from workloads.fathom.models import alexnet, autoenc, deepq, gpt2, memnet, residual, seq2seq, speech, vgg, vit
from workloads.text.families import Family, family_workload
from workloads.text.gpt import GPT

_images = partial(Family, batch=images.batch, loss=images.cross_entropy, items=images.images_of, item="image")
_games = partial(Family, batch=deepq.batch, loss=deepq.loss, items=deepq.states_of, item="state")
_sounds = partial(Family, loss=speech.loss, items=speech.frames_of, item="frame", optimizer=speech.optimizer)
_pairs = partial(Family, loss=seq2seq.loss, items=seq2seq.words_of, item="word", optimizer=seq2seq.optimizer)

FAMILIES = {
    "seq2seq": _pairs(seq2seq.Seq2Seq, seq2seq.one_pair),
    "seq2seq@as_paper": _pairs(seq2seq.Seq2Seq, seq2seq.pairs),
    "seq2seq@fused": _pairs(seq2seq.FusedSeq2Seq, seq2seq.one_pair),
    "memnet": Family(memnet.MemNet, memnet.batch, memnet.loss, memnet.questions_of, "question", memnet.optimizer),
    "fathom-speech": _sounds(speech.Speech, speech.as_coded),
    "fathom-speech@as_paper": _sounds(speech.DeepSpeech, speech.as_paper),
    "autoenc": Family(autoenc.AutoEncoder, autoenc.batch, autoenc.loss, autoenc.images_of, "image", autoenc.optimizer),
    "residual": _images(residual.Residual, optimizer=residual.optimizer),
    "residual@as_paper": _images(residual.resnet34, optimizer=residual.optimizer),
    "fathom-vgg": _images(vgg.as_coded, optimizer=vgg.optimizer),
    "fathom-vgg@as_paper": _images(vgg.as_paper, optimizer=vgg.optimizer),
    "fathom-alexnet": _images(alexnet.AlexNet, optimizer=alexnet.adam),
    "fathom-alexnet@as_paper": _images(alexnet.AlexNet2012, optimizer=alexnet.sgd),
    "deepq": _games(deepq.DeepQAsCoded, optimizer=deepq.optimizer),
    "deepq@as_paper": _games(deepq.DeepQ, optimizer=deepq.optimizer),
    "gpt2": Family(GPT, gpt2.batch, optimizer=gpt2.optimizer),
    "vit": _images(vit.model, optimizer=vit.optimizer),
}
"""Name → what its workload is made of, at either scale."""


def get(name: str, /, **hyper: int) -> Workload:
    """The workload of this name, at its own sizes or at those in `hyper`.

    Raises ValueError, one line, for a name or a size that it does not have, or sizes that do not go together.
    """
    known, sizes = entry(name), hyper_of(name, **hyper)
    if large(name) not in FAMILIES:
        raise ValueError(f"{name} is a {known.task} workload; those made here are {', '.join(FAMILIES)}")
    return family_workload(name, FAMILIES[large(name)], known, sizes)
