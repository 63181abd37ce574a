"""Models that come from files: an exported program (`model.pt2`) and an ONNX graph (`model.onnx`), as workloads.

Weights are the file's own, inputs are random, and the loss is that of any model without one. Dynamic dimensions are
the workload's sizes. What is trusted of such a file, and what of a graph cannot be trained, is in `docs/models.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import torch

from workloads.catalogue import Batch, Shape, Spec, Workload
from workloads.sources.file_inputs import Dimensions, GraphInput, chosen, dimensions, draw_all
from workloads.training import mean_loss

READERS = {"pt2": "workloads.sources.torch_export", "onnx": "workloads.onnx.file"}
"""Form → the module whose `read(path)` gives a Graph."""


@dataclass(frozen=True)
class Graph:
    """A graph that was read. build(device) → a new module whose forward takes the inputs in order. defaults, limits:
    of each dynamic dimension."""

    inputs: tuple[GraphInput, ...]
    defaults: Mapping[str, int]
    limits: Mapping[str, tuple[int, int | None]]
    build: Callable[[torch.device], torch.nn.Module]


def get(spec: Spec, shapes: Sequence[Shape] = (), batch: str = "", **hyper: int) -> Workload:
    """The workload of a graph file. batch: the dimension that is the batch. Raises ValueError, in one line, for a file
    that is damaged or of a version or an operator that is not known, Unavailable for a package that is not there."""
    if shapes:
        raise ValueError(f"{spec.text}: its inputs are in the file: leave --input out")
    with torch.device("cpu"):
        graph: Graph = import_module(READERS[spec.form]).read(spec.target)
    try:
        known = dimensions(graph.inputs, graph.defaults, graph.limits, batch)
    except ValueError as fault:
        raise ValueError(f"{spec.text}: {fault}") from fault
    return Workload(
        name=spec.text,
        task="general",
        hyper=chosen(known, hyper, spec.text),
        build=partial(_build, graph),
        batch=partial(_batch, spec.text, known),
        loss=mean_loss,
        items=_items,
        item="sample",
        source=spec.text,
    )


def _build(graph: Graph, **_sizes: int) -> torch.nn.Module:
    """A module of its own each time, in training mode, on the default device; sizes decide its inputs alone."""
    device = torch.get_default_device()
    with torch.device("cpu"):
        return graph.build(device).train()


def _batch(
    what: str,
    known: Dimensions,
    hyper: Mapping[str, int],
    size: int,
    device: torch.device,
    generator: torch.Generator | None,
) -> Batch:
    return Batch(draw_all(known, hyper, size, device, generator, what), None)


def _items(_hyper: Mapping[str, int], size: int) -> int:
    return size
