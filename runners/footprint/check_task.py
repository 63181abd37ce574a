"""What `benchmarks.pages.footprint` asks of a worker: one step predicted, measured, and tracked by torch's MemTracker.

A task that `launch.Worker` calls by name. torch is imported inside.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from results import one_line
from results.records import FootprintCheck
from runners.footprint.step import StepOptions, parts, trace_batch


def check(asked: StepOptions, batch_size: int, device: str) -> FootprintCheck:
    """Raises what the step raises; MemTracker's own faults are the row's reason."""
    import torch

    from analysis.footprint.step import allowance, footprint, replay, where_there_is_room
    from measure.profiler import allocations

    step = trace_batch(asked, batch_size)
    found = footprint(step.operations, step.storages)
    names = {operation.name for operation in step.operations}
    make = partial(parts, asked, batch_size, None, device)
    row = FootprintCheck(
        model=asked.model,
        batch_size=batch_size,
        precision=asked.precision,
        optimizer=asked.optimizer,
        device=device,
        predicted_bytes=found.at_least_bytes,
        predicted_at=found.peak_at.operation,
        predicted_phase=found.peak_at.phase,
        unknown=len(found.unknown),
    )
    if device == "cpu":
        real = allocations.on_cpu(make, names)
        row = replace(
            row,
            measured_bytes=real.peak_bytes,
            tensors_bytes=real.tensors_bytes,
            own_bytes=real.own_bytes,
            measured_at=real.operation,
        )
    else:
        major, minor = torch.cuda.get_device_capability(device)
        blocks = replay(found.ledger, len(step.operations))
        beside = (
            *allowance(step.operations, "cuda", f"{major}.{minor}"),
            *where_there_is_room(step.operations, found.ledger, "cuda", asked.precision),
        )
        row = replace(
            _on_cuda(row, make, device),
            predicted_allocated_bytes=blocks.allocated_bytes,
            predicted_reserved_bytes=blocks.reserved_bytes,
            predicted_workspace_bytes=sum(each.nbytes for each in beside),
        )
    try:
        tracked, reason = allocations.tracked(make), ""
    except Exception as fault:  # noqa: BLE001  a peer's fault is a row's reason
        tracked, reason = None, one_line(f"MemTracker: {type(fault).__name__}: {fault}", 200)
    return replace(row, tracked_bytes=tracked, reason=reason)


def _on_cuda(row: FootprintCheck, make: Any, device: str) -> FootprintCheck:
    from analysis.footprint.step import rows
    from measure.profiler import on_cuda

    counters, snapshot = on_cuda(make, device)
    index = int(device.partition(":")[2] or 0)
    found = rows(snapshot["device_traces"][index], counters["entries_before"])
    return replace(
        row,
        measured_bytes=counters["allocated_bytes"],
        tensors_bytes=found.tensors_bytes,
        own_bytes=found.workspaces_bytes,
        rounding_bytes=counters["allocated_bytes"] - found.peak_bytes,
        reserved_bytes=counters["reserved_bytes"],
    )
