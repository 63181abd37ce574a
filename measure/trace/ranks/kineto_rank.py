"""A rank's Kineto trace as a `Timeline`: kernels, copies, collectives and steps, without calls, shapes and modules.

On a device a collective is a kernel of NCCL or RCCL (gpu_user_annotation and host calls repeat it); newer recorders
write its name, sizes and group beside it, of older ones the kernel's name says the kind. Without a device a collective
is the annotation of the backend's thread ("gloo:all_reduce"), and computing is the operator calls that calculate;
frames of the autograd engine, within which a rank may wait, are left out. A device's step is what was launched within
the host's "ProfilerStep#N" where the launch is recorded, and lasts from its first kernel to the next step's.

Not claimed: that a kernel's time is transfer; it spins until the last member has come.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.ranks.timelines import COLLECTIVE_COLUMNS, STEP_COLUMNS, Timeline
from measure.trace.readers.json_events import to_ns
from measure.trace.readers.kineto import CATEGORIES, LONGEST_S, read_events
from results.names import counted

Ints = NDArray[np.int64]

LATEST_NS = 1 << 61
"""Times and durations below this add up within 64 bits; in ns of the Unix clock it is the year 2043."""

KINDS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter", "barrier": "barrier",
    "sendrecv": "send_recv", "send": "send", "recv": "recv",
}  # fmt: skip
"""How names begin, in small letters without anything between, of Kineto's "Collective name", kernels (among old ones
AllReduceRingLLKernel) and annotations → kind. What begins with another is after it."""

KERNEL = re.compile(r"^(?:void )?(?:nccl|rccl|msccl)(?:Symk)?(?:Dev)?(?:Kernel)?_?([A-Za-z]+?)(?:_|\(|<|$)")
"""ncclDevKernel_AllReduce_Sum_f32_RING_LL(…), void ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(…), …: the kind."""

ANNOTATION = re.compile(r"^(?:gloo|nccl|mpi|ucc|xccl):([A-Za-z_]+)")
STEP = re.compile(r"^ProfilerStep#(\d{1,15})$")

DTYPE_BYTES = {
    "double": 8, "float": 4, "half": 2, "bfloat16": 2, "long": 8, "long int": 8, "int": 4, "short": 2, "char": 1,
    "signed char": 1, "byte": 1, "unsigned char": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "c10::half": 2, "c10::bfloat16": 2, "c10::float8_e4m3fn": 1, "c10::float8_e5m2": 1,
}  # fmt: skip

NOT_COMPUTING = ("autograd::", "torch::autograd", "c10d::", "record_param_comms", "_c10d_functional::", "profiler::")
"""Beginnings of calls on the host within which a rank may wait, or that only start a collective."""


def read_kineto_rank(path: Path) -> Timeline:
    """The timeline in a trace. Raises ValueError, one line, for what is no trace, names no rank or is malformed."""
    found = RankEvents()
    return timeline_of(path, found, read_events(path, found.take))


class RankEvents:
    """What is kept of a trace, event by event; times in ns of the file. launches: correlation → when a kernel was
    launched; device, host: collectives, rows of COLLECTIVE_COLUMNS and `correlation`; untimed: begins of kernels and
    copies without a usable duration."""

    def __init__(self) -> None:
        self.kernels = {name: array("q") for name in ("start", "end", "correlation")}
        self.memory = {name: array("q") for name in ("start", "end")}
        self.calls = {name: array("q") for name in ("start", "end")}
        self.launches: dict[int, int] = {}
        self.steps: list[tuple[int, int, int]] = []
        self.device: list[dict[str, Any]] = []
        self.host: list[dict[str, Any]] = []
        self.untimed: list[int] = []

    def take(self, event: dict[str, Any]) -> None:
        name = event.get("name")
        if event.get("ph") != "X" or not isinstance(name, str):
            return
        what, args = CATEGORIES.get(str(event.get("cat")).lower()), event.get("args") or {}
        if what in ("kernel", "memcpy", "memset") and not 0 <= to_ns(event.get("dur")) <= LONGEST_S * 1e9:
            self.untimed.append(_start(event))
            event = {**event, "dur": 0}
        if what == "kernel":
            self._kernel(name, event, args)
        elif what in ("memcpy", "memset"):
            _add(self.memory, event)
        elif what == "launch":
            if isinstance(correlation := args.get("correlation"), int):
                self.launches[correlation] = _start(event)
        elif what == "range" or (what == "call" and "::" not in name):
            self._annotation(name, event, args)
        elif what == "call" and not name.startswith(NOT_COMPUTING):
            _add(self.calls, event)

    def _kernel(self, name: str, event: dict[str, Any], args: dict[str, Any]) -> None:
        correlation = args.get("correlation")
        correlation = correlation if isinstance(correlation, int) else -1
        kernel = KERNEL.match(name)
        if kernel is None:
            _add(self.kernels, event)
            self.kernels["correlation"].append(correlation)
            return
        kind = kind_of(str(args.get("Collective name") or kernel[1]))
        self.device.append(_row(event, kind, args) | {"correlation": correlation})

    def _annotation(self, name: str, event: dict[str, Any], args: dict[str, Any]) -> None:
        if step := STEP.match(name):
            self.steps.append((int(step[1]), _start(event), _end(event)))
        elif collective := ANNOTATION.match(name):
            self.host.append(_row(event, kind_of(collective[1]), args))


def _add(columns: Mapping[str, array[int]], event: Mapping[str, Any]) -> None:
    columns["start"].append(_start(event))
    columns["end"].append(_end(event))


def _start(event: Mapping[str, Any]) -> int:
    start = to_ns(event.get("ts"))
    if not 0 <= start < LATEST_NS:
        raise ValueError(f"expected a time (ts), got {event.get('ts')!r}")
    return start


def _end(event: Mapping[str, Any]) -> int:
    lasted = max(to_ns(event.get("dur")), 0)
    if lasted >= LATEST_NS:
        raise ValueError(f"expected a duration (dur), got {event.get('dur')!r}")
    return _start(event) + lasted


def kind_of(name: str) -> str:
    """The kind of a collective; a name that is not known stays as it is."""
    letters = re.sub(r"[^a-z]", "", name.lower())
    return next((kind for begin, kind in KINDS.items() if letters.startswith(begin)), name)


def _row(event: Mapping[str, Any], kind: str, args: Mapping[str, Any]) -> dict[str, Any]:
    size = args.get("Group size")
    return {
        "start_ns": _start(event),
        "end_ns": _end(event),
        "kind": kind,
        "group": str(args.get("Process Group Name", "")),
        "group_size": size if isinstance(size, int) else -1,
        "ranks": str(args.get("Process Group Ranks", "")),
        "nbytes": _nbytes(args),
        "step": -1,
    }


def _nbytes(args: Mapping[str, Any]) -> int:
    """Bytes that this rank gives; -1 if sizes or dtype are not recorded."""
    elements, dtype = args.get("In msg nelems"), str(args.get("dtype", "")).lower()
    if isinstance(elements, int) and dtype in DTYPE_BYTES:
        return elements * DTYPE_BYTES[dtype]
    dims, types = args.get("Input Dims"), args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list) or not dims:
        return -1
    total = 0
    for sizes, kind in zip(dims, types, strict=False):
        if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
            return -1
        if sizes and str(kind).lower() not in DTYPE_BYTES:
            return -1
        total += int(np.prod(sizes, dtype=object)) * DTYPE_BYTES.get(str(kind).lower(), 0) if sizes else 0
    return total


def timeline_of(path: Path, found: RankEvents, header: Mapping[str, Any]) -> Timeline:
    """The timeline of these events. header: the facts of a file by Kineto's names. Raises ValueError without a rank."""
    facts = header.get("distributedInfo")
    facts = facts if isinstance(facts, Mapping) else {}
    rank = facts.get("rank")
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
        raise ValueError(
            f"{path}: expected the rank in distributedInfo, as torch.profiler writes it where torch.distributed was "
            "initialized before the recording began, got none"
        )
    base = header.get("baseTimeNanoseconds")
    base_ns = base if isinstance(base, int) and 0 < base < LATEST_NS else 0
    device = bool(len(found.kernels["start"]) or found.device)
    computing = found.kernels if device else found.calls
    collectives = pd.DataFrame(found.device if device else found.host, columns=[*COLLECTIVE_COLUMNS, "correlation"])
    steps = _steps(found, device)
    latest = {max((step[1] for step in steps if step[1] <= at), default=-1) for at in found.untimed}
    timed = [step for step in steps if step[1] not in latest]
    if found.untimed and not timed:
        raise ValueError(
            f"{path}: {counted(len(found.untimed), 'kernel')} or copies have no usable duration, in each step"
        )
    collectives["step"] = _step_of(collectives, steps, found, device)
    size = facts.get("world_size")
    host = header.get("host_name")
    timeline = Timeline(
        rank=rank,
        path=str(path),
        host=host if isinstance(host, str) else "",
        world_size=size if isinstance(size, int) else None,
        device_name=_device_name(header) if device else "",
        device=device,
        untimed=len(found.untimed),
        compute=_spans(computing),
        memory=_spans(found.memory),
        collectives=collectives[list(COLLECTIVE_COLUMNS)].sort_values("start_ns", kind="stable", ignore_index=True),
        steps=pd.DataFrame(timed, columns=list(STEP_COLUMNS)),
    )
    return timeline.later(base_ns) if base_ns else timeline


