"""What a step under emit_nvtx and our own ranges really writes, and that its products are counted from it.

NVTX calls a listener of our own in the place of a profiler (nvtx_listener.py); the step is run by the command that a
sweep has Nsight Systems start. Only the kernels are made up, one for each product.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from analysis.operators.registry import cost
from cleaning.trace.work_recordings import clean_recording
from measure.trace.attribution.phases import OWN, OWN_STEP, last_step
from results.records.cell import Cell
from results.records.operations import Operation
from runners.cli.model_options import read_recording
from runners.sweep.cell import reference_trace
from tests.support.bf16 import skip_without_bf16
from tests.support.fakes.nvtx_listener import export, listened, listener
from tests.support.recordings.recordings import a_run

IMAGE = 64
CASES = {  # depthwise convolutions and strides, of which the ranges tell nothing; and autocast
    "mobilenet_v2": {"model": "mobilenet_v2", "batch_size": 2, "image_size": IMAGE},
    "resnet18-bf16": {"model": "resnet18", "batch_size": 3, "image_size": IMAGE, "precision": "amp-bf16"},
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return listener(tmp_path_factory.mktemp("listener"))


@pytest.fixture(scope="module", params=CASES)
def case(request: Any, library: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Cell, Path, list[Any]]:
    if CASES[request.param].get("precision") == "amp-bf16":
        skip_without_bf16()
    folder = tmp_path_factory.mktemp("step")
    words = {**CASES[request.param], "device": "cpu", "methods": ["batch"]}
    events = listened(library, words, "batch", folder)
    return Cell(**{**words, "methods": ("batch",)}), export(events).write(folder / "report.sqlite"), events


def products(table: tuple[Operation, ...], phases: tuple[str, ...]) -> Counter[tuple[str, int]]:
    """(module, FLOP) of each product; gradients of one forward operation together."""
    found: Counter[tuple[str, int]] = Counter()
    for operation in table:
        if operation.phase in phases and (flop := int(cost(operation).model_flop)):
            found[operation.module] += flop
    return found


def test_products_are_counted_where_and_as_often_as_our_own_trace_has_them(case):
    cell, path, _ = case
    recording = read_recording(path, last_step)
    rows = clean_recording(a_run(), "batch", recording.calls, recording.kernels, "nsys").operations
    table = reference_trace(cell).operations
    for phases in (("forward", "loss"), ("backward",)):
        mine: Counter[str] = Counter()
        for row in rows:
            if row.phase in phases:
                mine[row.module] += row.cleaned_flop
        assert mine == products(table, phases), phases
    linked = {row.index: row for row in rows}
    assert {linked[row.forward_index].phase for row in rows if row.phase == "backward"} == {"forward"}


def test_only_the_recorded_step_writes_and_it_writes_once(case):
    *_, events = case
    texts = [text.partition(",")[0] for kind, *_, text in events if kind in ("push", "start")]
    assert texts.count("step") == texts.count(OWN_STEP) == 1, "warming up wrote nothing"
    marks = [text for text in texts if text.removeprefix(OWN) in ("forward", "loss", "backward", "optimizer")]
    assert marks[::2] == [f"{OWN}{text}" for text in marks[1::2]]
    assert marks[1::2] == ["optimizer", "forward", "loss", "backward", "optimizer"]
    assert "aten::_foreach_add_" in texts or "aten::add_" in texts, "the optimizer's step is in it"
