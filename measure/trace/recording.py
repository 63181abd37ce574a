"""Holds one profiler's recording in memory, whichever profiler made it: readers return it, and `attribute` fills it in.

A `Recording` has tables of `calls` (operator calls, frames of autograd) and `kernels` (what ran on the device). It also
has tables of `ranges` (other named host intervals) and `flows` (arrows from forward to backward calls). Events are rows
of tables, not objects, since a trace of 1 GB holds millions. A whole number that is unknown is -1 in every column
(`forward_thread`: 0); other unknown values are None. Times are ns of the recording's own clock. A reader leaves the
columns `parent`, `phase`, `module`, `forward_index`, `call` and `link` at their defaults, and `attribute` fills them
in. Values that a reader fills in (the phases of a PyProf file) stay. Not claimed: that two recorders number threads in
the same way; that a correlation number is used once.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.trace.calls import Missing, named
from measure.trace.nesting import ints

CALL_COLUMNS: Mapping[str, Any] = {
    "index": -1,
    "parent": -1,  # index of the call around it
    "name": "",
    "phase": "",  # forward, loss, backward, recompute, optimizer; empty: outside of all
    "module": "",
    "step": -1,  # the recorder's number of the training step
    "sequence_nr": -1,
    "forward_thread": 0,  # of a backward call: thread of its forward call, by a number that need not be in `thread`
    "thread": -1,
    "process": -1,
    "start_ns": -1,
    "time_ns": 0,
    "input_shapes": None,  # tuples, one entry an argument, as in results.records.counts.ProfiledOperation
    "input_dtypes": None,
    "concrete_inputs": None,
    "external_id": -1,
    "lost_kernels": 0,  # number of kernels that it launched and that were not recorded
    "forward_index": -1,  # of a call in the backward pass: index of the call whose gradient it calculates
}
"""Column of `calls` → its value where unknown. Columns of text and None have objects, those of numbers int64.

