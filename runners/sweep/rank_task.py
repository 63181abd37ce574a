"""Runs one rank's part of a cell, inside its worker: joins the group, splits the model, trains, times and records.

`measure_rank` takes a `RankOrder` and returns a `RankMeasurement`. All ranks run the same steps in the same order: the
first rank decides how long each block is, and the others follow. The parent calls `measure_rank` by name, because this
module imports torch and the parent must not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from analysis.devices.precisions import PRECISIONS
from analysis.parallel.rank_grid import RankGrid, parse_plan
from analysis.parallel.rank_trace import stage_starts
from measure.parallel.pipeline import first_microbatch, held_parameters, pipeline_stage, record_steps, split_model
from measure.parallel.rank_trace import RankStep, trace_single
from measure.parallel.real_group import GroupMember, RankGroup, rank_group, rank_mesh
from measure.timing.rank_blocks import END, follow_orders
from measure.timing.stopping import Protocol, step_time_s
from results.records.cell import Ceiling, Cell, Run, Sample
from runners.sweep import cell as sweep_cell
from runners.sweep.findings import CellMeasurement
from runners.sweep.rank_peers import RankOrder
from runners.workers.devices import RankProcess
from workloads.catalogue.base import Batch, Workload

COLLECTIVE_SHARE = 1 / 3
"""Share of the cell's limit for which a collective waits for a rank, but at most LONGEST_COLLECTIVE_S."""

LONGEST_COLLECTIVE_S = 300.0

RECORDED_STEPS = (2, 5)
"""Least and most steps under the profiler, after one step that is not kept."""


@dataclass(frozen=True)
class RankMeasurement:
    """A rank's measurement. measured: the rank's blocks and findings. held_parameters: number of parameter elements on
    this rank. recording: the profiler's file. steps_before: number of this model's steps before the recorded ones.
    Recorded steps are numbered from 0."""

    measured: CellMeasurement
    held_parameters: int
    recording: bytes
    steps_before: int


