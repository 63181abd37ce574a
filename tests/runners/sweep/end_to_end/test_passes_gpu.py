"""Law, known answer, injected fault: passes and profiles of a cell on a CUDA device; needs a GPU that CUPTI can record.

Each test says what only a GPU can show; the same code without one is in test_passes and test_profiles.
"""

import dataclasses
import gc
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from analysis.devices.precisions import PRECISIONS
from analysis.operators.registry import cost
from analysis.utilization.work_times import passes_of
from cleaning.profile import clean_profile, profile_counts
from measure.device.apply_precision import session
from measure.profile.recording import profile_step
from measure.timing.blocks import measure_blocks, warm_up
from measure.timing.clocks import clock_for
from measure.timing.stopping import Protocol, step_time_s
from results.records.cell import Cell, Run
from runners.sweep import cell as sweep_cell
from runners.sweep import passes
from runners.sweep.findings import CellMeasurement, PassFindings
from runners.sweep.plan import METHODS, tasks
from tests.support.nets.small_steps import fake_trace, parts
from tests.support.recordings.recorded_nets import cnn
from tests.support.recordings.recordings import a_run
from workloads.catalogue.base import Batch
from workloads.step import OPTIMIZERS, TrainingStep

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
DTYPES = {"fp32": "float32", "tf32": "float32", "amp-bf16": "bfloat16", "amp-fp16": "float16"}
MEBIBYTE = 2**20


def transformer() -> nn.Module:
    """Heads of 32, which no attention kernel pads."""
    layer = nn.TransformerEncoderLayer(64, 2, 128, dropout=0.0, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(1024, 2))


NETS = {"cnn": (cnn, (8, 3, 8, 8)), "transformer": (transformer, (4, 16, 64))}


def training(net: str, precision: str = "fp32", batch_size: int | None = None) -> TrainingStep:
    make, shape = NETS[net]
    policy, shape = PRECISIONS[precision], (batch_size or shape[0], *shape[1:])
    torch.manual_seed(0)
    model = make().to(DEVICE)
    batch = Batch((torch.randn(shape, device=DEVICE),), torch.zeros(shape[0], dtype=torch.long, device=DEVICE))
    return TrainingStep(
        model,
        F.cross_entropy,
        OPTIMIZERS["sgd"](model.parameters()),
        [batch],
        DEVICE,
        getattr(torch, policy.autocast) if policy.autocast else None,
        torch.amp.GradScaler(DEVICE) if policy.scaler else None,
    )


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("precision", DTYPES)
def test_a_cleaned_profile_is_our_own_count_with_phases_modules_and_device_time(net, precision):
    """The operators are cuDNN's, cuBLAS's and fused attention's; the count is that of the trace on fake tensors."""
    with session(PRECISIONS[precision], DEVICE):
        step = training(net, precision)
        step()
        profile = profile_step(step, step.model, clock_for(DEVICE), pass_name="batch", cuda=True, most_steps=1)
    assert profile.notes == ()
    rows = clean_profile(a_run(device=DEVICE), profile.operations).operations
    make, shape = NETS[net]
    table = fake_trace(parts(make, shape)).operations
    for phases in (("forward", "loss"), ("backward",)):
        expected = sum(cost(operation).model_flop for operation in table if operation.phase in phases)
        assert sum(row.cleaned_flop for row in rows if row.phase in phases) == expected, phases
    assert {row.dtype for row in rows} == {DTYPES[precision]}
    assert {row.module.partition(".")[0] for row in rows} == {o.module.partition(".")[0] for o in table if flop(o)}
    assert {row.phase for row in profile.operations} >= {"forward", "loss", "backward", "optimizer"}
    calls = {call.index: call for call in profile.operations}
    assert [row.name for row in rows if not calls[row.index].device_time_s] == []


def flop(operation) -> int:
    return cost(operation).model_flop


@pytest.fixture
def nothing_left() -> Iterator[None]:
    yield
    passes.LEFT.clear()


