"""An SQLite export of Nsight Systems as a `Recording`: of 2021 to 2026, whole or trimmed to a few tables.

NVTX ranges of torch's emit_nvtx become calls, those of PyProf give the calls inside their arguments, and ours (the
domain "flopledger") become ranges. Kernels, copies and fills come with their launch: the runtime's or driver's call of
the same process with the same correlation number. Times are ns since the session began, one clock for host and device;
a process is its number with that of the virtual machine before it.

A table that is not there has no rows, and a column that is not there is unknown in every row. A gzipped export, as a
sweep keeps it, is unpacked into memory. A view or a virtual table is a program, which may have no end: only plain
tables are read. What columns calculate is stopped at `database_seconds`, and no value is longer than `event_bytes`
(results/limits.py).

Not claimed: what a call's dtypes, strides and groups are, since emit_nvtx writes sizes of tensors only; and, of kernels
replayed by a CUDA graph, which calls the graph was captured from (link "graph").
"""

import functools
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from measure.trace.kernels import collective_of, device_names, lacks, with_launches
from measure.trace.nvtx_ranges import calls_and_ranges, process_of, thread_of
from measure.trace.recording import Recording, kernels_in_order, kernels_table, objects
from results.text_files import beyond, check_regular, limit, unpack

HOW_TO_RECORD = (
    "record: nsys profile --trace=cuda,nvtx --output=report python train.py, with the training under "
    "torch.autograd.profiler.emit_nvtx(record_shapes=True); then: nsys export --type=sqlite --output=report.sqlite "
    "report.nsys-rep"
)

ACTIVITY = "CUPTI_ACTIVITY_KIND_"
WORKS = {"KERNEL": "kernel", "MEMCPY": "memcpy", "MEMSET": "memset"}

NAMED_BY = {"KERNEL": ("demangledName", "shortName", "mangledName"), "MEMCPY": ("copyKind",), "MEMSET": ()}
"""Columns that name what ran, the first that there is."""

COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
"""CUPTI's number of a copy's kind → from where to where: host, device, array, peer."""

MAGIC = b"SQLite format 3\x00"
GZIP = b"\x1f\x8b"

STEPS = 100_000
"""Instructions of SQLite between two looks at the clock."""

EXPECTED = ("NVTX_", "CUPTI_", "StringIds", "TARGET_INFO")
"""How the names of the tables begin that are read."""

_VIRTUAL = re.compile(r"\s*CREATE\s+VIRTUAL\b", re.IGNORECASE)


def read(path: str | Path) -> Recording:
    """The recording in an export, not yet attributed.

    Raises ValueError, one line, for what is no whole SQLite file, has no CUPTI tables, or nothing in them.
    """
    try:
        with closing(_connected(path)) as connection:
            return _recording(str(path), Tables(str(path), connection))
    except (sqlite3.Error, OverflowError) as error:  # a whole number of more than 64 bits, where NumPy's has no more
        if str(error) == "interrupted":
            raise ValueError(beyond(f"{path}: it takes too long to read", "database_seconds")) from error
        raise ValueError(f"{path}: the SQLite data are cut or damaged ({error}); {HOW_TO_RECORD}") from error


def _connected(path: str | Path) -> sqlite3.Connection:
    """An open file that nobody may change. Raises ValueError for what is no whole SQLite file."""
    try:
        check_regular(path)
        with open(path, "rb") as file:
            head, size = file.read(100), file.seek(0, 2)
        packed = unpack(Path(path).read_bytes()) if head.startswith(GZIP) else b""
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}; {HOW_TO_RECORD}") from error
    if packed:
        head, size = packed[:100], len(packed)
    if not head.startswith(MAGIC):
        raise ValueError(f"{path}: this is no SQLite file; {HOW_TO_RECORD}")
    page, pages = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
    has_size = head[24:28] == head[92:96]  # else an old SQLite wrote the number of pages
    if len(head) < 100 or (has_size and size < pages * (65536 if page == 1 else page)):
        raise ValueError(f"{path}: the SQLite file is cut: it is shorter than its first page says; {HOW_TO_RECORD}")
    log = Path(f"{path}-wal")
    # read only; beside no log of changes also without locks, which a read-only folder does not allow
    how = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
    connection = sqlite3.connect(":memory:" if packed else f"{Path(path).resolve().as_uri()}?{how}", uri=True)
    if packed:
        connection.deserialize(packed)
    return connection


