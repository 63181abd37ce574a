"""What a worker does for one side of a comparison: prepare the cell once, then one block of steps whenever it is asked.

A process lives for one pair of processes, so that what it keeps (flags, compiled code, memory) is this side's alone.
While the other side's block runs it waits for a message, and takes no processor.
"""

from __future__ import annotations

import contextlib
import gc
import math
from dataclasses import dataclass, field, replace
from typing import Any

from results.records import Cell, Sample
from runners.sweep.cell import Prepared, compile_step, executed_flop, prepare
from runners.sweep.findings import CellFindings

LEAD_IN_STEPS = 1
"""Untimed steps before a block: the other side's block has emptied the caches."""


@dataclass(frozen=True)
class SideStart:
    """What a side says once it is warm. steps: of a block, as its own warm-up asks for. steady: as `WarmUp` has it."""

    warmup: tuple[Sample, ...]
    steps: int
    steady: bool
    findings: CellFindings


@dataclass(frozen=True)
class SideEnd:
    """What a side says at its end."""

    findings: CellFindings
    suspended: tuple[Sample, ...]
    wrong: str = ""  # flags that are not what was set


@dataclass
class _Side:
    """What this process trains."""

    cell: Cell
    made: Prepared
    timer: Any
    held: contextlib.ExitStack
    others: list[tuple[float, float]] = field(default_factory=list)  # seconds, share of the processors


_LIVE: list[_Side] = []
"""One at most."""


def begin(cell: Cell, protocol: Any, first: bool) -> SideStart:
    """Prepares and warms up. first: also traces a real step, once for each side of a cell."""
    import torch

    from measure.operations import trace_step
    from measure.timing import BlockTimer, collector_off, steps_for, warm_up

    made = prepare(cell)
    found = CellFindings(
        flags_before=made.flags,
        items_per_step=made.workload.items(made.workload.hyper, cell.batch_size),
        parameters=sum(parameter.numel() for parameter in made.model.parameters()),
    )
    if first:
        inputs = [(batch.inputs, batch.target) for batch in made.few]
        traced = trace_step(made.step, model=made.model, optimizer=made.optimizer, inputs=inputs, steps_before=0)
        found = replace(found, executed=executed_flop(traced), first_loss=float(made.step.last_loss))
        del traced, inputs
    if cell.compile:
        found = replace(found, compile_s=compile_step(made.step, made.clock))
    if cell.device.startswith("cuda"):
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(cell.device)
    warm = warm_up(made.step, made.clock, protocol)
    held = contextlib.ExitStack()
    held.enter_context(collector_off())
    timer = held.enter_context(BlockTimer(made.step, made.clock))
    _LIVE[:] = [_Side(cell, made, timer, held)]
    found = replace(
        found, warmup_steps=sum(each.steps for each in warm.blocks), warmup_s=sum(each.wall_s for each in warm.blocks)
    )
    warmed = sorted((*warm.blocks, *warm.suspended), key=lambda each: each.start_s)
    return SideStart(tuple(warmed), steps_for(protocol.block_s, warm.step_s), warm.steady, found)


def block(steps: int) -> Sample:
    """One timed block. Raises Unavailable where the process is suspended again and again."""
    from measure.device import cpu_contention

    (side,) = _LIVE
    gc.collect()
    others = cpu_contention.Neighbours()
    timed: Sample = side.timer.block(steps, "measure", LEAD_IN_STEPS)
    if (used := others.used_ratio()) is not None:
        side.others.append((timed.wall_s, used))
    return timed


def end() -> SideEnd:
    """What is known at the end of this process."""
    import torch

    from analysis.devices import PRECISIONS
    from measure.device import apply_precision

    (side,) = _LIVE
    side.held.close()
    _LIVE.clear()
    cell, loss = side.cell, float(side.made.step.last_loss)
    on_cuda = cell.device.startswith("cuda")
    flags = apply_precision.read_flags()
    wrong = apply_precision.check(
        flags, PRECISIONS[cell.precision], torch.device(cell.device), cell.cudnn_benchmark, cell.deterministic
    )
    seconds = sum(wall_s for wall_s, _ in side.others)
    found = CellFindings(
        flags_after=flags,
        last_loss=loss if math.isfinite(loss) else None,
        others_cpu_ratio=sum(wall_s * used for wall_s, used in side.others) / seconds if seconds else None,
        peak_memory_bytes=int(torch.cuda.max_memory_allocated(cell.device)) if on_cuda else None,
        reserved_memory_bytes=int(torch.cuda.max_memory_reserved(cell.device)) if on_cuda else None,
    )
    return SideEnd(found, tuple(side.timer.suspended), "; ".join(wrong))
