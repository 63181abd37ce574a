"""Reads an SQLite export of Nsight Systems (2021 to 2026, whole or trimmed to a few tables) as a `Recording` (`read`).

NVTX ranges of torch's emit_nvtx become calls, with the arguments of PyProf's range around them; all other ranges stay
ranges. A range that is open when the capture ends gets that end. Kernels, copies and fills come with their launch: the
runtime call of the same process with the same correlation number. Times are ns since the session began. A missing table
has no rows, a missing column is unknown. A view is refused, as it may never end; reading stops after
`database_seconds`, and at values above `event_bytes` (results/text_files.py). Texts are never evaluated. Not claimed:
dtypes, strides and groups of a call (emit_nvtx writes only sizes); calls that launched a CUDA graph's kernels (`link`
is "graph"); that hand-made ranges, which are taken for calls in an export without torch's, are calls.
"""

import json
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from measure.trace.kineto_events import ANNOTATION
from measure.trace.nesting import NODE, OPERATOR
from measure.trace.pyprof_arguments import Arguments, call_name, literal, of_marker, operator
from measure.trace.recording import (
    Recording,
    calls_in_order,
    calls_table,
    collective_of,
    device_names,
    kernels_in_order,
    kernels_table,
    lacks,
    objects,
    ranges_in_order,
    ranges_table,
    sizes_of,
    with_launches,
)
from results.text_files import beyond, check_regular, limit, unpack

HOW_TO_RECORD = (
    "record: nsys profile --trace=cuda,nvtx --output=report python train.py, with the training under "
    "torch.autograd.profiler.emit_nvtx(record_shapes=True); then: nsys export --type=sqlite --output=report.sqlite "
    "report.nsys-rep"
)

ACTIVITY = "CUPTI_ACTIVITY_KIND_"
ACTIVITY_KINDS = {"KERNEL": "kernel", "MEMCPY": "memcpy", "MEMSET": "memset"}

NAMED_BY = {"KERNEL": ("demangledName", "shortName", "mangledName"), "MEMCPY": ("copyKind",), "MEMSET": ()}
"""Table → columns with the name of what ran; the first that has one is taken."""

COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
"""CUPTI's number of a copy's kind → from where to where: host, device, array, peer."""

MAGIC = b"SQLite format 3\x00"
GZIP = b"\x1f\x8b"

STEPS = 100_000
"""Instructions of SQLite between two looks at the clock."""

EXPECTED = ("NVTX_", "CUPTI_", "StringIds", "TARGET_INFO")
"""Beginnings of the names of tables that are read."""

_VIRTUAL = re.compile(r"\s*CREATE\s+VIRTUAL\b", re.IGNORECASE)


def read(path: str | Path) -> Recording:
    """Return the recording in an export, not yet attributed.

    Raises ValueError, one line, for a file that is not a whole SQLite file, or has no kernels in CUPTI tables.
    """
    try:
        with closing(_connected(path)) as connection:
            return _recording(str(path), Tables(str(path), connection))
    except (sqlite3.Error, OverflowError) as error:  # OverflowError: a whole number of more than 64 bits
        if str(error) == "interrupted":
            raise ValueError(beyond(f"{path}: it takes too long to read", "database_seconds")) from error
        raise ValueError(f"{path}: the SQLite data are cut or damaged ({error}); {HOW_TO_RECORD}") from error


def _connected(path: str | Path) -> sqlite3.Connection:
    """Open the file read-only. Raises ValueError for a file that is not a whole SQLite file."""
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
        raise ValueError(f"{path}: this is not an SQLite file; {HOW_TO_RECORD}")
    page, pages = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
    has_size = head[24:28] == head[92:96]  # otherwise an old SQLite wrote the file, without the number of pages
    if len(head) < 100 or (has_size and size < pages * (65536 if page == 1 else page)):
        raise ValueError(f"{path}: the SQLite file is cut: it is shorter than its first page says; {HOW_TO_RECORD}")
    log = Path(f"{path}-wal")
    # read-only; without a write-ahead log also without locks, which a read-only folder does not allow
    how = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
    connection = sqlite3.connect(":memory:" if packed else f"{Path(path).resolve().as_uri()}?{how}", uri=True)
    if packed:
        connection.deserialize(packed)
    return connection


