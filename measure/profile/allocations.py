"""Measures a training step's allocations: on a CPU by the profiler's memory events, on CUDA by the allocator's history.

`on_cpu` and `on_cuda` take a function that makes the step, run it once so that the optimizer has its state, and measure
the second run. `on_cpu` returns an `AllocationPeak`, and `on_cuda` the allocator's history. The profiler starts before
the model is made, so that every free has its allocation. Measuring changes no order of operations and adds no tensor.
Not claimed: memory that a library takes past torch's allocators (malloc inside oneDNN, a device's context).
"""

import gc
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from measure.operations.tracer import StepParts
from measure.timing.profiler_ranges import noop

STEP = "the measured step"

Make = Callable[[], StepParts]


@dataclass(frozen=True)
class AllocationPeak:
    """A step's peaks. peak_bytes: of all blocks; tensors_bytes: of blocks that outlive the operation that made them."""

    peak_bytes: int
    tensors_bytes: int


def on_cpu(make: Make, names: Collection[str]) -> AllocationPeak:
    """Measure the allocations of the second step on a CPU. names: names of the operations in its trace ("aten.mm")."""
    with memory_profiler() as recording:
        built = run_once(make)
        with record_function(STEP):
            built.step(noop)
    recorded = events(recording)
    (span,) = (event for event in recorded if event.name == STEP)
    wanted = {name.replace("aten.", "aten::", 1) for name in names}
    spans: list[tuple[int, int]] = []  # of the outermost events with these names
    for start, negative_end in sorted((e.start_time_ns, -e.end_time_ns) for e in recorded if e.name in wanted):
        if not spans or start >= spans[-1][1]:
            spans.append((start, -negative_end))
    return attributed(_blocks(recorded), spans, (span.start_time_ns, span.end_time_ns))


def on_cuda(make: Make, device: Any) -> tuple[list[Any], int]:
    """Return (the allocator's history, how many of its entries were there before the second step) on a CUDA device.
    `analysis.footprint.device_memory` reads it."""
    cuda: Any = torch.cuda
    gc.collect()
    cuda.empty_cache()
    cuda.memory._record_memory_history(max_entries=10**7, context="alloc", stacks="all")
    try:
        built = run_once(make)
        cuda.synchronize(device)
        before = len(_history(device))
        built.step(noop)
        cuda.synchronize(device)
        return _history(device), before
    finally:
        cuda.memory._record_memory_history(enabled=None)


def _history(device: Any) -> list[Any]:
    cuda: Any = torch.cuda
    traces: list[list[Any]] = cuda.memory._snapshot(device)["device_traces"]
    return traces[torch.device(device).index or 0]


@dataclass(frozen=True)
class Allocation:
    """One allocation. freed_ns: None if it outlives the recording."""

    allocated_ns: int
    freed_ns: int | None
    nbytes: int


def attributed(blocks: Sequence[Allocation], spans: Sequence[tuple[int, int]], step: tuple[int, int]) -> AllocationPeak:
    """Return the peaks within `step` (start, end). spans: operations that do not overlap, in order of their start.

    A block that the same operation made and freed is not counted in `tensors_bytes`.
    """
    starts = [start for start, _ in spans]
    changes: list[tuple[int, int, int]] = []  # time, bytes, bytes of blocks that one operation made and freed
    for block in blocks:
        index = bisect_right(starts, block.allocated_ns) - 1
        ends = spans[index][1] if index >= 0 else -1
        own = block.freed_ns is not None and block.allocated_ns <= ends and block.freed_ns <= ends
        changes.append((block.allocated_ns, block.nbytes, block.nbytes * own))
        if block.freed_ns is not None:
            changes.append((block.freed_ns, -block.nbytes, -block.nbytes * own))
    live = own_live = peak = tensors = 0
    for time_ns, nbytes, own_bytes in sorted(changes):  # frees come before allocations of the same time
        live, own_live = live + nbytes, own_live + own_bytes
        if step[0] <= time_ns <= step[1]:
            tensors = max(tensors, live - own_live)
            peak = max(peak, live)
    return AllocationPeak(peak, tensors)


def run_once(make: Make) -> StepParts:
    """Return the step, after running it once."""
    built = make()
    built.step(noop)
    return built


def memory_profiler() -> profile:
    """Return a profiler of memory events. Garbage is collected now, so that it is not collected during the step."""
    gc.collect()
    return profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)


def events(recording: profile) -> list[Any]:
    """Return all events of a recording."""
    ended: Any = recording.profiler
    flat, waiting = [], list(ended.kineto_results.experimental_event_tree())
    while waiting:
        flat.append(waiting.pop())
        waiting.extend(flat[-1].children)
    return flat


def _blocks(recorded: Sequence[Any]) -> list[Allocation]:
    """Return every allocation with the free of its address."""
    living: dict[int, tuple[int, int]] = {}
    blocks = []
    memory = [event for event in recorded if event.name == "[memory]"]
    for event in sorted(memory, key=lambda event: event.start_time_ns):
        size, address = event.typed[1].alloc_size, event.typed[1].ptr
        if size > 0:
            living[address] = (event.start_time_ns, size)
        elif address in living:
            allocated_ns, nbytes = living.pop(address)
            blocks.append(Allocation(allocated_ns, event.start_time_ns, nbytes))
    return blocks + [Allocation(allocated_ns, None, nbytes) for allocated_ns, nbytes in living.values()]
