"""Fathom's eight workloads, a GPT-2 and a ViT, by name: one row each in a literal table.

`workloads/catalogue/entries.py` has their sizes. The GPT-2 of `workloads/text.py`, `gpt2`, is not Fathom's, which is of
2016; it is fed text that can be learnt: a text counts on by one, two or three from a random token on, around the
vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import torch
from torch.nn.functional import cross_entropy

from workloads.catalogue.base import Batch, Workload
from workloads.catalogue.catalogue import entry, hyper_of
from workloads.catalogue.entries import large
from workloads.fathom import deepq, image_nets, memnet, seq2seq, speech
from workloads.text import GPT, Family, draw, family_workload


def counting_batch(
    hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    """Inputs: size × seq tokens; target: the token after each."""
    first, step = draw((size, 1), hyper["vocab"], device, generator), 1 + draw((size, 1), 3, device, generator)
    tokens = (first + step * torch.arange(hyper["seq"] + 1, device=device)) % hyper["vocab"]
    return Batch((tokens[:, :-1].clone(),), tokens[:, 1:].clone())


def gpt2_optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW of rate 0.0006, weight decay 0.1."""
    return torch.optim.AdamW(parameters, lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)


_images = partial(Family, batch=image_nets.image_batch, loss=cross_entropy, items=image_nets.images_of, item="image")
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
    "autoenc": Family(
        image_nets.AutoEncoder,
        image_nets.pattern_batch,
        image_nets.coded_loss,
        image_nets.patterns_of,
        "image",
        image_nets.autoenc_optimizer,
    ),
    "residual": _images(image_nets.Residual, optimizer=image_nets.residual_optimizer),
    "residual@as_paper": _images(image_nets.resnet34, optimizer=image_nets.residual_optimizer),
    "fathom-vgg": _images(image_nets.vgg16, optimizer=image_nets.vgg_optimizer),
    "fathom-vgg@as_paper": _images(image_nets.vgg19, optimizer=image_nets.vgg_optimizer),
    "fathom-alexnet": _images(image_nets.AlexNet, optimizer=image_nets.alexnet_adam),
    "fathom-alexnet@as_paper": _images(image_nets.AlexNet2012, optimizer=image_nets.alexnet_sgd),
    "deepq": _games(deepq.DeepQAsCoded, optimizer=deepq.optimizer),
    "deepq@as_paper": _games(deepq.DeepQ, optimizer=deepq.optimizer),
    "gpt2": Family(GPT, counting_batch, optimizer=gpt2_optimizer),
    "vit": _images(image_nets.vision_transformer, optimizer=image_nets.vit_optimizer),
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