class Tables:
    """The plain tables of an open file. Raises sqlite3.DatabaseError where pages are damaged."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        """Raises ValueError for a view or a virtual table that has a table's name."""
        self._connection = connection
        connection.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limit("event_bytes"))
        end_s = time.monotonic() + limit("database_seconds")
        connection.set_progress_handler(lambda: time.monotonic() > end_s, STEPS)
        self.columns: dict[str, set[str]] = {}
        listed = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'view')")
        for kind, name, sql in listed.fetchall():
            if not str(name).startswith(EXPECTED):
                continue
            if kind == "view" or _VIRTUAL.match(sql or ""):
                raise ValueError(f"{path}: {name[:60]} is no plain table, as nsys exports it; {HOW_TO_RECORD}")
            self.columns[name] = {row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')}

    def rows(self, table: str, columns: Sequence[str], unknown: str = "NULL") -> Iterator[Any]:
        """Tuples of these columns, `unknown` where a value or the column is missing; in the order of the file."""
        if table in self.columns:
            present = self.columns[table]
            chosen = [f'COALESCE("{name}", {unknown})' if name in present else unknown for name in columns]
            yield from self._connection.execute(f'SELECT {", ".join(chosen)} FROM "{table}"')

    def frame(self, table: str, numbers: Sequence[str], others: Sequence[str] = ()) -> pd.DataFrame:
        """Columns of whole numbers, -1 where there is none, and of other values, None where there is none."""
        values = np.fromiter(self.rows(table, numbers, "-1"), np.dtype((np.int64, len(numbers))))
        frame = pd.DataFrame(values.reshape(-1, len(numbers)), columns=list(numbers), dtype=np.int64)
        columns = zip(*self.rows(table, others), strict=True) if others and len(frame) else ([] for _ in others)
        return frame.assign(**{name: objects(list(column)) for name, column in zip(others, columns, strict=True)})


def _recording(path: str, tables: Tables) -> Recording:
    if not any(ACTIVITY + kind in tables.columns for kind in WORKS):
        raise ValueError(f"{path}: no CUPTI tables ({ACTIVITY}KERNEL), so no kernels; {HOW_TO_RECORD}")
    strings = dict(tables.rows("StringIds", ("id", "value")))
    kernels = pd.concat([_works(tables, kind, strings) for kind in WORKS], ignore_index=True)
    if not len(kernels):
        raise ValueError(f"{path}: its CUPTI tables hold no kernels; {HOW_TO_RECORD}")
    calls_made = tables.frame(ACTIVITY + "RUNTIME", ("start", "end", "globalTid", "correlationId", "nameId"))
    calls_made = calls_made[
        calls_made["correlationId"].isin(kernels["correlation"]) & (calls_made["correlationId"] > 0)
    ]
    launches = pd.DataFrame(
        {
            "name": [strings.get(number, "") for number in calls_made["nameId"].tolist()],
            "process": process_of(calls_made["globalTid"]),
            "thread": thread_of(calls_made["globalTid"]),
            "correlation": calls_made["correlationId"],
            "start_ns": calls_made["start"],
            "time_ns": calls_made["end"] - calls_made["start"],
        }
    )
    kernels, doubles = with_launches(kernels, launches)
    kernels = kernels_in_order(kernels_table(**kernels))
    events = tables.frame("NVTX_EVENTS", ("start", "end", "eventType", "textId", "globalTid", "domainId"), ("text",))
    device_end_ns = int((kernels["start_ns"] + kernels["time_ns"]).max())
    end_ns = max(int(events[["start", "end"]].max().max()) if len(events) else 0, device_end_ns)
    calls, ranges, without_end = calls_and_ranges(events, strings, max(end_ns, int(kernels["launch_end_ns"].max())))
    begins = [row[0] for row in tables.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)) if row[0]]
    target = dict(tables.rows("TARGET_INFO_SYSTEM_ENV", ("name", "value")))
    environment = str(target.get("DeviceEnvironment") or "")
    listed = tables.rows("TARGET_INFO_GPU", ("id", "cuDevice", "name"))
    names = {number if cuda is None else cuda: str(name or "") for number, cuda, name in listed}
    return Recording(
        source="nsys",
        path=path,
        calls=calls,
        kernels=kernels,
        device_name=device_names(kernels, names),
        problems=tuple(_problems(calls, kernels, doubles, without_end)),
        ranges=ranges,
        rank=_variable(environment, "RANK"),
        world_size=_variable(environment, "WORLD_SIZE"),
        host=str(target.get("Hostname") or ""),
        begin_ns=begins[0] if begins else 0,
    )


