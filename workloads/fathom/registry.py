"""Maps names to Fathom's eight workloads, a GPT-2 and a ViT, and offers Fathom's own interface over a workload.

Fathom is a suite of eight deep-learning workloads. `get` takes a name and sizes, and returns a `Workload`;
`workloads/catalogue/entries.py` has the default sizes. `FathomModel` takes a name, and has `setup`, `run(runstep)` and
`teardown`. A runstep is called once per step with (session, fetches, feed_dict), and has to call `session.run(fetches,
feed_dict)`. A caller that measures passes a runstep that does more around this call. Fetches are names. The batch is
made before the step and is not in its time, as in Fathom. Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from workloads import any_model
from workloads.any_model import mismatch
from workloads.catalogue.base import Batch, Family, Workload, draw, family_workload
from workloads.catalogue.catalogue import ENTRIES, entry, hyper_of
from workloads.catalogue.entries import SMALL
from workloads.fathom import deepq, image_nets, memnet, seq2seq, speech
from workloads.sequences import GPT
from workloads.step import InferenceStep, TrainingStep, optimizer_of


def counting_batch(
    hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    """Draw inputs: size × seq tokens; target: the token after each. A text counts up by one, two or three from a random
    token, and continues at the start of the vocabulary after its end."""
    first, step = draw((size, 1), hyper["vocab"], device, generator), 1 + draw((size, 1), 3, device, generator)
    tokens = (first + step * torch.arange(hyper["seq"] + 1, device=device)) % hyper["vocab"]
    return Batch((tokens[:, :-1].clone(),), tokens[:, 1:].clone())


def _samples_of(_hyper: Mapping[str, int], size: int) -> int:
    """Return the number of images, states of a game or questions in a batch."""
    return size


_images = partial(Family, batch=image_nets.image_batch, loss=cross_entropy, items=_samples_of, item="image")
_games = partial(
    Family,
    batch=deepq.batch,
    loss=deepq.loss,
    items=_samples_of,
    item="state",
    optimizer=partial(torch.optim.RMSprop, lr=2.5e-4, alpha=0.95, eps=0.01),
)
_sounds = partial(
    Family, loss=speech.loss, items=speech.frames_of, item="frame", optimizer=partial(torch.optim.SGD, lr=0.01)
)
_pairs = partial(Family, loss=seq2seq.loss, items=seq2seq.words_of, item="word", optimizer=seq2seq.optimizer)

FAMILIES = {
    "seq2seq": _pairs(seq2seq.Seq2Seq, partial(seq2seq.pairs, is_one=True)),
    "seq2seq@as_paper": _pairs(seq2seq.Seq2Seq, seq2seq.pairs),
    "seq2seq@fused": _pairs(seq2seq.FusedSeq2Seq, partial(seq2seq.pairs, is_one=True)),
    "memnet": Family(memnet.MemNet, memnet.batch, memnet.loss, _samples_of, "question", memnet.optimizer),
    "fathom-speech": _sounds(speech.CodedSpeech, partial(speech.speech_batch, seen_of="labels")),
    "fathom-speech@as_paper": _sounds(speech.DeepSpeech, partial(speech.speech_batch, seen_of="frames")),
    "autoenc": Family(
        image_nets.AutoEncoder,
        image_nets.pattern_batch,
        image_nets.coded_loss,
        _samples_of,
        "image",
        partial(torch.optim.Adam, lr=1e-3),
    ),
    "residual": _images(image_nets.Residual, optimizer=partial(torch.optim.Adam, lr=1e-2)),
    "residual@as_paper": _images(image_nets.resnet34, optimizer=partial(torch.optim.Adam, lr=1e-2)),
    "fathom-vgg": _images(image_nets.vgg16, optimizer=partial(torch.optim.Adam, lr=1e-4)),
    "fathom-vgg@as_paper": _images(image_nets.vgg19, optimizer=partial(torch.optim.Adam, lr=1e-4)),
    "fathom-alexnet": _images(image_nets.AlexNet, optimizer=partial(torch.optim.Adam, lr=1e-3)),
    "fathom-alexnet@as_paper": _images(
        image_nets.AlexNet2012, optimizer=partial(torch.optim.SGD, lr=1e-2, momentum=0.9, weight_decay=5e-4)
    ),
    "deepq": _games(deepq.DeepQAsCoded),
    "deepq@as_paper": _games(deepq.DeepQ),
    "gpt2": Family(
        GPT, counting_batch, optimizer=partial(torch.optim.AdamW, lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
    ),
    "vit": _images(image_nets.vision_transformer, optimizer=partial(torch.optim.AdamW, lr=1e-3, weight_decay=0.1)),
}
"""Name → the parts of its workload, at either scale."""


def get(name: str, /, **hyper: int) -> Workload:
    """Return the workload of this name, at its default sizes but for those in `hyper`.

    Raises ValueError, one line, for a name or a size that it does not have, or sizes that do not go together.
    """
    known, sizes = entry(name), hyper_of(name, **hyper)
    family = FAMILIES.get(name.removesuffix(SMALL))
    if family is None:
        raise ValueError(f"{name} is a {known.task} workload; those made here are {', '.join(FAMILIES)}")
    return family_workload(name, family, known, sizes)


Runstep = Callable[["GraphSession", Sequence[str], Mapping[str, Any]], Any]


class GraphSession:
    """Runs steps: of training if "train" is among the fetches, else of inference."""

    def __init__(self, step: TrainingStep | InferenceStep) -> None:
        self._step = step

    def run(self, fetches: Sequence[str], feed_dict: Mapping[str, Any]) -> list[Any]:
        """Run one step on the "inputs" and "labels" that are fed, and return the value of each fetch: "loss" or
        "outputs"; None for "train". Raises KeyError for another name."""
        step = self._step
        step.batches = iter([Batch(feed_dict["inputs"], feed_dict["labels"])])
        step()
        results = (
            {"train": None, "loss": step.last_loss} if isinstance(step, TrainingStep) else {"outputs": step.last_output}
        )
        return [results[name] for name in fetches]


class FathomModel:
    """A workload with Fathom's methods.

    name: of the catalogue, or any other form of model. device: of torch. init_options: batch_size (the workload's own),
    seed (0), data (a directory with the real data set; synthetic without) and sizes by their names; others are ignored.
    forward_only: inference.
    """

    def __init__(
        self,
        name: str,
        device: str | None = None,
        init_options: Mapping[str, Any] | None = None,
        forward_only: bool = False,
    ) -> None:
        options = dict(init_options or {})
        known = any_model.get(name).hyper
        self.workload = any_model.get(name, **{size: value for size, value in options.items() if size in known})
        self.device, self.forward_only = torch.device(device or "cpu"), forward_only
        own = ENTRIES[name].batch_size if name in ENTRIES else 0
        self.batch_size = int(options.get("batch_size", own or 8))
        self.seed = int(options.get("seed", 0))
        self.data = options.get("data")
        with torch.random.fork_rng(devices=[]), self.device:
            torch.manual_seed(self.seed)
            self._model = self.workload.build(**self.workload.hyper)
        self._batches: Iterator[Batch] | None = None
        self._session: GraphSession | None = None
        self._threads: int | None = None

    def model(self) -> torch.nn.Module:
        """Return the module, which exists before `setup`."""
        return self._model

    @property
    def fetches(self) -> tuple[str, ...]:
        """The fetches of a step."""
        return ("outputs",) if self.forward_only else ("loss", "train")

    def setup(self, setup_options: Mapping[str, Any] | None = None) -> None:
        """Get ready to run: number of threads, optimizer, batches. Unknown options are ignored."""
        threads = dict(setup_options or {}).get("intra_op_parallelism_threads")
        if threads:
            self._threads = torch.get_num_threads()
            torch.set_num_threads(int(threads))
        if self.data is None:
            generator = torch.Generator(self.device).manual_seed(self.seed)
            drawn = partial(self.workload.batch, self.workload.hyper, self.batch_size, self.device, generator)
            self._batches = iter(drawn, None)
        else:
            from workloads.fathom.data_sets import batches

            self._batches = batches(self.workload, Path(self.data), self.batch_size, self.device)
        if self.forward_only:
            self._session = GraphSession(InferenceStep(self._model, [], self.device.type))
            return
        name = "own" if self.workload.optimizer is not None else "sgd"
        optimizer = optimizer_of(name, self.workload, self._model.parameters())
        self._session = GraphSession(TrainingStep(self._model, self.workload.loss, optimizer, [], self.device.type))

    def run(self, runstep: Runstep | None = None, n_steps: int = 1) -> list[Any]:
        """Run n_steps steps, each on a new batch, and return the runstep's results.

        Raises ValueError before `setup`, or for a batch that the workload cannot take.
        """
        if self._session is None or self._batches is None:
            raise ValueError(f"{self.workload.name} is not set up: call setup() before run()")
        runner = runstep or GraphSession.run
        results = []
        for _ in range(n_steps):
            batch = next(self._batches)
            if reason := mismatch(self.workload, batch):
                raise ValueError(reason)
            results.append(runner(self._session, self.fetches, {"inputs": batch.inputs, "labels": batch.target}))
        return results

    def teardown(self) -> None:
        """Restore the number of threads, and delete session and batches."""
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        self._threads = self._session = self._batches = None
