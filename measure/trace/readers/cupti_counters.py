"""Hardware counters of each kernel, as torch.profiler wrote them with CUPTI's range profiler: a check of counts.

The file is a Kineto trace whose "cuda_profiler_range" events stand for kernels: nine counters each, of scalar floating
point instructions executed (sass_thread_inst_executed_op_{fadd,fmul,ffma,...}). `source_flop` of a kernel is what the
device executed: fadd + fmul + 2 ffma, and the same of doubles; `params` holds all counters.

Instructions of halves are in `params` only: the compiler moves immediates with them, so that kernels without any half
show some. Counters are read between kernels, one after another: the k-th range is the k-th launch. The profiler gave
every range the same share of the time, which is no kernel's time: `time_ns` is 0 then.

Not claimed: FLOP of tensor cores, which are in none of these counters, nor that executed FLOP are the model's.
Winograd and FFT need fewer, padded tiles more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from measure.trace.attribution import Recording, calls_table, kernels_table, ranges_table
from measure.trace.readers import kineto
from measure.trace.readers.json_events import events, to_ns

HOW_TO_RECORD = (
    "record with torch.profiler, in builds for CUDA up to 12.6, and experimental_config=_ExperimentalConfig("
    "profiler_metrics=['smsp__sass_thread_inst_executed_op_ffma_pred_on.sum', and the same of fadd and fmul], "
    "profiler_measure_per_kernel=True)"
)

RANGE = "cuda_profiler_range"
COUNTERS = ("fadd", "fmul", "ffma", "hadd", "hmul", "hfma", "dadd", "dmul", "dfma")
FLOP_OF = {"fadd": 1, "fmul": 1, "ffma": 2, "dadd": 1, "dmul": 1, "dfma": 2}
"""Floating point operations in one instruction of a thread; a multiply-add is two."""

_COUNTER = re.compile(r"thread_inst_executed_op_(\w+?)_pred_on\.sum$")
_LAUNCH = re.compile(r"(?:cuda|cu|hip)(?:Ext)?(?:Module)?Launch(?:Cooperative)?Kernel")


def read(path: str | Path) -> Recording:
    """The recording, not yet attributed; with the operator calls if the trace has them.

    Raises ValueError, one line, for a file without counters, or one that cannot be read to its end.
    """
    header: dict[str, Any] = {}
    ranges: list[dict[str, Any]] = []
    launches: list[dict[str, Any]] = []
    has_calls = False
    for event in events(path, header):
        kind = event.get("cat")
        if kind == RANGE and event.get("ph") == "X":
            ranges.append(event)
        elif _LAUNCH.match(str(event.get("name", ""))) and kineto.CATEGORIES.get(str(kind).lower()) == "launch":
            launches.append(event)
        has_calls = has_calls or kineto.CATEGORIES.get(str(kind).lower()) == "call"
    counted = [_counters(event.get("args") or {}) for event in ranges]
    if not any(counted):
        raise ValueError(f"{path}: no counters of floating point instructions ({RANGE}); {HOW_TO_RECORD}")
    base_ns = int(header.get("baseTimeNanoseconds") or 0)
    whole = kineto.read(path) if has_calls else None
    kernels, problems = _kernels(ranges, counted, launches, base_ns)
    return Recording(
        source="cupti",
        path=str(path),
        calls=calls_table() if whole is None else whole.calls,
        kernels=kernels,
        device_name=_device_name(header, kernels),
        problems=(*problems, *_of_calls(whole)),
        ranges=ranges_table() if whole is None else whole.ranges,
    )


def hardware_flop(counters: Mapping[str, int]) -> int | None:
    """Floating point operations of single and double precision by the counters; None if a counter is missing.

    A multiply-add is two. Doubles may be missing all together, since few ask for them.
    """
    for kind in ("f", "d"):
        wanted = {f"{kind}{name}" for name in ("add", "mul", "fma")}
        if wanted - counters.keys() and (kind == "f" or wanted & counters.keys()):
            return None
    return sum(times * counters.get(name, 0) for name, times in FLOP_OF.items())


def _counters(args: Mapping[str, Any]) -> dict[str, int]:
    """Short name → value of known counters: "ffma" of smsp__sass_thread_inst_executed_op_ffma_pred_on.sum."""
    found = {}
    for name, value in args.items():
        match = _COUNTER.search(name)
        if match and match[1] in COUNTERS and isinstance(value, int | float):
            found[match[1]] = round(value)
    return {name: found[name] for name in COUNTERS if name in found}


def _kernels(
    ranges: list[dict[str, Any]], counted: list[dict[str, int]], launches: list[dict[str, Any]], base_ns: int
) -> tuple[pd.DataFrame, list[str]]:
    """Kernels in the order in which they ran, each with its launch if there are as many launches as ranges."""
    order = sorted(range(len(ranges)), key=lambda at: to_ns(ranges[at].get("ts")))
    in_order = sorted(launches, key=lambda event: to_ns(event.get("ts")))
    problems = []
    if len(in_order) != len(order):
        problems.append(f"{len(order)} kernels with counters, {len(in_order)} launches: which is whose is not known")
        in_order = []
    times = np.asarray([max(to_ns(ranges[at].get("dur")), 0) for at in order], np.int64)
    if len(times) > 1 and np.ptp(times) <= 1000:  # whole microseconds
        problems.append("no times of kernels: the profiler shared the time out evenly")
        times = np.zeros(len(times), np.int64)
    flop = [hardware_flop(counted[at]) for at in order]
    if any(value is None for value in flop):
        problems.append("not every kernel has the counters fadd, fmul and ffma: no hardware FLOP for those")
    starts = [to_ns(event.get("ts")) + base_ns for event in in_order]
    kernels = kernels_table(
        name=[str(ranges[at].get("name", "")) for at in order],
        start_ns=[to_ns(ranges[at].get("ts")) + base_ns for at in order],
        time_ns=times,
        device=[_number(ranges[at].get("pid")) for at in order],
        source_flop=flop,
        params=[",".join(f"{name}={value}" for name, value in counted[at].items()) for at in order],
        **_launched(in_order, starts),
    )
    return kernels, problems


def _launched(launches: list[dict[str, Any]], starts: list[int]) -> dict[str, list[int]]:
    if not launches:
        return {}
    ends = [start + max(to_ns(event.get("dur")), 0) for start, event in zip(starts, launches, strict=True)]
    return {
        "process": [_number(event.get("pid")) for event in launches],
        "correlation": [_number((event.get("args") or {}).get("correlation")) for event in launches],
        "launch_start_ns": starts,
        "launch_end_ns": ends,
        "launch_thread": [_number(event.get("tid")) for event in launches],
    }


def _device_name(header: Mapping[str, Any], kernels: pd.DataFrame) -> str:
    listed = header.get("deviceProperties")
    named = {each.get("id"): str(each.get("name", "")) for each in listed or () if isinstance(each, dict)}
    ran = (named.get(device, "") for device in sorted(set(kernels["device"].tolist())))
    return ", ".join(dict.fromkeys(name for name in ran if name))


def _of_calls(whole: Recording | None) -> tuple[str, ...]:
    if whole is None:
        return ("no operator calls in the file",)
    return tuple(problem for problem in whole.problems if not problem.startswith("no kernels"))


def _number(value: Any) -> int:
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return value if type(value) is int else -1
