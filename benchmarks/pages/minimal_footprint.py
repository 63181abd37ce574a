"""Minimal footprints of models, and docs/minimal-footprint.md, which tells them.

    python -m benchmarks.pages.minimal_footprint --write docs/minimal-footprint.md

Traces a step of each model on fake tensors and searches its orders; nothing is run on a device. Without --write it
prints the table of footprints.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from analysis.footprint.schedule.dependencies import graph, live_bytes
from analysis.footprint.schedule.minimum import minimal
from analysis.footprint.step.checkpointing import checkpointed, curve, stretches_of
from analysis.formula.derivation import derive
from analysis.formula.derivation.footprint import Piece, footprints, pieces
from reports.footprint.minimum_page import Curve, MinimalFootprint, overview, page
from results.records import Operation, Storage
from runners.formula.points import BATCH, Subject, axes, limits, names_of, sampler, smallest, step_at
from runners.workers.any_model import get

MODELS = (
    ("resnet50", 32, "sgd"),
    ("resnet152", 32, "adamw"),
    ("vgg16", 32, "sgd"),
    ("mobilenet_v2", 32, "sgd"),
    ("densenet121", 32, "sgd"),
    ("inception_v3", 32, "sgd"),
    ("gpt", 32, "adamw"),
    ("wordlm", 32, "sgd"),
    ("nmt", 32, "sgd"),
)
"""Model, batch, optimizer."""

MOVED = ("resnet50", "vgg16", "gpt", "wordlm")
"""Models whose peaks are followed as the batch grows."""

CURVED = ("resnet50", "mobilenet_v2", "gpt")
"""Models whose checkpoints are looked for."""


def subject(model: str, batch: int, optimizer: str) -> Subject:
    """A model at its own sizes."""
    sizes = get(model).hyper
    return Subject(
        model, sizes, {}, names_of(sizes), batch, optimizer, smallest=smallest(model), limits=limits(model)
    )  # fmt: skip


def step(model: str, batch: int, optimizer: str) -> tuple[tuple[Operation, ...], tuple[Storage, ...]]:
    """The operations and storages of one training step."""
    operations, storages, _ = step_at(subject(model, batch, optimizer), {})
    return operations, storages


def model_of(name: str, batch: int, optimizer: str) -> MinimalFootprint:
    """A model as the page shows it."""
    operations, storages = step(name, batch, optimizer)
    nodes = graph(operations, storages)
    last_use = max(live_bytes(nodes, range(len(nodes.operations))))
    return MinimalFootprint(name, batch, optimizer, len(operations), last_use, minimal(operations, storages))


def moved(name: str, batch: int, optimizer: str) -> Mapping[str, Sequence[Piece]]:
    """Where the peaks of a model are as its batch grows."""
    about = subject(name, batch, optimizer)
    look = sampler(about)
    found = footprints(derive.formulas(look, axes(about, [BATCH], look)), {BATCH: batch})
    return {quantity: pieces(peaks, BATCH, {BATCH: batch}) for quantity, peaks in found.peaks.items()}


def curve_of(model: MinimalFootprint) -> Curve:
    """What checkpointing brings a model."""
    operations, storages = step(model.name, model.batch_size, model.optimizer)
    choices, least = curve(operations, storages), []
    for choice in choices:
        stretches = stretches_of(operations, choice)
        least.append(minimal(*checkpointed(operations, storages, stretches)).minimal_bytes)
    return Curve(model, choices, least)


def main() -> int:
    """Write the page, or print its table of footprints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there")
    options = parser.parse_args()
    models = [model_of(*each) for each in MODELS]
    if options.write is None:
        print(overview(models))
        return 0
    told = {each[0]: moved(*each) for each in MODELS if each[0] in MOVED}
    curves = [curve_of(model) for model in models if model.name in CURVED]
    options.write.write_text(page(models, told, curves), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
