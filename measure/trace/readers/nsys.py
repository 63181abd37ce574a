"""An SQLite export of Nsight Systems as a `Recording`: of 2021 to 2026, whole or trimmed to a few tables.

NVTX ranges of torch's emit_nvtx become calls, those of PyProf give the calls inside their arguments, and ours (the
domain "flopledger") become ranges. Kernels, copies and fills come with their launch: the runtime's or driver's call of
the same process with the same correlation number; of several rows with one number, one is kept. Times are ns since the
session began, one clock for host and device; a process is its number with that of the virtual machine before it.

Not claimed: what a call's dtypes, strides and groups are, since emit_nvtx writes sizes of tensors only; and, of kernels
replayed by a CUDA graph, which calls the graph was captured from (link "graph").
"""

import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from measure.trace.attribution.nesting import Ints
from measure.trace.attribution.recording import Recording, kernels_table, objects
from measure.trace.readers.collectives import collective_of
from measure.trace.readers.json_events import by_launch, launch_rows
from measure.trace.readers.nsys_tables import Tables
from measure.trace.readers.nvtx_ranges import (
    COLUMNS,
    DOMAIN_CREATE,
    PUSH_POP,
    START_END,
    NvtxRanges,
    process_of,
    thread_of,
)
from results.limits import beyond

HOW_TO_RECORD = (
    "record: nsys profile --trace=cuda,nvtx --output=report python train.py, with the training under "
    "torch.autograd.profiler.emit_nvtx(record_shapes=True); then: nsys export --type=sqlite --output=report.sqlite "
    "report.nsys-rep"
)

ACTIVITY = "CUPTI_ACTIVITY_KIND_"
WORKS = {"KERNEL": "kernel", "MEMCPY": "memcpy", "MEMSET": "memset"}

COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
"""CUPTI's number of a copy's kind → from where to where: host, device, array, peer."""


def read(path: str | Path) -> Recording:
    """The recording in an export, not yet attributed.

    Raises ValueError, one line, for what is no whole SQLite file, has no CUPTI tables, or nothing in them.
    """
    tables = None
    try:
        tables = Tables(path, HOW_TO_RECORD)
        return _recording(str(path), tables)
    except sqlite3.OperationalError as error:
        if str(error) != "interrupted":
            raise ValueError(_damaged(path, error)) from error
        raise ValueError(beyond(f"{path}: it takes too long to read", "database_seconds")) from error
    except OverflowError as error:  # a whole number of more than 64 bits, where NumPy's has no more
        raise ValueError(_damaged(path, error)) from error
    except sqlite3.Error as error:
        raise ValueError(_damaged(path, error)) from error
    finally:
        if tables is not None:
            tables.close()


def _damaged(path: str | Path, error: Exception) -> str:
    return f"{path}: the SQLite data are cut or damaged ({error}); {HOW_TO_RECORD}"


def _recording(path: str, tables: Tables) -> Recording:
    if not any(tables.columns(ACTIVITY + kind) for kind in WORKS):
        raise ValueError(f"{path}: no CUPTI tables ({ACTIVITY}KERNEL), so no kernels; {HOW_TO_RECORD}")
    if not any(tables.count(ACTIVITY + kind) for kind in WORKS):
        raise ValueError(f"{path}: its CUPTI tables hold no kernels; {HOW_TO_RECORD}")
    strings = dict(tables.rows("StringIds", ("id", "value")))
    kernels, doubles = _kernels(tables, strings)
    created = tables.rows("NVTX_EVENTS", ("domainId", "text", "textId"), {"eventType": (DOMAIN_CREATE,)})
    domains = {number: text or strings.get(text_id, "") for number, text, text_id in created if number is not None}
    events = NvtxRanges(strings, domains)
    events.take(tables.rows("NVTX_EVENTS", COLUMNS, {"eventType": (PUSH_POP, START_END)}))
    device_end_ns = int((kernels["start_ns"] + kernels["time_ns"]).max())
    end_ns = max(events.last_ns, device_end_ns, int(kernels["launch_end_ns"].max()))
    calls = events.calls(end_ns)
    begins = [row[0] for row in tables.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)) if row[0]]
    target = dict(tables.rows("TARGET_INFO_SYSTEM_ENV", ("name", "value")))
    environment = str(target.get("DeviceEnvironment") or "")
    return Recording(
        source="nsys",
        path=path,
        calls=calls,
        kernels=kernels,
        device_name=_device_name(tables, kernels),
        problems=tuple(_problems(calls, kernels, doubles, events.open)),
        ranges=events.ranges(end_ns),
        rank=_variable(environment, "RANK"),
        world_size=_variable(environment, "WORLD_SIZE"),
        host=str(target.get("Hostname") or ""),
        begin_ns=begins[0] if begins else 0,
    )


def _variable(environment: str, name: str) -> int | None:
    """The number that a variable of the target has. environment: NAME=VALUE, parted by semicolons or zeros."""
    found = re.search(rf"(?:^|[;\0]){name}=(\d{{1,9}})(?:[;\0]|$)", environment)
    return None if found is None else int(found[1])


# --- kernels and launches --------------------------------------------------------------------------------------------


def _kernels(tables: Tables, strings: Mapping[int, str]) -> tuple[pd.DataFrame, int]:
    """Kernels, copies and fills in the order of start, each with its launch; and how many launch rows were dropped."""
    whole = pd.concat([_works(tables, kind, strings) for kind in WORKS], ignore_index=True)
    names = ("correlation", "stream", "device", "process", "start_ns")
    whole = whole.iloc[np.lexsort(tuple(whole[name].to_numpy(np.int64) for name in names))].reset_index(drop=True)
    correlation = whole["correlation"].to_numpy(np.int64)
    rows = _launch_rows(tables, strings, correlation)
    ints = {name: whole.pop(name).to_numpy(np.int64) for name in ("process", "correlation", "start_ns")}
    launched, doubles = by_launch(ints, rows, whole.pop("graph").to_numpy(bool))
    return kernels_table(**{**ints, **launched}, **{name: whole[name].to_numpy() for name in whole.columns}), doubles


