"""Real NVTX ranges of a step on a CPU, by a listener of our own (nvtx_listener.c), as an export of Nsight Systems.

What emit_nvtx and our own ranges write is real: texts, times, threads. Kernels are not, since there is no device: each
innermost call of a product gets one, launched within it. Needs a C compiler.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analysis.trace.operations import is_product
from measure.trace.readers.nvtx_ranges import parse
from tests.support.fakes.real_sweeps import ENVIRON, ROOT
from tests.support.made_up_operations.nsys_export import Export

SOURCE = Path(__file__).with_suffix(".c")

WITHOUT_A_DEVICE = """
import contextlib, sys
import torch
from measure.profiler import nvtx_step
torch.cuda.synchronize = lambda *device: None
torch.cuda.profiler.profile = contextlib.nullcontext
captured = nvtx_step._captured
nvtx_step._captured = lambda cuda: captured(True)
from runners.nvtx_step import main
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
            mine = is_product(parse(text).name)
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
