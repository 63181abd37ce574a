"""A compiled cell of a worker: what its row says is of the compiled step."""

import contextlib
from dataclasses import replace

import pytest
import torch

from measure.device import product_instructions
from measure.timing.protocols import CPU_PROTOCOL
from results.records.cell import Cell
from runners.sweep import cell as sweep_cell
from runners.sweep.findings import CellMeasurement


@pytest.fixture
def untimed(monkeypatch):
    """A cell is prepared, run and compiled, and not timed."""

    def time_cell(cell, step, clock, protocol, found, beside):
        return CellMeasurement(found)

    monkeypatch.setattr(sweep_cell, "time_cell", time_cell)


def test_the_instructions_of_a_compiled_cell_are_those_of_its_compiled_step(untimed, monkeypatch):
    """A library that says how often it was heard: before the model was compiled, and after it."""
    events = []

    @contextlib.contextmanager
    def log():
        events.append("heard")
        yield [f"event {len(events)}"]

    monkeypatch.setattr(product_instructions, "log", log)
    monkeypatch.setattr(product_instructions, "instructions", lambda lines: {"matmul/float32": tuple(lines)})
    monkeypatch.setattr(torch, "compile", lambda model, dynamic: events.append("compiled") or model)
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)
    of = Cell(model="synthetic_matmul", batch_size=2, device="cpu", hyper={"width": 16, "depth": 1}, compile=True)
    found = sweep_cell.measure(of, CPU_PROTOCOL).run
    assert events == ["heard", "compiled", "heard"]
    assert found.instructions == {"matmul/float32": ("event 3",)}
    assert sweep_cell.measure(replace(of, compile=False), CPU_PROTOCOL).run.instructions == {
        "matmul/float32": ("event 4",)
    }
