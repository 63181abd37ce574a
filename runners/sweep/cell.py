"""Measures one cell inside a worker process: finds ceilings, traces the step, times it.

A cell is one combination of workload, batch size and precision. `measure` takes a cell and a `Protocol`, the rules by
which timing warms up and stops, and returns a `CellMeasurement`. `reference_trace` takes a cell and returns its step's
`OperationTable`. `ceilings` takes a device, a precision and a time budget, and returns `Ceiling` rows: the highest
rates measured on this device. `pool.Worker` calls these functions by name, so that the parent need not import torch. An
exception becomes a row.
"""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from resource import RUSAGE_SELF, getrusage
from typing import Any

import torch

from analysis.devices.precisions import PRECISIONS, Precision
from analysis.operators.registry import with_cost
from analysis.utilization.numerators import count_table
from analysis.utilization.step_times import paired_ceiling
from measure.ceiling.ceilings import ceiling_kernels, measure_ceilings
from measure.ceiling.machine import copies_and_launches
from measure.device import apply_precision
from measure.device.malloc import extend_heap, set_malloc
from measure.operations.fake_results import built_on_meta
from measure.operations.tracer import FakeMode, StepParts, to_fake, trace, trace_step
from measure.timing.blocks import Announce, blocks_in_order, measure_blocks, measure_phases, warm_up
from measure.timing.clocks import clock_for
from measure.timing.disturbance import (
    SUSPENDED,
    WARNING,
    Neighbours,
    neighbours_warning,
    others_ratio,
    page_fault_warning,
)
from measure.timing.profiler_ranges import Ranges
from measure.timing.rank_blocks import CeilingBlocks, CeilingKernel, step_time_warning
from measure.timing.stopping import Protocol, disturbance_warning, placement_warning, steadiness_warning, total_s
from results.errors import Unavailable
from results.process import load
from results.records.cell import RETAIN, Ceiling, Cell, Parameters, Run
from results.records.counts import Operation
from runners.sweep import passes
from runners.sweep.findings import CellMeasurement, OperationTable, blank_run
from runners.workers.any_model import LARGEST_REAL, Batches, factory_of, hyper_of_cell, in_layout
from runners.workers.pool import classify, send_message
from workloads.catalogue.base import Batch, Workload
from workloads.step import ScheduledStep, TrainingStep, optimizer_of

MEMORY_RATIO = 0.1
"""Share of the budget for ceilings in which copies and launches are timed."""

Split = Callable[["Workload", "torch.nn.Module", "list[Batch]"], "tuple[torch.nn.Module, list[Batch], Schedule | None]"]
"""Splits a model over several ranks. (workload, model, whole batches) → (the part that this rank trains, its batches,
and the schedule that its steps follow or None)."""

Schedule = Callable[[Sequence[Any], Any], "torch.Tensor | None"]
"""The schedule of a `ScheduledStep`: inputs and target → the loss, on the rank that has it."""

HEAP_ROOM = 0.25
"""Where freed memory is retained, the heap grows by this share of the process's memory before anything is timed."""

_PROBED: list[tuple[Cell, Prepared]] = []
"""The step that `probe_step` times in this process; one at most."""


def ceilings(
    session: str, device: str, precision: str, budget_s: float, malloc: str = Parameters.malloc
) -> list[Ceiling]:
    """Measure ceilings of single kernels and of memory. malloc: as of the cells that this process measures."""
    set_malloc(malloc)
    memory = copies_and_launches(device, MEMORY_RATIO * budget_s)  # first: it warms the device up
    rows = measure_ceilings(session, device, PRECISIONS[precision], clock_for(device), budget_s)
    rows += [replace(row, session=session, precision=precision) for row in memory]
    return [replace(row, malloc=malloc) for row in rows]


def reference_trace(cell: Cell) -> OperationTable:
    """Return the operations of the cell's step, with costs, from fake CPU tensors or, where those fail, from real ones.

    Raises ValueError if the model cannot take these sizes, RuntimeError if memory or a device gives out.
    """
    try:
        traced = trace(lambda mode: _traced_parts(cell, _workload(cell), mode))
    except RuntimeError as fault:
        if classify(fault).status != "crashed":
            raise
        line = " ".join(str(fault).split())
        raise ValueError(f"{cell.model} cannot take this batch and these sizes: {line}") from fault
    return OperationTable(tuple(map(with_cost, traced.operations)), traced.storages, traced.notes)


