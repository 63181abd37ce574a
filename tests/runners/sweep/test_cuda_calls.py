"""What the harness asks of torch.cuda, without a GPU: torch's own checks of arguments run, the driver is made up.

`OnCuda` is a device that is CUDA to our code, which asks by name, and the processor to torch: so each line that runs on
CUDA only runs here, with a model that really trains.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter

import pytest
import torch

from analysis.utilization.work_times import work_times, works_of
from cleaning.profile.clean import clean_profile, profile_counts
from measure.profiler import work_profiles
from measure.timing.clocks import CudaClock
from measure.timing.protocols import CPU_PROTOCOL, Protocol
from results.records.cell import Cell, Run
from results.records.samples import Sample
from runners.sweep import cell as sweep_cell
from runners.sweep.findings import merge_findings
from runners.sweep.plan import METHODS

MEBIBYTE = 2**20


class Chosen(Exception):
    """The driver was told which card is the current one; nothing after that is asked here."""


@pytest.mark.parametrize(("device", "number"), [("cuda", 0), ("cuda:1", 1)])
def test_the_cells_card_becomes_the_current_one(monkeypatch, device, number):
    """torch.cuda.set_device refuses "cuda" without a number, which is what a cell of the first card says."""

    def choose(index: int) -> None:
        raise Chosen(index)

    monkeypatch.setattr(torch._C, "_cuda_setDevice", choose, raising=False)  # a CPU build has none
    monkeypatch.setattr("measure.device.apply_precision.supported", lambda *_: None)
    with pytest.raises(Chosen) as said:
        sweep_cell.measure(Cell(model="synthetic_convolution", batch_size=2, device=device), CPU_PROTOCOL)
    assert said.value.args == (number,)


class OnCuda(str):
    """The processor, as torch reads it; CUDA, as our code does."""

    def __new__(cls):
        return super().__new__(cls, "cpu")

    def startswith(self, *words):
        return "cuda".startswith(*words)


class Event:
    """A point in time. The processor has done everything by then."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at_s: float | None = None

    def record(self, stream: object) -> None:
        assert stream == "stream of cuda:0"
        self.at_s = time.monotonic()

    def elapsed_time(self, end: Event) -> float:
        return 1000 * (end.at_s - self.at_s)


class Driver:
    """Answers of torch.cuda. asked: how often each was wanted. peak: what has been allocated most, a mebibyte more at
    each step of any work, so that a number that was read too late shows."""

    def __init__(self, monkeypatch) -> None:
        self.asked: Counter[str] = Counter()
        self.steps = 0
        answers = {
            "is_available": lambda: True,
            "empty_cache": lambda: None,
            "synchronize": self._synchronize,
            "reset_peak_memory_stats": lambda device: None,
            "memory_stats": lambda device: {"num_alloc_retries": 0},
            "max_memory_allocated": lambda device: self.steps * MEBIBYTE,
            "max_memory_reserved": lambda device: 2 * self.steps * MEBIBYTE,
            "current_stream": lambda device: f"stream of {device}",
        }
        for name, answer in answers.items():
            monkeypatch.setattr(torch.cuda, name, self._counted(name, answer))
        monkeypatch.setattr(torch.cuda, "Event", Event)

    def _counted(self, name, answer):
        def asked(*arguments):
            self.asked[name] += 1
            return answer(*arguments)

        return asked

    def _synchronize(self, device=None):
        assert device in (None, torch.device("cuda:0"))


@pytest.fixture
def driver(monkeypatch):
    return installed(monkeypatch)


def installed(monkeypatch) -> Driver:
    made = Driver(monkeypatch)
    monkeypatch.setattr("measure.timing.clocks.clock_for", lambda device: CudaClock("cuda:0"))
    monkeypatch.setattr("measure.device.apply_precision.supported", lambda *_: None)
    monkeypatch.setattr("measure.device.apply_precision.check", lambda *_: [])
    from workloads.training.step import TrainingStep

    gradients = TrainingStep.gradients

    def counted(step, mark=lambda phase: None):
        made.steps += 1
        return gradients(step, mark)

    monkeypatch.setattr(TrainingStep, "gradients", counted)
    return made


def on_cuda(precision: str = "fp32", **more: object) -> Cell:
    return Cell(
        **{
            "model": "synthetic_convolution",
            "batch_size": 4,
            "device": OnCuda(),
            "precision": precision,
            "methods": METHODS,
            "epoch_images": 10,
            "image_size": 8,  # a processor takes seconds for a large convolution in half precision
            **more,
        }
    )


