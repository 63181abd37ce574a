"""Law: what a step under emit_nvtx and our own ranges really writes has the products of our own trace.

NVTX calls a listener of our own in the place of a profiler (nvtx_listener.c); the step is run by the command that a
sweep has Nsight Systems start. Only the kernels are made up, one for each product.
"""

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from analysis.operators.registry import cost
from analysis.trace.operations import is_product
from cleaning.trace.clean import clean_recording
from measure.trace.attribute import OWN, OWN_STEP, last_step
from measure.trace.nsys import parse
from results.records.cell import Cell
from results.records.counts import Operation
from runners.cli.model_options import read_recording
from runners.sweep.cell import reference_trace
from tests.support.bf16 import skip_without_bf16
from tests.support.fakes.real_sweeps import ENVIRON, ROOT
from tests.support.made_up_operations.nsys_export import Export
from tests.support.recordings.recordings import a_run

SOURCE = ROOT / "tests" / "support" / "fakes" / "nvtx_listener.c"

WITHOUT_A_DEVICE = """
import contextlib, sys
import torch
from measure.profile import recording as work_profiles
torch.cuda.synchronize = lambda *device: None
torch.cuda.profiler.profile = contextlib.nullcontext
record_step = work_profiles.record_step
work_profiles.record_step = lambda *parts, **more: record_step(*parts, **{**more, "cuda": True})
from runners.sweep.nsight import main
sys.exit(main(sys.argv[1:]))
"""
"""The command that nsys runs, but what it asks of the driver goes nowhere."""

Events = list[tuple[str, int, int, str, str, str]]


def listener(folder: Path) -> Path:
    """The library; the test is skipped where it cannot be built."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("no C compiler")
    library = folder / "listener.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, SOURCE], check=True)
    return library


def listened(library: Path, cell: dict[str, Any], work: str, folder: Path) -> Events:
    """What one step of a cell's work writes: kind, ns, thread, domain, id and text of each event."""
    environ = {**ENVIRON, "NVTX_INJECTION64_PATH": str(library), "NVTX_LISTENER_OUT": str(folder / "events")}
    words = [sys.executable, "-c", WITHOUT_A_DEVICE, json.dumps(cell), work]
    done = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = (line.split("\t", 5) for line in (folder / "events").read_text().splitlines())
    return [(kind, int(ns), int(thread), domain, number, text) for kind, ns, thread, domain, number, text in lines]


def export(events: Events) -> Export:
    """The events as an export: ranges as they were, and a kernel for each innermost product."""
    made, domains, begun = Export(2026), dict[str, int](), dict[str, tuple[str, str, int]]()
    open_ranges: dict[int, list[list[Any]]] = {}
    products: list[tuple[int, int, int]] = []
    for kind, ns, thread, domain, number, text in events:
        stack = open_ranges.setdefault(thread, [])
        if kind == "push":
            stack.append([text, ns, False])
        elif kind == "pop" and stack:
            text, start, holds_product = stack.pop()
            made.push(text, start, ns, thread % (1 << 24))
            mine = is_product(parse(text)[0])
            if mine and not holds_product:
                products.append((start, ns, thread % (1 << 24)))
            if stack:
                stack[-1][2] |= holds_product or mine
        elif kind == "start":
            if domain not in domains:
                domains[domain] = len(domains) + 1
                made.domain(domains[domain], domain)
            begun[number] = (domain, text, ns)
        elif kind == "end":
            domain, text, start = begun.pop(number)
            made.in_domain(domains[domain], text, start, ns)
    for number, (start, end, thread) in enumerate(products, 1):
        made.launch(number, start + 1, start + 2, thread)
        made.kernel("cutlass_tensorop_gemm", number, start + 10, end)
    assert not begun
    assert not any(open_ranges.values()), "every range that was opened was closed"
    return made


IMAGE = 64
CASES = {  # depthwise convolutions and strides, of which the ranges tell nothing; and autocast
    "mobilenet_v2": {"model": "mobilenet_v2", "batch_size": 2, "image_size": IMAGE},
    "resnet18-bf16": {"model": "resnet18", "batch_size": 3, "image_size": IMAGE, "precision": "amp-bf16"},
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return listener(tmp_path_factory.mktemp("listener"))


@pytest.fixture(scope="module", params=["mobilenet_v2", pytest.param("resnet18-bf16", marks=pytest.mark.slow)])
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