def training(workload: Workload, batch_size: int) -> tuple[Operation, ...]:
    """Return the operations of one step of SGD on fake tensors; on real ones where those cannot run it and the batch is
    small.

    Raises Unavailable, ValueError or RuntimeError where the model cannot be trained at this batch.
    """
    cell = Cell(model=workload.name, batch_size=batch_size, device="cpu")

    def parts(mode: FakeMode | None) -> StepParts:
        if mode is None and batch_size > LARGEST_REAL:
            raise Unavailable(f"fake tensors cannot run it, and a batch above {LARGEST_REAL} is not run on real ones")
        return _traced_parts(cell, workload, mode)

    return trace(parts).operations


def _traced_parts(cell: Cell, workload: Workload, mode: FakeMode | None) -> StepParts:
    torch.manual_seed(cell.seed)  # what data decides (detection) repeats
    build = partial(workload.build, **workload.hyper)
    model = build() if mode is None else built_on_meta(build)
    _lay_out(cell, model)
    model = model if mode is None else to_fake(model, mode)
    with contextlib.nullcontext() if mode is None else mode:
        generator = torch.Generator().manual_seed(cell.seed) if mode is None else None
        batch = workload.batch(workload.hyper, cell.batch_size, torch.device("cpu"), generator)
        batch = in_layout(cell.layout, batch)
        step, optimizer = _step(cell, workload, model, [batch], "cpu")
    return StepParts(step, model, optimizer, (batch.inputs, batch.target))


@dataclass(frozen=True)
class Prepared:
    """A cell that is ready to be trained. few: batches of its own size. began_s: when its preparation began, by its
    clock."""

    workload: Workload
    model: torch.nn.Module
    batches: Batches
    few: list[Batch]
    step: Any
    optimizer: Any
    clock: Any
    began_s: float
    flags: Mapping[str, Any]


def prepare(cell: Cell, split: Split | None = None, shard: int = 0) -> Prepared:
    """Return the cell's model, batches and step on its device, under its precision's flags, which are read back.

    split: as above. shard: which of several parts of the data this is; weights are of the cell's seed on all of them.

    Raises ValueError where the flags are not what was set, Unavailable for a precision that the device does not have,
    or where the C library cannot retain freed memory as the cell requests.
    """
    policy = PRECISIONS[cell.precision]
    device = torch.device(cell.device)
    apply_precision.supported(policy, device)
    set_malloc(cell.malloc)
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)  # which refuses a device without a number
    torch.manual_seed(cell.seed)
    apply_precision.apply(policy, device, cell.cudnn_benchmark, cell.deterministic)
    before, wrong = flags_of(cell, "before")
    if wrong:
        raise ValueError(wrong)
    clock = clock_for(device)
    began_s = clock.wall_s()
    workload = _workload(cell)
    with device:
        model = workload.build(**workload.hyper)
    _lay_out(cell, model)
    batches = Batches(replace(cell, seed=cell.seed + shard), workload, device)
    few = batches.some(cell.batch_size)
    model, few, schedule = (model, few, None) if split is None else split(workload, model, few)
    step, optimizer = _step(cell, workload, model, few, device.type, schedule)
    return Prepared(workload, model, batches, few, step, optimizer, clock, began_s, before)


def probe_step(cell: Cell, threads: int) -> float:
    """Return the time of a step of a cell with so many threads, s. The first step of a cell in a process is not
    timed."""
    if [probed for probed, _ in _PROBED] != [cell]:
        _PROBED[:] = [(cell, prepare(cell))]
        _PROBED[0][1].step()
    torch.set_num_threads(threads)
    begun_s = _PROBED[0][1].clock.wall_s()
    _PROBED[0][1].step()
    return float(_PROBED[0][1].clock.wall_s() - begun_s)


