"""Kernels as any recorder writes them: which call launched each, which collective one is, and what is missing.

A correlation number is not unique among launches of real exports: a runtime call and the driver call in it, or the
wrapper of a backtrace, have the same. One of them is kept: one that launches by its name, of these the shortest. Where
kernels say no process, a number that calls of several processes have is nobody's.

On a device a collective is a kernel of NCCL or RCCL (gpu_user_annotation and host calls repeat it); newer recorders
write its name, sizes and group beside it, of older ones the kernel's name says the kind. Without a device it is the
annotation of the backend's thread ("gloo:all_reduce").

Not claimed: that a correlation number is never used again.
"""

import re
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.trace.calls import named
from measure.trace.nesting import ints

LAUNCH = re.compile(r"Launch|Memcpy|Memset|memcpy|memset")
"""In the names of calls that put something on a device: cudaLaunchKernel, cuLaunchKernelEx, hipExtModuleLaunchKernel,
cudaGraphLaunch, cudaMemcpyAsync, …"""

GRAPH = re.compile(r"GraphLaunch")
"""In the names of calls that launch all kernels of a graph at once."""


def with_launches(kernels: pd.DataFrame, launches: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The kernels with what their launches say, and how many rows of launches were one too many.

    kernels: process (-1: not recorded), correlation, graph (replayed by a graph). launches: name, process, thread,
    correlation, start_ns, time_ns.
    """
    known = launches[launches["correlation"] >= 0]
    ranked = known.assign(other=~named(known["name"], LAUNCH.search)).sort_values(
        ["process", "correlation", "other", "time_ns", "start_ns"], kind="stable"
    )
    best = ranked.drop_duplicates(["process", "correlation"])
    doubles, keys = len(known) - len(best), ["process", "correlation"]
    if (kernels["process"] < 0).all():
        best, keys = best.drop_duplicates("correlation", keep=False), ["correlation"]
    best = best.assign(row=np.arange(len(best)))
    row = kernels[keys].merge(best[[*keys, "row"]], on=keys, how="left")["row"].fillna(-1).to_numpy(np.int64)
    start_ns = np.append(ints(best, "start_ns"), -1)[row]
    by_graph = np.append(named(best["name"], GRAPH.search), False)[row]
    columns = {
        "process": np.where(row >= 0, np.append(ints(best, "process"), -1)[row], ints(kernels, "process")),
        "launch_start_ns": start_ns,
        "launch_end_ns": start_ns + np.append(ints(best, "time_ns"), 0)[row],
        "launch_thread": np.append(ints(best, "thread"), -1)[row],
        "link": np.where((kernels["graph"].to_numpy(bool) | by_graph) & (row >= 0), "graph", "none"),
    }
    return kernels.drop(columns="graph").assign(**columns), doubles


def device_names(kernels: pd.DataFrame, names: Mapping[Any, str]) -> str:
    """The names of the devices that ran something; "" of a recording without kernels, whatever the machine has.

    Kernels may number devices otherwise than the recorder's list of names does: then all must have one name.
    """
    ran = [names.get(device, "") for device in sorted(set(kernels["device"].tolist()))]
    if ran and not any(ran) and len(set(names.values())) == 1:
        ran = list(names.values())
    return ", ".join(dict.fromkeys(filter(None, ran)))


def lacks(
    calls: pd.DataFrame, kernels: pd.DataFrame, doubles: int, no_calls: str, shapes: str, values: str
) -> list[str]:
    """What a recording lacks, in words. no_calls: what it is without calls; shapes: the option that records sizes;
    values: why there are no concrete inputs."""
    problems = []
    unlaunched = int((kernels["launch_start_ns"] < 0).sum())
    if unlaunched:
        problems.append(f"{unlaunched} of {len(kernels)} kernels, copies and fills have no recorded launch")
    if doubles and len(kernels):
        problems.append(f"{doubles} rows of launches share their correlation number with another: one of each was kept")
    if not len(calls):
        return [*problems, no_calls]
    if not calls["input_shapes"].notna().any():
        problems.append(f"no shapes: record with {shapes}")
    elif not calls["concrete_inputs"].notna().any():
        problems.append(f"{values}: strides and groups must be inferred")
    if not (calls["sequence_nr"] >= 0).any():
        problems.append("no sequence numbers: no backward call finds its forward call (or nothing was trained)")
    return problems


KINDS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter", "barrier": "barrier",
    "sendrecv": "send_recv", "send": "send", "recv": "recv",
}  # fmt: skip
"""How names begin, in small letters without anything between, of Kineto's "Collective name", kernels (among old ones
AllReduceRingLLKernel) and annotations → kind. What begins with another is after it."""

NAMED = re.compile(
    r"(?:void )?(?:nccl|rccl|msccl)(?:Symk)?(?:Dev)?(?:Kernel)?_?([A-Za-z]+?)(?:_|\(|<|$)"
    r"|(?:gloo|nccl|mpi|ucc|xccl):([A-Za-z_]+)"
)
"""ncclDevKernel_AllReduce_Sum_f32_RING_LL(…), void ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(…), gloo:all_reduce."""

ON_HOST = re.compile(r"(?:gloo|nccl|mpi|ucc|xccl):[A-Za-z_]+")

DTYPE_BYTES = {
    "double": 8, "float": 4, "half": 2, "bfloat16": 2, "long": 8, "long int": 8, "int": 4, "short": 2, "char": 1,
    "signed char": 1, "byte": 1, "unsigned char": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "c10::half": 2, "c10::bfloat16": 2, "c10::float8_e4m3fn": 1, "c10::float8_e5m2": 1,
}  # fmt: skip


class Collective(NamedTuple):
    """One call; -1 and "" for what is not recorded. ranks: the members; nbytes: that this rank gives."""

    kind: str
    group: str = ""
    group_size: int = -1
    ranks: str = ""
    nbytes: int = -1


def collective_of(name: str, args: Mapping[str, Any], sizes: Any = None, dtypes: Any = None) -> Collective | None:
    """The collective that a kernel or annotation of this name is; None for any other. args: Kineto's; sizes, dtypes: of
    its tensors. A kind that is not known stays as it is."""
    named = NAMED.match(name)
    if named is None:
        return None
    word = str(args.get("Collective name") or named[1] or named[2])
    letters = re.sub(r"[^a-z]", "", word.lower())
    size = args.get("Group size")
    return Collective(
        next((kind for begin, kind in KINDS.items() if letters.startswith(begin)), word),
        str(args.get("Process Group Name", "")),
        size if isinstance(size, int) else -1,
        str(args.get("Process Group Ranks", "")),
        _nbytes(args, sizes, dtypes),
    )


def _nbytes(args: Mapping[str, Any], sizes: Any, dtypes: Any) -> int:
    elements, dtype = args.get("In msg nelems"), str(args.get("dtype", "")).lower()
    if isinstance(elements, int) and dtype in DTYPE_BYTES:
        return elements * DTYPE_BYTES[dtype]
    total = 0
    for shape, kind in zip(sizes or (), dtypes or (), strict=False):
        if shape and (kind.lower() not in DTYPE_BYTES or not all(type(size) is int for size in shape)):
            return -1
        total += prod(shape) * DTYPE_BYTES[kind.lower()] if shape else 0
    return total if sizes and dtypes else -1