A row is an operator call or a frame of autograd's engine ("aten::conv2d", "autograd::engine::evaluate_function: …",
"ConvolutionBackward0"). Rows are in the order of start, the outer first.
"""

KERNEL_COLUMNS: Mapping[str, Any] = {
    "index": -1,
    "name": "",
    "what": "kernel",  # memcpy, memset; call: the operator call itself, on a machine without a device
    "start_ns": -1,
    "time_ns": 0,
    "untimed": 0,  # 1: the recorded duration is missing, negative, infinite or longer than a day; time_ns is then 0
    "device": -1,
    "stream": -1,
    "process": -1,
    "correlation": -1,
    "launch_start_ns": -1,
    "launch_end_ns": -1,
    "launch_thread": -1,
    "grid": None,  # three whole numbers
    "block": None,
    "call": -1,  # index of the innermost call that launched it
    "link": "none",  # how `call` was found: containment (by time), graph (of a CUDA graph), sequence (by PyProf)
    "phase": "",
    "module": "",
    "source_flop": None,  # the FLOP that the recording has for it
    "params": None,  # the recording's own text of sizes (PyProf)
    "collective": None,  # a Collective
}
"""Column of `kernels`, everything that ran on the device, in the order of start."""

RANGE_COLUMNS: Mapping[str, Any] = {
    "name": "",
    "thread": -1,
    "process": -1,
    "start_ns": -1,
    "time_ns": 0,
    "collective": None,
}
"""Column of `ranges`, named host intervals that are not calls: annotations ("flopledger.forward",
"flopledger.module.layer1.0", "ProfilerStep#3", "Optimizer.step#SGD.step") and frames of modules ("nn.Module:
Conv2d_3"). NVTX ranges of the domain "flopledger" come as "flopledger.NAME"."""

FLOW_COLUMNS: Mapping[str, Any] = {
    "forward_thread": -1,
    "forward_process": -1,
    "forward_ns": -1,
    "backward_thread": -1,
    "backward_process": -1,
    "backward_ns": -1,
}
"""Column of `flows`, the recorder's arrows from a forward call to its backward call, each with the start of both."""

LAUNCH_COLUMNS: Mapping[str, Any] = {"process": -1, "thread": -1, "start_ns": -1}
GAP_COLUMNS: Mapping[str, Any] = {
    "count": 0,  # of numbered events that are missing
    "before_ns": -1,  # between these two times, as far as is known
    "after_ns": -1,
}


def table(columns: Mapping[str, Any], /, **values: Any) -> pd.DataFrame:
    """Return a table with exactly these columns: `values` where given, otherwise the column's value for unknown.

    `index` counts rows if it is not given. Raises ValueError for values of different lengths.
    """
    rows = len(next(iter(values.values()), ()))
    filled = {name: _column(values.get(name), unknown, rows) for name, unknown in columns.items()}
    if "index" in filled and "index" not in values:
        filled["index"] = np.arange(rows, dtype=np.int64)
    return pd.DataFrame(filled, copy=False)


def _column(values: Any, unknown: Any, rows: int) -> Any:
    if isinstance(unknown, int):
        return np.full(rows, unknown, np.int64) if values is None else np.asarray(values, np.int64)
    if isinstance(values, pd.Series):
        return values.to_numpy(object)
    return objects([unknown] * rows if values is None else list(values))


def objects(values: list[Any]) -> NDArray[Any]:
    """Return a column that holds lists and tuples as they are."""
    column = np.empty(len(values), object)
    column[:] = values
    return column


def sizes_of(value: Any) -> tuple[Any, ...]:
    """Return lists of integers from 0, as a recorder writes sizes, as tuples. Raises ValueError for anything else,
    which would give a wrong count: a text would count its characters, a negative size negative FLOP."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected sizes in a list, got {str(value)[:40]!r}")
    for item in value:
        if not (isinstance(item, list | tuple) or (type(item) is int and 0 <= item < 2**63)):
            raise ValueError(f"expected sizes from 0 on, got {str(item)[:40]!r}")
    return tuple([sizes_of(item) if isinstance(item, list | tuple) else item for item in value])


calls_table = partial(table, CALL_COLUMNS)
kernels_table = partial(table, KERNEL_COLUMNS)
ranges_table = partial(table, RANGE_COLUMNS)
flows_table = partial(table, FLOW_COLUMNS)
gaps_table = partial(table, GAP_COLUMNS)


def calls_in_order(calls: pd.DataFrame) -> pd.DataFrame:
    """Return the calls in the order of start, the outer first, with a new `index`."""
    names = pd.factorize(calls["name"], sort=True)[0]
    keys = calls[["sequence_nr", "thread", "process", "external_id"]].to_numpy(np.int64).T
    # lexsort's last key is the first criterion. Of calls that start in the same nanosecond the longer one is around the
    # others; the rest of the keys only make the order independent of that of the rows.
    return _numbered(calls.iloc[np.lexsort((names, *keys, -calls["time_ns"], calls["start_ns"]))])


def kernels_in_order(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels in the order of start, with a new `index`."""
    names = ["index", "process", "correlation", "stream", "device", "start_ns"]
    return _numbered(kernels.iloc[np.lexsort(kernels[names].to_numpy(np.int64).T)])


def ranges_in_order(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the ranges by start, the outer first."""
    return ranges.sort_values(["start_ns", "time_ns", "name"], ascending=[True, False, True], ignore_index=True)


def _numbered(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.reset_index(drop=True).assign(index=np.arange(len(rows), dtype=np.int64))


@dataclass(frozen=True)
class Recording:
    """The content of one file.

    problems: missing data, in words. steps: number of training steps; None: the reader found none (`attribute` fills
    it in). gaps: gaps in the recorder's numbers of events. missing: signs of missing calls, which `attribute` finds.
    ends: whether the file has the end that its recorder writes; True for a recorder that writes none. lost_launches:
    launches whose kernels were not recorded. numbered: whether the recorder numbered all calls, so that `gaps` or
    `missing` have each call that is missing before the last one. end_ns: when the recorder stopped; -1: not recorded.
    rank, world_size: None: not recorded. host: name of the machine. begin_ns: Unix time in ns at which the recording's
    clock was 0; 0: the clock is Unix time, or unknown.
    """

    source: str  # the recorder: kineto, nsys, pyprof
    path: str
    calls: pd.DataFrame
    kernels: pd.DataFrame
    steps: int | None = None
    device_name: str = ""
    problems: tuple[str, ...] = ()
    ranges: pd.DataFrame = field(default_factory=ranges_table)
    flows: pd.DataFrame = field(default_factory=flows_table)
    gaps: pd.DataFrame = field(default_factory=gaps_table)
    missing: tuple[Missing, ...] = ()
    ends: bool = True
    numbered: bool = False
    end_ns: int = -1
    lost_launches: pd.DataFrame = field(default_factory=partial(table, LAUNCH_COLUMNS))
    rank: int | None = None
    world_size: int | None = None
    host: str = ""
    begin_ns: int = 0


def of_process(recording: Recording, process: int) -> Recording:
    """Return one process's part of a recording that is not yet attributed."""

    def own(rows: pd.DataFrame, column: str = "process") -> pd.DataFrame:
        return rows[rows[column] == process].reset_index(drop=True)

    return replace(
        recording,
        calls=_numbered(own(recording.calls)),
        kernels=_numbered(own(recording.kernels)),
        ranges=own(recording.ranges),
        flows=own(recording.flows, "forward_process"),
        lost_launches=own(recording.lost_launches),
    )


LAUNCH = re.compile(r"Launch|Memcpy|Memset|memcpy|memset")
"""Found in names of calls that start work on a device: cudaLaunchKernel, cuLaunchKernelEx, hipExtModuleLaunchKernel,
cudaGraphLaunch, cudaMemcpyAsync, …"""

GRAPH = re.compile(r"GraphLaunch")
"""Found in names of calls that launch all kernels of a graph at once."""


def with_launches(kernels: pd.DataFrame, launches: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return the kernels with the times and threads of their launches, and the number of duplicate launches left out.

    A correlation number is not unique among launches of real exports: a runtime call and the driver call in it, or the
    wrapper of a backtrace, have the same. One of them is kept: the shortest of those whose name is that of a launch.
    Where kernels have no process, a number that launches of several processes share belongs to no kernel.

    kernels: process (-1: not recorded), correlation, graph (replayed by a graph). launches: name, process, thread,
    correlation, start_ns, time_ns.
    """
    known = launches[launches["correlation"] >= 0]
    ranked = known.assign(is_wrapper=~named(known["name"], LAUNCH.search)).sort_values(
        ["process", "correlation", "is_wrapper", "time_ns", "start_ns"], kind="stable"
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
    """Return the names of the devices that ran kernels; "" without kernels, whatever devices the machine has.

    If kernels number devices in another way than the recorder's list of names, the name is known only if all devices
    have the same.
    """
    ran = [names.get(device, "") for device in sorted(set(kernels["device"].tolist()))]
    if ran and not any(ran) and len(set(names.values())) == 1:
        ran = list(names.values())
    return ", ".join(dict.fromkeys(filter(None, ran)))


def lacks(
    calls: pd.DataFrame, kernels: pd.DataFrame, doubles: int, no_calls: str, shapes: str, values: str
) -> list[str]:
    """Return the problems of a recording, in words. doubles: of `with_launches`. no_calls: the text for a recording
    without calls; shapes: the option that records sizes; values: why there are no concrete inputs."""
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
"""Beginning of a name, its letters in lower case → kind, for Kineto's "Collective name", kernels (also old ones, as
AllReduceRingLLKernel) and annotations. A longer beginning comes before a shorter one that it contains."""

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
    """One collective call; -1 and "" where not recorded. ranks: the members; nbytes: contributed by this rank."""

    kind: str
    group: str = ""
    group_size: int = -1
    ranks: str = ""
    nbytes: int = -1


def collective_of(name: str, args: Mapping[str, Any], sizes: Any = None, dtypes: Any = None) -> Collective | None:
    """Return the collective of a kernel or annotation with this name; None if it is not a collective. args: of Kineto's
    event; sizes, dtypes: of its tensors. An unknown kind of collective keeps its name.

    On a device a collective is a kernel of NCCL or RCCL (gpu_user_annotation and host calls repeat it); newer recorders
    add its name, sizes and group. Without a device it is an annotation of the backend's thread ("gloo:all_reduce").
    """
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