def measure(cell: Cell, protocol: Protocol, ceilings: Sequence[Ceiling] = ()) -> CellMeasurement:
    """Train the cell's model for real, and time it by `protocol`; it leaves the model for `passes.measure_pass`.

    ceilings: the rows whose kernels are timed between its blocks, if the cell requests that.
    """
    passes.LEFT.clear()
    if cell.malloc == RETAIN:
        load_timing()
    prepared = prepare(cell)
    model, step, clock = prepared.model, prepared.step, prepared.clock
    run = first_step(cell, prepared)
    if cell.compile:
        run = replace(run, compile_s=compile_step(step, clock))
    measured = time_cell(cell, step, clock, protocol, run, ceilings)
    after, wrong = flags_of(cell, "after")
    invalid: dict[str, Any] = {"status": "invalid", "reason": wrong} if wrong else {}
    measured = replace(measured, run=replace(measured.run, flags_after=after, **invalid))
    if wrong:
        return measured
    if protocol.passes:
        timed = [block for block in measured.blocks if block.part == "measure"]
        step_s = total_s(timed) / sum(block.steps for block in timed)
        passes.LEFT.append(
            passes.MeasuredCell(cell, model, step, prepared.batches, clock, protocol, step_s, prepared.began_s)
        )
    return measured


def load_timing() -> None:
    """Load what timing needs before the first step takes memory. An object that is allocated between two steps, and
    stays, would break up a hole in the heap that an activation left, and the next activation would take a gradient's
    hole."""

    def task() -> None:
        sum(range(10_000))

    clock, protocol = clock_for("cpu"), replace(Protocol.for_device("cpu", quick=True), block_s=1e-3, cap_s=0.1)
    with CeilingBlocks([CeilingKernel("", "", 1, task)], clock, protocol) as kernel:
        measure_blocks(task, clock, protocol, warm_up(task, clock, protocol).step_s, kernel)


def flags_of(cell: Cell, when: str) -> tuple[Mapping[str, Any], str]:
    """Return the present flags, and which of them disagree with the cell's precision; "" if none."""
    flags, policy = apply_precision.read_flags(), PRECISIONS[cell.precision]
    wrong = apply_precision.check(flags, policy, cell.device, cell.cudnn_benchmark, cell.deterministic)
    return flags, f"flags read back {when} the cell disagree with the precision: {'; '.join(wrong)}" if wrong else ""


def first_step(cell: Cell, prepared: Prepared, steps_before: int = 0) -> Run:
    """Run the first real step of a cell; return its FLOP by kind and dtype, its loss, and the sizes.

    steps_before: steps before it that are not recorded, where one does more than those that follow.
    """
    inputs = [(batch.inputs, batch.target) for batch in prepared.few]
    prepared.clock.synchronize()
    begun_s = prepared.clock.wall_s()
    traced = trace_step(
        prepared.step, model=prepared.model, optimizer=prepared.optimizer, inputs=inputs, steps_before=steps_before
    )
    prepared.clock.synchronize()
    by_kind = count_table(traced.operations).flop_by_kind_dtype
    return blank_run(
        cell,
        first_step_s=prepared.clock.wall_s() - begun_s,
        flags_before=prepared.flags,
        executed={f"{kind}/{dtype}": flop for (kind, dtype), flop in sorted(by_kind.items())},
        first_loss=loss_of(prepared.step),
        items_per_step=prepared.workload.items(prepared.workload.hyper, cell.batch_size),
        parameters=sum(parameter.numel() for parameter in prepared.model.parameters()),
    )