def whole(cell: Cell) -> CellMeasurement:
    """Everything that a worker does for a cell, in order, as the parent joins it."""
    rules = Protocol.for_device(DEVICE, quick=True, passes=passes_of(cell))
    before = torch.get_float32_matmul_precision()
    try:
        measured = sweep_cell.measure(cell, rules)
        whole = PassFindings()
        for task in tasks(passes_of(cell)):
            whole.add(passes.measure_pass(cell.cell_id, *task))
        return measured.with_passes(whole)
    finally:
        torch.set_float32_matmul_precision(before)


def resnet(precision: str = "fp32", **more: object) -> Cell:
    words = {"model": "resnet18", "batch_size": 16, "device": DEVICE, "image_size": 64, "quick": True}
    return Cell(**{**words, "precision": precision, "methods": METHODS, "epoch_images": 200, **more})


def run_of(cell: Cell, measured: CellMeasurement) -> Run:
    return dataclasses.replace(measured.run, attempt=1, session="s0", status="ok", reason="")


@pytest.mark.parametrize("more", [{"precision": "fp32"}, {"precision": "amp-fp16", "layout": "channels_last"}])
def test_one_batch_last_and_epoch_agree(nothing_left, more):
    """FLOP are 1, 16, 8 and 200 times those of an image, exactly; a real epoch takes what its batches promise."""
    cell = resnet(**more)
    measured = whole(cell)
    assert measured.run.unprofiled == {}
    run = run_of(cell, measured)
    counts = profile_counts(run, clean_profile(run, measured.operations).operations, None)
    flops = {(row.work, row.phase): row.cleaned_flop for row in counts}
    for phase in ("forward", "backward"):
        image = flops["one", phase]
        assert {work: flops[work, phase] / image for work in ("batch", "last", "epoch")} == {
            "batch": 16, "last": 8, "epoch": 200,
        }  # fmt: skip
    blocks = [block for block in measured.blocks if block.part == "measure"]
    times_s = {work: [b.device_s for b in blocks if b.work == work] for work in ("", "last", "epoch")}
    steps = {work: sum(b.steps for b in blocks if b.work == work) for work in times_s}
    promised_s = 12 * sum(times_s[""]) / steps[""] + sum(times_s["last"]) / steps["last"]
    assert sum(times_s["epoch"]) == pytest.approx(promised_s, rel=0.5), "few steps on a host that may be slow"
    assert steps["epoch"] == 13


def test_nothing_of_a_cell_stays_on_the_device(nothing_left):
    """But for the libraries' workspaces, which the first cell made."""
    whole(resnet())
    held = []
    for _ in range(2):
        whole(resnet())
        gc.collect()
        torch.cuda.empty_cache()
        held.append(torch.cuda.memory_allocated(DEVICE))
    assert held[1] <= held[0] < 256 * MEBIBYTE


def test_a_work_that_runs_out_of_memory_costs_itself_and_leaves_the_device_usable(nothing_left):
    """The allocator is given no more than the cell holds already, and then everything again."""
    cell = resnet(batch_size=64, image_size=128, methods=("one", "batch"))
    rules = Protocol.for_device(DEVICE, quick=True, passes=passes_of(cell))
    sweep_cell.measure(cell, rules)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved(DEVICE) / total)
    try:
        batch = passes.run(passes.LEFT[0], "batch", True)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert batch.unprofiled["batch"].startswith("OutOfMemoryError: CUDA out of memory")
    assert passes.run(passes.LEFT[0], "one", True).unprofiled == {}


def test_a_profile_leaves_later_times_as_they_were():
    """CUPTI stays loaded after a profile. Were each launch slower by it, a step of many small kernels would show it."""
    step, clock = training("transformer", batch_size=1), clock_for(DEVICE)
    rules = Protocol.for_device(DEVICE, quick=True)

    def step_s() -> float:
        warm = warm_up(step, clock, rules)
        return min(step_time_s(block) for block in measure_blocks(step, clock, rules, warm.step_s).blocks)

    before_s = step_s()
    profile_step(step, step.model, clock, pass_name="batch", cuda=True)
    assert step_s() == pytest.approx(before_s, rel=0.1)
