"""Which call of the runtime or driver launched which kernel: by correlation, and by process where it is known.

A correlation number is not unique among launches of real exports: a runtime call and the driver call in it, or the
wrapper of a backtrace, have the same. One of them is kept: one that launches by its name, of these the shortest.

Not claimed: that a number is never used again. Of launches in several processes with one number the last before the
kernel is taken.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from measure.trace.attribution.nesting import Ints

LAUNCH = re.compile(r"Launch|Memcpy|Memset|memcpy|memset")
"""In the names of calls that put something on a device: cudaLaunchKernel, cuLaunchKernelEx, hipExtModuleLaunchKernel,
cudaGraphLaunch, cudaMemcpyAsync, …"""

GRAPH = re.compile(r"GraphLaunch")
"""In the names of calls that launch all kernels of a graph at once."""

LAUNCH_COLUMNS = ("process", "correlation", "start_ns", "end_ns", "thread", "launches", "graph")
"""`launches`, `graph`: whether the name says so."""


def one_each(launches: pd.DataFrame) -> pd.DataFrame:
    """The launches, one for each (process, correlation), whatever the order of their rows."""
    known = launches[launches["correlation"] >= 0]
    lengths = known["end_ns"] - known["start_ns"]
    ranked = known.assign(rank=~known["launches"].astype(bool), length=lengths)
    ranked = ranked.sort_values(["process", "correlation", "rank", "length", "start_ns"], kind="stable")
    kept = ranked.drop_duplicates(["process", "correlation"])
    return kept[list(LAUNCH_COLUMNS)].reset_index(drop=True)


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
