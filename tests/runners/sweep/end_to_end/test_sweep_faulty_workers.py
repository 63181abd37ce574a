"""Injected fault: a worker fails in the midst of training; each fault is one row, and the next cell is measured."""

from __future__ import annotations

import ctypes
import dataclasses
import io
import os
import signal
import sys
import time

import pytest

from results.records.cell import MEASURED, Cell
from results.store.store import Store, read_run
from runners.cli.output import Progress
from runners.sweep import session as sweep_session
from runners.sweep.executors import Executor, LocalSlots
from runners.sweep.findings import SlotSettings
from runners.workers.pool import Worker, prepare
from tests.support.made_up.made_up_runs import MANIFEST


class FaultyLoss:
    """A loss that injects a fault into its training step at its call number `calls`, in the midst of the timed blocks.

    The traced step and at least two of warming up come before them; three blocks of a step each are the least that is
    timed, however slow the machine.
    """

    def __init__(self, loss, kind, calls=5):
        self.loss, self.kind, self.left = loss, kind, calls

    def __call__(self, output, target):
        self.left -= 1
        if self.left == 0:
            inject(self.kind)
        loss = self.loss(output, target)
        return loss * float("nan") if self.kind == "nan" and self.left <= 0 else loss


def inject(kind):
    import torch

    if kind == "segfault":
        ctypes.string_at(0)
    elif kind == "hang":
        time.sleep(600)
    elif kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "exit":
        sys.exit(5)
    elif kind == "memory":
        torch.empty(10**15)
    elif kind == "device":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    elif kind == "tf32":
        torch.set_float32_matmul_precision("high")


def train_and(kind, cell, protocol):
    """Measures a cell for real, with a step that has a fault while it is timed."""
    from runners.sweep import cell as sweep_cell

    original = sweep_cell._workload

    def workload(of):
        made = original(of)
        return dataclasses.replace(made, loss=FaultyLoss(made.loss, kind))

    sweep_cell._workload = workload
    try:
        return sweep_cell.measure(cell, protocol)
    finally:
        sweep_cell._workload = original


MEASURE = "runners.sweep.cell:measure"


class FaultyWorker(Worker):
    """A worker whose task for some cells is another: batch size → (kind, limit in seconds or None)."""

    plan: dict[int, tuple[str, float | None]] = {}
    all: list[FaultyWorker] = []

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.pids: list[int] = []
        self.all.append(self)

    def call(self, task: str, *arguments: object, timeout_s: float) -> object:
        cell = arguments[0]
        if task == MEASURE and isinstance(cell, Cell) and cell.batch_size in self.plan:
            kind, limit_s = self.plan[cell.batch_size]
            limit_s = timeout_s if limit_s is None else limit_s
            return super().call(
                "tests.runners.sweep.end_to_end.test_sweep_faulty_workers:train_and",
                kind,
                *arguments,
                timeout_s=limit_s,
            )
        return super().call(task, *arguments, timeout_s=timeout_s)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """One sweep in this process over real workers; after each faulty cell comes one that is not."""
    prepare()
    kinds = {2: "segfault", 4: "hang", 6: "memory", 8: "tf32", 10: "killed", 12: "exit", 14: "device", 16: "nan"}
    FaultyWorker.plan = {size: (kind, 4.0 if kind == "hang" else None) for size, kind in kinds.items()}
    FaultyWorker.all = []
    path, stream = tmp_path_factory.mktemp("faulty") / "run", io.StringIO()
    common = {"model": "synthetic_matmul", "device": "cpu", "quick": True, "target_ci_ratio": 0.9}
    cells = [Cell(**common, batch_size=size, methods=("exact",), counters=()) for size in range(1, 18)]
    patch = pytest.MonkeyPatch()
    patch.setattr(sweep_session, "Worker", FaultyWorker)
    with patch.context(), Store.create(path, MANIFEST) as store:
        progress = Progress(len(cells), stream)
        executor = Executor(LocalSlots(sweep_session.Session(SlotSettings("cpu", 120.0, ""))))
        executor.probe()
        executor.begin_session(store, "")
        list(executor.rows(store, cells, None, progress))
    patch.undo()
    return {run.batch_size: run for run in read_run(path).runs}, path, stream.getvalue()


@pytest.mark.survival
def test_each_fault_is_one_row_and_the_next_cell_is_measured(faulty):
    runs, path, said = faulty
    assert sorted(runs) == list(range(1, 18))
    expected = {2: "crashed", 4: "timeout", 6: "out_of_memory", 8: "invalid", 10: "crashed", 12: "crashed"}
    expected |= {14: "device_error"}
    for size, run in runs.items():
        assert run.status in ((expected[size],) if size in expected else MEASURED), run
        assert run.attempt == 1
    assert read_run(path).problems == []
    assert said.count("\n") == 1 + 17  # the plan's time, then a line a cell


@pytest.mark.survival
@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (2, "the worker died of SIGSEGV"),
        (4, "killed at its limit of 4 s"),
        (6, "can't allocate memory"),
        (8, "flags read back after the cell disagree with the precision: "),
        (10, "the worker died of SIGKILL, as the kernel does when memory runs out"),
        (12, "the worker ended with status 5 before it answered"),
        (14, "RuntimeError: CUDA error: an illegal memory access was encountered"),
    ],
)
def test_the_reason_is_in_the_row(faulty, size, reason):
    assert reason in faulty[0][size].reason


@pytest.mark.survival
def test_the_samples_of_a_faulty_cell_are_kept_only_where_it_was_measured(faulty):
    samples = read_run(faulty[1]).samples
    counts = samples.groupby("cell_id").size().to_dict()
    for size, run in faulty[0].items():
        assert (run.cell_id in counts) == (run.status in (*MEASURED, "invalid")), size