def hasty(cell: Cell) -> Protocol:
    """The rules of CUDA, a hundred times shorter, and satisfied by any interval."""
    rules = Protocol.for_device(cell.device, quick=True, target_ci_ratio=0.99, works=works_of(cell))
    assert rules.block_s == 0.04, "those of CUDA"
    times = {name: getattr(rules, name) / 50 for name in ("block_s", "min_time_s", "warm_block_s", "warm_min_s")}
    return dataclasses.replace(rules, **times, warm_cap_s=0.3, cap_s=1.0, profile_cap_s=0.1, min_blocks=3)


def whole(cell: Cell):
    """Everything that a worker does for a cell, in order, as the parent joins it."""
    before = torch.get_float32_matmul_precision()
    try:
        measured = sweep_cell.measure(cell, hasty(cell))
        return measured.with_works(
            merge_findings(
                [sweep_cell.measure_work(cell.cell_id, *task) for task in sweep_cell.passes.tasks(works_of(cell))]
            )
        )
    finally:
        torch.set_float32_matmul_precision(before)
        sweep_cell._LEFT.clear()


def rows_of(cell: Cell, measured) -> tuple[Run, list[Sample]]:
    run = Run(
        **vars(cell), cell_id=cell.cell_id, attempt=1, sitting="s0", status="ok",
        reason="", warnings=measured.warnings, **vars(measured.findings),
    )  # fmt: skip
    blocks = [
        dataclasses.replace(block, cell_id=cell.cell_id, attempt=1, index=index)
        for index, block in enumerate(measured.blocks)
    ]
    return run, blocks


@pytest.fixture(scope="module", params=["fp32", "amp-bf16", "amp-fp16"])
def measured(request):
    cell = on_cuda(request.param)
    with pytest.MonkeyPatch.context() as patch:
        installed(patch)
        return cell, whole(cell)


def test_every_work_is_timed_by_events_and_profiled(measured):
    _, found = measured
    assert found.findings.unprofiled == {}
    assert found.findings.profiled == ("one", "batch", "last")
    assert all(block.device_s > 0 for block in found.blocks)
    parts = {(block.part, block.work) for block in found.blocks}
    assert parts >= {("measure", work) for work in ("", "one", "last", "epoch")}
    assert parts >= {("profiled", work) for work in ("", "one", "last")}
    waits = [b.sync_wait_s is not None for b in found.blocks if b.work == "epoch"]
    assert waits == [False, True], "only the last segment ends in a synchronise"
    assert found.findings.host_bound is True, "the processor has always caught up"


def test_each_work_has_its_time_on_the_devices_clock_and_its_count(measured):
    cell, found = measured
    run, samples = rows_of(cell, found)
    times = {row.work: row for row in work_times(run, samples)}
    assert set(times) == {"one", "batch", "last", "epoch"}
    assert {row.status for row in times.values()} <= {"ok", "not_converged"}, "a busy processor's intervals are wide"
    last = sum(s.device_s for s in samples if (s.part, s.work) == ("measure", "last"))
    steps = sum(s.steps for s in samples if (s.part, s.work) == ("measure", "last"))
    assert times["last"].time_s == pytest.approx(last / steps)
    assert times["epoch"].real_time_s > 0
    rows = clean_profile(run, found.operations).operations
    counts = {(row.work, row.phase): row for row in profile_counts(run, rows, None)}
    assert {row.status for row in counts.values()} == {"ok"}
    one = counts["one", "forward"].cleaned_flop
    images = {"one": 1, "batch": 4, "last": 2, "epoch": 10}
    assert {work: counts[work, "forward"].cleaned_flop for work in images} == {w: n * one for w, n in images.items()}
    assert {w: counts[w, "backward"].cleaned_flop for w in images} == {w: n * one for w, n in images.items()}


def test_without_kernels_a_profile_says_so_and_has_no_device_times(measured):
    """As where CUPTI may not record: no activity of CUDA is supported in a process without a GPU."""
    _, found = measured
    noted = [warning for warning in found.warnings if "no kernels" in warning]
    assert [warning.split(":")[:2] for warning in noted] == [["profile", f" {w}"] for w in ("one", "batch", "last")]
    assert {row.device_time_s for row in found.operations} == {None}
    assert {row.phase for row in found.operations} - {""} == {"forward", "loss", "backward", "optimizer"}


@pytest.mark.parametrize(
    ("cuda", "kernels", "device"), [(True, True, "cuda"), (True, False, None), (False, True, None)]
)
def test_the_profiler_is_asked_for_kernels_where_it_can_record_them(monkeypatch, cuda, kernels, device):
    """Asked for them in vain, it puts two events around each call and times those (KINETO_GPU_FALLBACK)."""
    activities = torch.profiler.ProfilerActivity
    supported = {activities.CPU, activities.CUDA} if kernels else {activities.CPU}
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: supported)
    assert work_profiles.kernel_device(cuda) == device
