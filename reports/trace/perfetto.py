"""Achieved FLOP/s and bound of a recorded profile as tracks of the Chrome trace format, which Perfetto shows.

Timestamps are the recording's own, in µs, so that the events stand beside those of the user's own trace. One counter a
stream: the repaired FLOP of the operation that a kernel belongs to ÷ the time of that operation's kernels, while one of
them runs, else 0. One slice for each such kernel: what bounds it, by the larger of two least times, FLOP ÷ the dense
peak of its unit and the bytes of its recorded inputs ÷ the memory's bandwidth. Outputs are not in the bytes, as
recordings do not keep them, so that an operation said to be bound by arithmetic may be bound by memory.

Kernels without a count have no rate and no bound; a recording without times of day has no tracks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from analysis.devices.peaks import Device
from analysis.operators.traffic import itemsize
from analysis.trace.operations import torch_dtype
from reports.trace.data import NO_STEP_TIME, Trace
from reports.trace.rates import units
from results.records.operations import OperationInstance

PROCESS = 2_000_000_000
"""Number of the process that holds the tracks: beyond any that an operating system gives."""

RATE, SLICES = "achieved FLOP/s", "bound"
_COUNTED = ("kernel", "call")

Event = dict[str, Any]


def perfetto_events(trace: Trace, device: Device | None = None) -> list[Event]:
    """Events of the Chrome trace format, in order of time; [] without a counted kernel that has a time of day.

    device: whose peaks and bandwidth bound; None: there are rates and no bounds.
    """
    by_index = {instance.index: instance for instance in trace.cleaned.instances}
    rates = {index: rate for index, each in by_index.items() if (rate := _rate(each)) is not None}
    bounds = _bounds(trace, device) if device is not None else {}
    kernels = trace.cleaned.kernels
    columns = ("start_ns", "time_ns", "stream", "instance", "what", "fault", "name")
    found: list[Event] = []
    streams: dict[int, int] = {}
    for start_ns, time_ns, stream, instance, what, fault, name in zip(*(kernels[c] for c in columns), strict=True):
        rate = rates.get(int(instance)) if instance == instance and instance is not None else None
        if rate is None or start_ns < 0 or time_ns <= 0 or what not in _COUNTED or fault in NO_STEP_TIME:
            continue
        at = streams.setdefault(int(stream) if stream == stream and stream is not None else -1, len(streams))
        found += _kernel_events(at, int(start_ns), int(time_ns), rate, bounds.get(int(instance)), str(name))
    if not found:
        return []
    return [*_names(streams), *sorted(found, key=lambda event: event["ts"])]


def document(events: Sequence[Event]) -> dict[str, Any]:
    """A file of these tracks alone."""
    return {"displayTimeUnit": "ns", "traceEvents": list(events)}


def _kernel_events(
    at: int, start_ns: int, time_ns: int, rate: float, bound: tuple[str, float] | None, name: str
) -> Iterator[Event]:
    counter = {"ph": "C", "name": f"{RATE}, stream {at}", "pid": PROCESS, "tid": at}
    yield {**counter, "ts": start_ns / 1e3, "args": {"FLOP/s": rate}}
    yield {**counter, "ts": (start_ns + time_ns) / 1e3, "args": {"FLOP/s": 0}}
    if bound is None:
        return
    word, least_ratio = bound
    arguments = {"kernel": name, "achieved_flop_per_s": rate, "least_time_ratio": least_ratio}
    slices = {"ph": "X", "name": word, "cat": SLICES, "pid": PROCESS, "tid": at}
    yield {**slices, "ts": start_ns / 1e3, "dur": time_ns / 1e3, "args": arguments}


def _names(streams: Mapping[int, int]) -> Iterator[Event]:
    """What the tracks are called."""
    yield {"ph": "M", "name": "process_name", "pid": PROCESS, "args": {"name": "flopledger"}}
    for stream, at in streams.items():
        words = f"{SLICES}, stream {stream}" if stream >= 0 else SLICES
        yield {"ph": "M", "name": "thread_name", "pid": PROCESS, "tid": at, "args": {"name": words}}


def _rate(instance: OperationInstance) -> float | None:
    """Repaired FLOP a second of its kernels, on a recording without a device of the host."""
    time_s = instance.kernel_time_s or (instance.host_time_s if not instance.kernels else None)
    return instance.repaired_flop / time_s if instance.repaired_flop and time_s else None


def _bounds(trace: Trace, device: Device) -> dict[int, tuple[str, float]]:
    """Index of an operation → (what bounds it, its least time ÷ the time of its kernels)."""
    found: dict[int, tuple[str, float]] = {}
    unit_by_index = units(trace.cleaned.instances, trace.cleaned.kernels, device)
    for instance in trace.cleaned.instances:
        peak = device.peaks.get(unit_by_index.get(instance.index, ""))
        if not peak or not instance.repaired_flop or not instance.kernel_time_s:
            continue
        least = {"arithmetic": instance.repaired_flop / peak}
        if device.bandwidth_bytes_per_s and (taken := _input_bytes(instance)):
            least["memory"] = taken / device.bandwidth_bytes_per_s
        word = max(least, key=lambda name: least[name])
        found[instance.index] = (word, least[word] / instance.kernel_time_s)
    return found


def _input_bytes(instance: OperationInstance) -> int:
    """Bytes of the recorded tensors that it takes; lists of tensors are not added."""
    taken = 0
    for shape, word in zip(instance.input_shapes, instance.input_dtypes, strict=False):
        dtype = torch_dtype(word)
        if dtype and shape and all(isinstance(size, int) for size in shape):
            taken += prod(shape) * itemsize(dtype)
    return taken