def time_cell(
    cell: Cell,
    step: Any,
    clock: Any,
    protocol: Protocol,
    run: Run,
    ceilings: Sequence[Ceiling] = (),
    announce: Announce | None = None,
) -> CellMeasurement:
    """Warm up, measure, split into phases; read memory and loss while nothing is timed. run: the row so far.

    announce: tells other ranks which block comes (`measure.timing`); other users of the processors are then not looked
    for, since the other ranks are some.
    """
    on_cuda = cell.device.startswith("cuda")
    ranges = Ranges(enabled=on_cuda)
    ranged = ranges.step(step)
    warnings: list[str] = []
    gc.collect()  # what an earlier cell or the traced step left is not what this one needs
    if on_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(cell.device)
    if cell.malloc == RETAIN:
        extend_heap(HEAP_ROOM)
    kernels = ceiling_kernels(ceilings, cell.device, PRECISIONS[cell.precision], clock)
    if cell.paired_ceiling:
        warnings.append(
            "paired_ceiling: the window also holds a ceiling's kernels: its memory and energy are not the step's alone"
            if kernels
            else "paired_ceiling: no ceiling of this precision was measured, so none was timed beside the steps"
        )
    with ranges.around(passes.name_of(cell)), CeilingBlocks(kernels, clock, protocol) as ceiling:
        interleaved = ceiling if kernels else None
        warm = warm_up(ranged, clock, protocol, announce, interleaved)
        retries = _allocation_retries(cell.device)
        others, before = Neighbours(), getrusage(RUSAGE_SELF)
        timing = measure_blocks(ranged, clock, protocol, warm.step_s, interleaved, announce, send_message)
        used, after = others_ratio([others.used()]) if announce is None else None, getrusage(RUSAGE_SELF)
        phases = measure_phases(ranged, clock, protocol, timing.summary.mean, announce)
    (start_s, end_s), retried = timing.window, _allocation_retries(cell.device)
    blocks = (*blocks_in_order(warm, timing, ceiling.samples), *phases)
    run_steps = sum(b.steps + protocol.lead_in_steps for b in (*timing.blocks, *timing.aside, *timing.suspended))
    last_loss = loss_of(step)
    is_lost = last_loss is not None and not math.isfinite(last_loss)
    warnings += filter(
        None,
        [
            "" if warm.steady else f"not_steady: warming up ended at its cap of {protocol.warm_cap_s:.3g} s",
            "allocation_retries: the caching allocator freed and asked again while timing" * (retried > retries),
            neighbours_warning(used),
            disturbance_warning(timing),
            placement_warning(timing),
            step_time_warning(timing, protocol) if kernels else "",
            page_fault_warning(before, after, run_steps, cell.malloc),
            steadiness_warning(timing, paired_ceiling(blocks, protocol.interval_rule)),
            WARNING if any(block.part == SUSPENDED for block in blocks) else "",
            f"loss: the last loss was {last_loss}" if is_lost else "",
        ],
    )
    run = replace(
        run,
        status=timing.status,
        reason=timing.reason,
        warnings=tuple(warnings),
        last_loss=None if is_lost else last_loss,
        warmup_steps=sum(block.steps for block in warm.blocks),
        warmup_s=sum(block.wall_s for block in warm.blocks),
        window_start_s=start_s,
        window_end_s=end_s,
        others_cpu_ratio=used,
        sync_wait_ratio=timing.sync_wait_ratio,
        host_bound=timing.host_bound,
        interval_rule=protocol.interval_rule,
        peak_memory_bytes=int(torch.cuda.max_memory_allocated(cell.device)) if on_cuda else None,
        reserved_memory_bytes=int(torch.cuda.max_memory_reserved(cell.device)) if on_cuda else None,
    )
    return CellMeasurement(run, blocks)


def _workload(cell: Cell) -> Workload:
    workload: Workload = load(factory_of(cell))(cell.model, **hyper_of_cell(cell))
    return workload


def _lay_out(cell: Cell, model: torch.nn.Module) -> None:
    """Put the model into the cell's memory layout."""
    if cell.layout == "channels_last":
        model.to(memory_format=torch.channels_last)


def _step(
    cell: Cell,
    workload: Workload,
    model: Any,
    batches: list[Batch],
    device_type: str,
    schedule: Schedule | None = None,
) -> tuple[Any, Any]:
    """Return the training step, and its optimizer."""
    policy: Precision = PRECISIONS[cell.precision]
    optimizer = optimizer_of(cell.optimizer, workload, model.parameters())
    if schedule is not None:
        return ScheduledStep(schedule, optimizer, batches, device_type), optimizer
    step = TrainingStep(
        model,
        workload.loss,
        optimizer,
        batches,
        device_type,
        autocast=getattr(torch, policy.autocast) if policy.autocast else None,
        scaler=torch.amp.GradScaler(device_type) if policy.scaler else None,
    )
    return step, optimizer


def compile_step(step: Any, clock: Any) -> float:
    """Compile the step's model and run one step; return how long that took.

    What the worker compiled for earlier cells is forgotten first: else a second batch size or another model of the same
    class would be compiled for sizes yet unknown, be run by an earlier cell's graph, or, past a limit, not be compiled.
    Sizes are plain numbers in every graph: one sample and an epoch's last batch get graphs of their own.
    """
    torch.compiler.reset()
    step.model = torch.compile(step.model, dynamic=False)
    start_s = clock.wall_s()
    step()
    clock.synchronize()
    return float(clock.wall_s() - start_s)


def loss_of(step: Any) -> float | None:
    """Return the loss of a step's last run; None on a rank that has none."""
    return None if step.last_loss is None else float(step.last_loss)


def _allocation_retries(device: str) -> int:
    if not device.startswith("cuda"):
        return 0
    return int(torch.cuda.memory_stats(device).get("num_alloc_retries", 0))
