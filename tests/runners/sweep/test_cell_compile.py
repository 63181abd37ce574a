"""Compiled cells of one worker: each is compiled for its own sizes, whatever was compiled before it."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from measure.device import product_instructions
from measure.timing.protocols import CPU_PROTOCOL
from results.records.cell import Cell
from runners.sweep import cell as sweep_cell
from runners.sweep.findings import CellMeasurement

ORDER = (("resnet18", 2), ("resnet18", 3), ("resnet34", 2), ("resnet18", 2))
"""A second batch size, another model of the same class, and a cell that came before (in a repeat)."""


@pytest.fixture
def untimed(monkeypatch):
    """A cell is prepared, run and compiled, and not timed."""

    def time_cell(cell, step, clock, protocol, found, beside):
        return CellMeasurement("ok", "", (), findings=found)

    monkeypatch.setattr(sweep_cell, "time_cell", time_cell)


@pytest.fixture
def graphs(untimed, monkeypatch):
    """For each graph that a backend is given: whether all its sizes are numbers."""
    given = []

    def backend(graph, inputs):
        sizes = [size for tensor in inputs if isinstance(tensor, torch.Tensor) for size in tensor.shape]
        given.append(not any(isinstance(value, torch.SymInt) for value in (*inputs, *sizes)))
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
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


def test_the_instructions_of_a_compiled_cell_are_those_of_its_compiled_step(untimed, monkeypatch):
    """A library that says how often it was heard: before the model was compiled, and after it."""
    events = []

    @contextlib.contextmanager
    def log():
        events.append("heard")
        yield SimpleNamespace(instructions={"matmul/float32": (f"event {len(events)}",)})

    monkeypatch.setattr(product_instructions, "log", log)
    monkeypatch.setattr(torch, "compile", lambda model, dynamic: events.append("compiled") or model)
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)
    of = Cell(model="synthetic_matmul", batch_size=2, device="cpu", hyper={"width": 16, "depth": 1}, compile=True)
    found = sweep_cell.measure(of, CPU_PROTOCOL).findings
    assert events == ["heard", "compiled", "heard"]
    assert found.instructions == {"matmul/float32": ("event 3",)}
    assert sweep_cell.measure(replace(of, compile=False), CPU_PROTOCOL).findings.instructions == {
        "matmul/float32": ("event 4",)
    }
