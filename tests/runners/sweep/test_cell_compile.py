"""Compiled cells of one worker: each is compiled for its own sizes, whatever was compiled before it."""

from __future__ import annotations

import functools

import pytest
import torch

from measure.timing.protocols import CPU_PROTOCOL
from results.records import Cell
from runners.sweep import cell as sweep_cell
from runners.sweep.findings import CellMeasurement

ORDER = (("resnet18", 2), ("resnet18", 3), ("resnet34", 2), ("resnet18", 2))
"""A second batch size, another model of the same class, and a cell that came before (in a repeat)."""


@pytest.fixture
def graphs(monkeypatch):
    """For each graph that a backend is given: whether all its sizes are numbers."""
    given = []

    def backend(graph, inputs):
        sizes = [size for tensor in inputs if isinstance(tensor, torch.Tensor) for size in tensor.shape]
        given.append(not any(isinstance(value, torch.SymInt) for value in (*inputs, *sizes)))
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    monkeypatch.setattr(
        sweep_cell, "time_cell", lambda cell, step, clock, protocol, found: CellMeasurement("ok", "", ())
    )
    yield given
    torch.compiler.reset()


@pytest.mark.slow
def test_every_cell_is_compiled_for_its_own_sizes(graphs):
    seen = []
    for model, batch_size in ORDER:
        of = Cell(model=model, batch_size=batch_size, device="cpu", image_size=32, num_classes=10, compile=True)
        sweep_cell.measure(of, CPU_PROTOCOL)
        seen.append(graphs.copy())
        graphs.clear()
    assert seen == [[True]] * len(ORDER), "one graph a cell, of plain sizes"