def _works(tables: Tables, kind: str, strings: Mapping[int, str]) -> pd.DataFrame:
    """The rows of one table of the device's doings."""
    table = ACTIVITY + kind
    sizes = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
    asked = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId", *sizes)
    named_by = {"KERNEL": ("demangledName", "shortName", "mangledName"), "MEMCPY": ("copyKind",), "MEMSET": ("bytes",)}
    ints, names = tables.ints(table, asked, named_by[kind])
    rows = len(ints["start"])
    texts = [_name(kind, row, strings) for row in names]
    shared = {text: collective_of(text, {}) if kind == "KERNEL" else None for text in set(texts)}
    made: dict[str, Any] = {
        "name": objects(texts),
        "collective": objects([shared[text] for text in texts]),
        "what": np.full(rows, WORKS[kind], object),
        "start_ns": ints["start"],
        "time_ns": np.maximum(ints["end"] - ints["start"], 0),
        "device": ints["deviceId"],
        "stream": ints["streamId"],
        "process": process_of(ints["globalPid"]),
        "correlation": np.where(ints["correlationId"] > 0, ints["correlationId"], -1),
        "graph": ints["graphNodeId"] > 0,
    }
    for column, axes in (("grid", sizes[:3]), ("block", sizes[3:])):
        made[column] = _triples([ints[axis] for axis in axes])
    return pd.DataFrame(made)


def _name(kind: str, row: tuple[Any, ...], strings: Mapping[int, str]) -> str:
    """Of a kernel its demangled name if there is one; of a copy what CUPTI calls its direction."""
    if kind == "MEMSET":
        return "Memset"
    if kind == "MEMCPY":
        return f"Memcpy {COPIES.get(row[0], 'of unknown kind')}"
    for value in row:
        text = value if isinstance(value, str) else strings.get(value)
        if text:
            return text
    return ""


def _triples(axes: list[Ints]) -> NDArray[Any]:
    """Three columns as one of tuples, one object for equal ones; None where the first is not known."""
    known: dict[tuple[int, ...], tuple[int, ...]] = {}
    triples = zip(*(axis.tolist() for axis in axes), strict=True)
    return objects([known.setdefault(triple, triple) if triple[0] >= 0 else None for triple in triples])


def _launch_rows(tables: Tables, strings: Mapping[int, str], correlation: Ints) -> pd.DataFrame:
    """The runtime's and driver's calls with a number that a kernel has."""
    table = ACTIVITY + "RUNTIME"
    found, _ = tables.ints(table, ("start", "end", "globalTid", "correlationId", "nameId"))
    wanted = np.isin(found["correlationId"], correlation) & (found["correlationId"] > 0)
    kept = {name: values[wanted] for name, values in found.items()}
    names = [strings.get(number, "") for number in kept["nameId"].tolist()]
    process, thread = process_of(kept["globalTid"]), thread_of(kept["globalTid"])
    return launch_rows(process, kept["correlationId"], kept["start"], kept["end"], thread, names)


# --- what else it says -----------------------------------------------------------------------------------------------


def _device_name(tables: Tables, kernels: pd.DataFrame) -> str:
    """The names of the devices that ran something; "" where the export does not say."""
    named = {}
    for number, cuda, name in tables.rows("TARGET_INFO_GPU", ("id", "cuDevice", "name")):
        named[number if cuda is None else cuda] = str(name or "")
    ran = (named.get(device, "") for device in sorted(set(kernels["device"].tolist())))
    return ", ".join(dict.fromkeys(name for name in ran if name))


def _problems(calls: pd.DataFrame, kernels: pd.DataFrame, doubles: int, open_ranges: int) -> list[str]:
    problems = []
    processes = kernels.loc[kernels["what"] == "kernel", "process"].nunique()
    if processes > 1:
        problems.append(
            f"{processes} processes had kernels, and are added up here: runners.trace of the folder has each"
        )
    unlaunched = int((kernels["launch_start_ns"] < 0).sum())
    if unlaunched:
        problems.append(f"{unlaunched} of {len(kernels)} kernels, copies and fills have no recorded launch")
    replayed = int((kernels["link"] == "graph").sum())
    if replayed:
        problems.append(
            f"{replayed} kernels were replayed by CUDA graphs: their calls were made when the graph was captured"
        )
    if doubles:
        problems.append(f"{doubles} rows of launches share their correlation number with another: one of each was kept")
    if open_ranges:
        problems.append(f"{open_ranges} ranges have no end: they end with the capture")
    return problems + _missing(calls)


def _missing(calls: pd.DataFrame) -> list[str]:
    """What NVTX ranges do not say of calls."""
    if not len(calls):
        return [f"no NVTX ranges, so no kernel finds its call; {HOW_TO_RECORD}"]
    missing = []
    if not calls["input_shapes"].notna().any():
        missing.append("no shapes: record with emit_nvtx(record_shapes=True)")
    elif not calls["concrete_inputs"].notna().any():
        missing.append("no dtypes and no concrete inputs (emit_nvtx writes none): strides and groups must be inferred")
    if not (calls["sequence_nr"] >= 0).any():
        missing.append("no sequence numbers: no backward call finds its forward call (or nothing was trained)")
    return missing