class Tables:
    """The plain tables of an open file. Raises sqlite3.DatabaseError where pages are damaged."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        """Raise ValueError for a view or a virtual table that has a table's name."""
        self._connection = connection
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
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
                raise ValueError(f"{path}: {name[:60]} is not a plain table, as nsys exports it; {HOW_TO_RECORD}")
            self.columns[name] = {row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')}

    def rows(self, table: str, columns: Sequence[str], unknown: str = "NULL") -> Iterator[Any]:
        """Yield tuples of these columns, `unknown` where a value or the column is missing; in the order of the file."""
        if table in self.columns:
            present = self.columns[table]
            chosen = [f'COALESCE("{name}", {unknown})' if name in present else unknown for name in columns]
            yield from self._connection.execute(f'SELECT {", ".join(chosen)} FROM "{table}"')

    def frame(self, table: str, numbers: Sequence[str], others: Sequence[str] = ()) -> pd.DataFrame:
        """Return columns of whole numbers, -1 where unknown, and columns of other values, None where unknown."""
        values = np.fromiter(self.rows(table, numbers, "-1"), np.dtype((np.int64, len(numbers))))
        frame = pd.DataFrame(values.reshape(-1, len(numbers)), columns=list(numbers), dtype=np.int64)
        columns = zip(*self.rows(table, others), strict=True) if others and len(frame) else ([] for _ in others)
        return frame.assign(**{name: objects(list(column)) for name, column in zip(others, columns, strict=True)})


def _recording(path: str, tables: Tables) -> Recording:
    if not any(ACTIVITY + kind in tables.columns for kind in ACTIVITY_KINDS):
        raise ValueError(f"{path}: no CUPTI tables ({ACTIVITY}KERNEL), so no kernels; {HOW_TO_RECORD}")
    strings = dict(tables.rows("StringIds", ("id", "value")))
    kernels = pd.concat([_activities(tables, kind, strings) for kind in ACTIVITY_KINDS], ignore_index=True)
    if not len(kernels):
        raise ValueError(f"{path}: its CUPTI tables hold no kernels; {HOW_TO_RECORD}")
    runtime = tables.frame(ACTIVITY + "RUNTIME", ("start", "end", "globalTid", "correlationId", "nameId"))
    runtime = runtime[runtime["correlationId"].isin(kernels["correlation"]) & (runtime["correlationId"] > 0)]
    launches = runtime.rename(columns={"correlationId": "correlation", "start": "start_ns"}).assign(
        name=[strings.get(number, "") for number in runtime["nameId"].tolist()],
        time_ns=runtime["end"] - runtime["start"],
        **_process_and_thread(runtime["globalTid"]),
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
    """Return the number in a variable of the target; None if there is none. environment: NAME=VALUE, separated by
    semicolons or NULs."""
    value = re.search(rf"(?:^|[;\0]){name}=(\d{{1,9}})(?:[;\0]|$)", environment)
    return None if value is None else int(value[1])


def _activities(tables: Tables, kind: str, strings: Mapping[int, str]) -> pd.DataFrame:
    """Return the rows of one table of device activities."""
    sizes = {"grid": ("gridX", "gridY", "gridZ"), "block": ("blockX", "blockY", "blockZ")}
    numbers = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId")
    rows = tables.frame(ACTIVITY + kind, (*numbers, *sizes["grid"], *sizes["block"]), NAMED_BY[kind])
    if kind == "KERNEL":
        named = rows[[*NAMED_BY[kind]]].itertuples(index=False, name=None)
        names = [next(filter(None, (v if isinstance(v, str) else strings.get(v) for v in row)), "") for row in named]
    else:
        copied = rows["copyKind"] if kind == "MEMCPY" else ()
        names = [f"Memcpy {COPIES.get(number, 'of unknown kind')}" for number in copied] or ["Memset"] * len(rows)
    collectives = {name: collective_of(name, {}) if kind == "KERNEL" else None for name in set(names)}
    columns: dict[str, Any] = {
        "name": objects(names),
        "collective": objects([collectives[name] for name in names]),
        "what": np.full(len(rows), ACTIVITY_KINDS[kind], object),
        "start_ns": rows["start"],
        "time_ns": np.maximum(rows["end"] - rows["start"], 0),
        "device": rows["deviceId"],
        "stream": rows["streamId"],
        "process": _process_and_thread(rows["globalPid"])["process"],
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


# --- NVTX ranges -----------------------------------------------------------------------------------------------------

PUSH_POP, START_END, DOMAIN_CREATE = 59, 60, 75
"""Values of NVTX_EVENTS.eventType."""

THREADS = 1 << 24
"""Number of thread ids in a global id; the higher digits are the process and the virtual machine."""

BARE = ("detach", "detach_")
"""Operators whose ranges are a bare name, which before PyTorch 1.11 nothing else distinguished from hand-made ones."""

CALL, RANGE, COPY, BY_HAND, NOTHING = "call", "range", "copy", "by hand", "nothing"
"""Kinds of ranges: an operator call; any other range; emit_nvtx's copy of one of this project's ranges; a range that
may be made by hand; a marker of PyProf that is not a function."""

SEQUENCE, STASHED, OP_ID = ", seq = ", ", stashed seq=", ", op_id = "
"""Texts that emit_nvtx writes before a number; "stashed" before PyTorch 1.5 (torch/csrc/autograd/profiler_legacy)."""


def parse(text: str) -> tuple[str, int, int, str | None]:
    """Return a range's name, the numbers of its node and its call (-1: none), and its sizes as text (None: none). A
    text in another format is the name."""
    if ", " not in text:
        return text, -1, -1, None
    name, separator, sizes = text.partition(", input_op_ids = ")[0].partition(", sizes = ")
    numbers: dict[str, int] = {}
    for key in (OP_ID, SEQUENCE, STASHED):
        before, is_there, digits = name.rpartition(key)
        if is_there and digits.isdecimal():
            name, numbers[key] = before, int(digits)
    node = numbers.get(SEQUENCE, numbers.get(STASHED, -1))
    return name, node, numbers.get(OP_ID, -1), sizes if separator else None


def _process_and_thread(global_id: pd.Series) -> dict[str, pd.Series]:
    """Return the process (with the virtual machine) and the thread of global ids; -1 for none."""
    numbers = {"process": global_id // THREADS, "thread": global_id % THREADS}
    return {name: values.where(global_id >= 0, -1) for name, values in numbers.items()}


@cache
def parse_sizes(text: str) -> tuple[Any, ...] | None:
    """Read "[[32, 3], []]" → ((32, 3), ()); None for a text that is not a list of sizes."""
    try:
        return sizes_of(json.loads(text))
    except (ValueError, RecursionError):  # no JSON, a number of 5,000 digits, lists within lists
        return None


_Marker = tuple[str, str, Arguments]


def calls_and_ranges(
    events: pd.DataFrame, strings: Mapping[int, str], end_ns: int
) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """Return calls and ranges in the order of start, the outer first, and how many ranges have no end.

    events: start, end, eventType, textId, globalTid, domainId (-1: not recorded), text. strings: the export's table of
    texts. end_ns: when the capture ended; open ranges end then.
    """
    texts = events["text"].where(events["text"].notna(), events["textId"].map(strings).fillna(""))
    created = events["eventType"] == DOMAIN_CREATE
    domains = dict(zip(events["domainId"][created].tolist(), texts[created], strict=True))
    pushed = (events["start"] >= 0) & events["eventType"].isin((PUSH_POP, START_END, -1))
    events, texts = events[pushed], texts[pushed]
    rows = [
        (RANGE, f"{domains.get(domain) or f'domain {domain}'}.{text}" if domain > 0 else text, -1, -1, None, None)
        if domain > 0 or kind == START_END
        else _pushed(text)
        for text, kind, domain in zip(texts, events["eventType"].tolist(), events["domainId"].tolist(), strict=True)
    ]
    end = events["end"].where(events["end"] >= 0, np.maximum(end_ns, events["start"]))
    columns = ("kind", "name", "sequence_nr", "external_id", "input_shapes", "marker")
    parts = zip(*rows, strict=True) if rows else [()] * len(columns)
    classified = pd.DataFrame({name: objects(list(part)) for name, part in zip(columns, parts, strict=True)}).assign(
        start_ns=events["start"].to_numpy(),
        time_ns=(end - events["start"]).clip(lower=0).to_numpy(),
        **{name: values.to_numpy() for name, values in _process_and_thread(events["globalTid"]).items()},
    )
    ranges, calls = classified[classified["kind"] == RANGE], classified[classified["kind"] == CALL]
    copies = classified[(classified["kind"] == COPY) & ~classified["name"].isin(set(ranges["name"]))]
    by_hand = classified[classified["kind"] == BY_HAND]
    ranges = pd.concat([ranges, copies, by_hand if len(calls) else by_hand[:0]])
    calls = calls_table(**_with_arguments(calls if len(calls) else by_hand).drop(columns="kind"))
    ranges = ranges_table(**ranges[["name", "start_ns", "time_ns", "thread", "process"]])
    return calls_in_order(calls), ranges_in_order(ranges), int((events["end"] < 0).sum())


def _pushed(text: str) -> tuple[str, str, int, int, Any, _Marker | None]:
    """Return the kind of a range, its name, the numbers of its node and call, its sizes, and PyProf's marker."""
    if text.startswith("{'"):
        marker = _marker_of(text)
        return (NOTHING, "", -1, -1, None, None) if marker is None else (CALL, marker[1], -1, -1, None, marker)
    name, sequence_nr, op_id, sizes = parse(text)
    kind, name = _kind(name)
    if kind == BY_HAND and (sequence_nr >= 0 or op_id >= 0 or sizes is not None):
        kind = CALL
    return kind, name, sequence_nr, op_id, None if sizes is None else parse_sizes(sizes), None


@cache
def _kind(name: str) -> tuple[str, str]:
    """Return a range's kind by its name, and the name as one object for all equal names."""
    if name.startswith("flopledger."):
        return COPY, name
    if ANNOTATION.match(name):
        return RANGE, name
    is_call = name in BARE or OPERATOR.fullmatch(name) or NODE.fullmatch(name)
    return (CALL if is_call else BY_HAND), name


@cache
def _marker_of(text: str) -> _Marker | None:
    """Return the function that a marker of PyProf names, the name of its call, and its arguments; None for markers of
    other kinds (a place in the program, a module's text)."""
    marker = literal(text)
    if marker is None or not {"op", "args"} <= marker.keys():
        return None
    function = str(marker["op"])
    try:
        return function, call_name(str(marker.get("mod", "")), function), of_marker(marker)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _with_arguments(calls: pd.DataFrame) -> pd.DataFrame:
    """Give each marker's arguments to the call of the same function directly inside it, and drop the marker.

    A marker without such a call is a call itself: PyProf ran without emit_nvtx, or the function has no operator of its
    name. The "_" of an operation in place is ignored: PyProf and torch write it differently.
    """
    calls = calls.sort_values(
        ["process", "thread", "start_ns", "time_ns"], ascending=[True, True, True, False], kind="stable"
    ).reset_index(drop=True)
    markers = calls.pop("marker")
    lane, end = list(zip(calls["process"], calls["thread"], strict=True)), calls["start_ns"] + calls["time_ns"]
    dtypes, values = objects([None] * len(calls)), objects([None] * len(calls))
    shapes, gone = calls["input_shapes"].to_numpy(object).copy(), []
    for row in np.flatnonzero(markers.notna()).tolist():
        (function, _, arguments), inner = markers[row], row + 1
        inside = inner < len(calls) and lane[inner] == lane[row] and end[inner] <= end[row]
        own_name = operator(function).removesuffix("_")
        if inside and calls["name"][inner].partition("::")[2].removesuffix("_") == own_name:
            gone.append(row)
            row = inner
        if shapes[row] is None:
            shapes[row] = arguments.shapes
        dtypes[row], values[row] = arguments.dtypes, arguments.values
    return calls.assign(input_shapes=shapes, input_dtypes=dtypes, concrete_inputs=values).drop(index=gone)