def _variable(environment: str, name: str) -> int | None:
    """The number that a variable of the target has. environment: NAME=VALUE, parted by semicolons or zeros."""
    value = re.search(rf"(?:^|[;\0]){name}=(\d{{1,9}})(?:[;\0]|$)", environment)
    return None if value is None else int(value[1])


def _works(tables: Tables, kind: str, strings: Mapping[int, str]) -> pd.DataFrame:
    """The rows of one table of the device's doings."""
    sizes = {"grid": ("gridX", "gridY", "gridZ"), "block": ("blockX", "blockY", "blockZ")}
    numbers = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId")
    rows = tables.frame(ACTIVITY + kind, (*numbers, *sizes["grid"], *sizes["block"]), NAMED_BY[kind])
    named = rows[[*NAMED_BY[kind]]].itertuples(index=False, name=None) if kind == "KERNEL" else ()
    if kind == "KERNEL":
        names = [next(filter(None, (v if isinstance(v, str) else strings.get(v) for v in row)), "") for row in named]
    elif kind == "MEMCPY":
        names = [f"Memcpy {COPIES.get(number, 'of unknown kind')}" for number in rows["copyKind"]]
    else:
        names = ["Memset"] * len(rows)
    collectives = {name: collective_of(name, {}) if kind == "KERNEL" else None for name in set(names)}
    columns: dict[str, Any] = {
        "name": objects(names),
        "collective": objects([collectives[name] for name in names]),
        "what": np.full(len(rows), WORKS[kind], object),
        "start_ns": rows["start"],
        "time_ns": np.maximum(rows["end"] - rows["start"], 0),
        "device": rows["deviceId"],
        "stream": rows["streamId"],
        "process": process_of(rows["globalPid"]),
        "correlation": np.where(rows["correlationId"] > 0, rows["correlationId"], -1),
        "graph": rows["graphNodeId"] > 0,
    }
    for column, axes in sizes.items():
        known: dict[tuple[int, ...], tuple[int, ...]] = {}  # one object for equal sizes
        triples = rows[[*axes]].itertuples(index=False, name=None)
        columns[column] = objects([known.setdefault(axis, axis) if axis[0] >= 0 else None for axis in triples])
    return pd.DataFrame(columns)


def _problems(calls: pd.DataFrame, kernels: pd.DataFrame, doubles: int, without_end: int) -> Iterator[str]:
    processes = kernels.loc[kernels["what"] == "kernel", "process"].nunique()
    if processes > 1:
        yield f"{processes} processes had kernels, and are added up here: runners.trace of the folder has each"
    replayed = int((kernels["link"] == "graph").sum())
    if replayed:
        yield f"{replayed} kernels were replayed by CUDA graphs: their calls were made when the graph was captured"
    if without_end:
        yield f"{without_end} ranges have no end: they end with the capture"
    no_calls = f"no NVTX ranges, so no kernel finds its call; {HOW_TO_RECORD}"
    no_values = "no dtypes and no concrete inputs (emit_nvtx writes none)"
    yield from lacks(calls, kernels, doubles, no_calls, "emit_nvtx(record_shapes=True)", no_values)