def measure_rank(order: RankOrder, process: RankProcess, device: str, number: int) -> RankMeasurement:
    """Measure one rank's part of a cell. number: of the order. Raises ValueError for sizes or a plan that the model
    does not take, RuntimeError if another rank is gone or hangs."""
    cell, protocol = order.arguments
    timeout_s = min(LONGEST_COLLECTIVE_S, COLLECTIVE_SHARE * order.timeout_s)
    prefix = f"flopledger/cell{number}"
    member = GroupMember(process.rank, order.ranks, device, process.address, prefix, timeout_s, process.is_single_host)
    grid = parse_plan(cell.parallel)
    shard = grid.coordinates(member.rank).dp
    own_cell = replace(cell, batch_size=cell.batch_size // grid.dp, device=member.device)
    if member.device.startswith("cuda"):
        torch.cuda.set_device(torch.device(member.device))
    if grid.pp > 1:
        protocol = replace(protocol, phase_blocks=0)  # passes of different samples take turns
    whole: list[int] = []
    with rank_group(member) as group:

        def split(workload: Workload, model: torch.nn.Module, few: list[Batch]) -> Any:
            whole.append(sum(parameter.numel() for parameter in model.parameters()))
            if grid.pp > 1:
                return _stage(own_cell, workload, model, few, grid)
            if grid.world > 1:
                model = split_model(model, grid, rank_mesh(grid, torch.device(own_cell.device)))
            return model, few, None

        prepared = sweep_cell.prepare(own_cell, split, shard)
        ahead = int(grid.tp * grid.pp > 1)  # in its first step torch asks for shapes
        run_before = replace(sweep_cell.first_step(own_cell, prepared, ahead), parameters=whole[0])
        measured = _measurement(own_cell, prepared, protocol, run_before, group)
        before = ahead + steps_run(measured.blocks, protocol)
        recording = _recording(prepared, protocol, measured.blocks, group)
        held = held_parameters(prepared.model)
    after, wrong = sweep_cell.flags_of(own_cell, "after")
    if wrong:
        raise ValueError(wrong)
    run = replace(
        measured.run,
        flags_after=after,
        items_per_step=None if run_before.items_per_step is None else run_before.items_per_step * grid.dp,
    )
    return RankMeasurement(replace(measured, run=run), held, recording, before)


def rank_ceilings(order: RankOrder, _process: RankProcess, device: str, _number: int) -> list[Ceiling]:
    """Measure the ceilings of single kernels on this rank's device while all ranks run them."""
    session, precision, budget_s, malloc = order.arguments
    return sweep_cell.ceilings(session, device, precision, budget_s, malloc)


def _stage(
    cell: Cell, workload: Workload, model: torch.nn.Module, few: list[Batch], grid: RankGrid
) -> tuple[torch.nn.Module, list[Batch], sweep_cell.Schedule]:
    """Build this rank's stage of a pipeline. Raises ValueError for a model or a precision that it does not take."""
    policy = PRECISIONS[cell.precision]
    if policy.scaler:
        raise ValueError(f"pp={grid.pp}: expected a precision without scaled gradients, got {cell.precision}")
    target = few[0].target
    if not (target is None or isinstance(target, torch.Tensor)):
        raise ValueError(
            f"pp={grid.pp}: expected one tensor as target, which micro-batches share, got {type(target).__name__}"
        )
    inputs = few[0].inputs
    part = first_microbatch(inputs, grid.microbatches)
    starts = stage_starts(trace_single(RankStep(lambda: workload.build(**workload.hyper), part)), grid.pp)
    autocast = getattr(torch, policy.autocast) if policy.autocast else None
    device = torch.device(cell.device)
    mesh = rank_mesh(grid, device)
    stage = pipeline_stage(model, inputs, starts, grid, workload.loss, device, autocast, mesh)
    return stage.model, few, stage.run


def _measurement(cell: Cell, prepared: Any, protocol: Protocol, run: Run, group: RankGroup) -> CellMeasurement:
    """Return this rank's blocks and findings."""
    if group.rank == 0:
        measured = sweep_cell.time_cell(cell, prepared.step, prepared.clock, protocol, run, announce=group.announce)
        group.announce(0, END)
        return measured
    blocks = follow_orders(prepared.step, prepared.clock, group.order)
    timed = [block for block in blocks if block.part == "measure"]
    window = (timed[0].start_s, timed[-1].start_s + timed[-1].wall_s) if timed else (None, None)
    run = replace(
        run,
        status="ok",
        window_start_s=window[0],
        window_end_s=window[1],
        peak_memory_bytes=int(torch.cuda.max_memory_allocated(cell.device)) if cell.device.startswith("cuda") else None,
        last_loss=sweep_cell.loss_of(prepared.step),
    )
    return CellMeasurement(run, tuple(blocks))


def steps_run(blocks: Sequence[Sample], protocol: Protocol) -> int:
    """Return the number of steps so far: the first one, those of all blocks, and their lead-in steps."""
    whole = [block for block in blocks if not block.phase]
    split = [block for block in blocks if block.phase == "forward"]
    led_in = sum(block.part != "warmup" for block in whole) + len(split)
    return 1 + sum(block.steps for block in (*whole, *split)) + protocol.lead_in_steps * led_in


def _recording(prepared: Any, protocol: Protocol, blocks: Sequence[Sample], group: RankGroup) -> bytes:
    """Record some more steps of all ranks under the profiler; the first rank decides how many."""
    timed = [block for block in blocks if block.part == "measure"]
    longest_s = max((step_time_s(block) for block in timed), default=protocol.profile_cap_s)
    least, most = RECORDED_STEPS
    count: int = group.share(max(least, min(most, int(protocol.profile_cap_s / longest_s))))
    return record_steps(prepared.step, count, prepared.step.device_type == "cuda")