def _spans(columns: Mapping[str, array[int]]) -> Ints:
    return np.stack([np.array(columns[name], np.int64) for name in ("start", "end")], axis=1)


def _steps(found: RankEvents, device: bool) -> list[tuple[int, int, int]]:
    """(number, start, end) of each step: of a device from its first kernel to that of the next step."""
    host = sorted(found.steps, key=lambda step: step[1])
    if not device or not host:
        return host
    starts = np.array([*found.kernels["start"], *(row["start_ns"] for row in found.device)], np.int64)
    ends = np.array([*found.kernels["end"], *(row["end_ns"] for row in found.device)], np.int64)
    correlations = [*found.kernels["correlation"], *(row["correlation"] for row in found.device)]
    launched = np.array([found.launches.get(each, -1) for each in correlations], np.int64)
    launched = np.where(launched >= 0, launched, starts)
    order = np.argsort(launched)
    places = [(number, *np.searchsorted(launched, (begin, end), sorter=order)) for number, begin, end in host]
    owns = [(number, order[first:last]) for number, first, last in places]
    windows = [(number, int(starts[own].min()), int(ends[own].max())) for number, own in owns if len(own)]
    return [
        (number, begin, windows[place + 1][1] if place + 1 < len(windows) else end)
        for place, (number, begin, end) in enumerate(windows)
    ]


def _step_of(
    collectives: pd.DataFrame, steps: list[tuple[int, int, int]], found: RankEvents, device: bool
) -> list[int]:
    """The step of each collective: the host's, by its launch where that is recorded, else by its start."""
    host = sorted(found.steps, key=lambda step: step[1]) if device else steps
    numbers = []
    for correlation, start in zip(collectives["correlation"], collectives["start_ns"], strict=True):
        at = found.launches.get(int(correlation), int(start)) if device else int(start)
        numbers.append(next((number for number, begin, end in host if begin <= at < end), -1))
    return numbers


def _device_name(header: Mapping[str, Any]) -> str:
    devices = header.get("deviceProperties")
    names = {each.get("name") for each in devices if isinstance(each, Mapping)} if isinstance(devices, list) else set()
    return str(next(iter(names))) if len(names) == 1 else ""
