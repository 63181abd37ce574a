"""Which call of the runtime or driver launched which kernel: by correlation, and by process where it is known.

A correlation number is not unique among launches of real exports: a runtime call and the driver call in it, or the
wrapper of a backtrace, have the same. One of them is kept: one that launches by its name, of these the shortest.

Not claimed: that a number is never used again. Of launches in several processes with one number the last before the
kernel is taken.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from measure.trace.attribution.nesting import Flags, Ints

LAUNCH = re.compile(r"Launch|Memcpy|Memset|memcpy|memset")
"""In the names of calls that put something on a device: cudaLaunchKernel, cuLaunchKernelEx, hipExtModuleLaunchKernel,
cudaGraphLaunch, cudaMemcpyAsync, …"""

GRAPH = re.compile(r"GraphLaunch")
"""In the names of calls that launch all kernels of a graph at once."""


def launch_rows(
    process: Ints, correlation: Ints, start_ns: Ints, end_ns: Ints, thread: Ints, names: Sequence[str]
) -> pd.DataFrame:
    """A table of launches. names: of the calls, which say what they launch."""
    columns: dict[str, Any] = {
        "process": process,
        "correlation": correlation,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "thread": thread,
    }
    for column, pattern in (("launches", LAUNCH), ("graph", GRAPH)):
        known = {name: bool(pattern.search(name)) for name in set(names)}
        columns[column] = np.fromiter((known[name] for name in names), bool, len(names))
    return pd.DataFrame(columns)


def by_launch(kernels: Mapping[str, Ints], rows: pd.DataFrame, graph: Flags) -> tuple[dict[str, Any], int]:
    """The columns of kernels that their launches say, and how many rows of launches were one too many.

    kernels: process, correlation, start_ns. rows: of `launch_rows`. graph: kernels that a graph replays by themselves.
    """
    launches = one_each(rows)
    row = launch_of(launches, kernels["process"], kernels["correlation"], kernels["start_ns"])
    has = row >= 0

    def column(name: str, elsewhere: Any) -> Any:
        values = np.array(np.broadcast_to(elsewhere, row.shape))
        values[has] = launches[name].to_numpy(values.dtype)[row[has]]
        return values

    columns = {
        "process": column("process", kernels["process"]),
        "launch_start_ns": column("start_ns", np.int64(-1)),
        "launch_end_ns": column("end_ns", np.int64(-1)),
        "launch_thread": column("thread", np.int64(-1)),
        "link": np.where((graph | column("graph", False)) & has, "graph", "none"),
    }
    return columns, int((rows["correlation"] >= 0).sum()) - len(launches)


def one_each(launches: pd.DataFrame) -> pd.DataFrame:
    """The launches, one for each (process, correlation), whatever the order of their rows."""
    known = launches[launches["correlation"] >= 0]
    lengths = known["end_ns"] - known["start_ns"]
    ranked = known.assign(rank=~known["launches"].astype(bool), length=lengths)
    ranked = ranked.sort_values(["process", "correlation", "rank", "length", "start_ns"], kind="stable")
    kept = ranked.drop_duplicates(["process", "correlation"])
    return kept.drop(columns=["rank", "length"]).reset_index(drop=True)


def launch_of(launches: pd.DataFrame, process: Ints, correlation: Ints, start_ns: Ints) -> Ints:
    """Row of `one_each(launches)` for each kernel; -1: none. process: -1 where it is not known."""
    of_process = pd.MultiIndex.from_arrays([launches["process"], launches["correlation"]])
    kernels = pd.MultiIndex.from_arrays([process, correlation])
    found = np.asarray(of_process.get_indexer(kernels), np.int64)
    unknown = np.flatnonzero((process < 0) & (correlation >= 0))
    if len(unknown) and len(launches):
        found[unknown] = _nearest_before(launches, correlation[unknown], start_ns[unknown])
    return found


def _nearest_before(launches: pd.DataFrame, correlation: Ints, start_ns: Ints) -> Ints:
    if launches["correlation"].is_unique:
        return np.asarray(pd.Index(launches["correlation"]).get_indexer(pd.Index(correlation)), np.int64)
    order = np.argsort(start_ns, kind="stable")
    left = pd.DataFrame({"correlation": correlation[order], "at": start_ns[order]})
    right = pd.DataFrame(
        {"correlation": launches["correlation"], "at": launches["start_ns"], "row": np.arange(len(launches))}
    ).sort_values("at", kind="stable")
    matched = pd.merge_asof(left, right, on="at", by="correlation")["row"]
    found = np.empty(len(order), np.int64)
    found[order] = matched.fillna(-1).to_numpy(np.int64)
    return found
