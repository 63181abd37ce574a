"""The events of a trace file one by one, from a file of any size: JSON, plain or gzip, never whole in memory.

A trace is a list of events, or an object whose "traceEvents" is one. Everything else in the object is the header.
Times are µs with up to three digits after the point, more than a double holds beside today's date: numbers with a point
stay text here (`to_ns` reads both).

Not claimed: that what is read is a trace of a profiler. Bytes that are no UTF-8 become "\ufffd", control characters in
strings pass, since kernels' names hold both.

`gaps` says which of its numbered events a Kineto trace lacks. "External id" counts calls and annotations from 1: in
PyTorch 1.8 to 1.10 all of them, since then in blocks of at least 512 for each thread (torch/csrc/profiler/collection.h,
containers.h: AppendOnlyList). So of each 512 numbers the recorded ones are the first, and all 512 if a later block of
their thread is recorded. "Ev Idx" counts what is exported, thread by thread: between the last call of a thread and the
first of the next no number is left out. Recorders without "Ev Idx" count on in the second recording of a process:
there, the first number may be any. Not claimed: that the last calls of the last thread are there; nothing is numbered
after them. Nor, without "Ev Idx", that the first ones are.

Which call of the runtime or driver launched which kernel: by correlation, and by process where it is known.

A correlation number is not unique among launches of real exports: a runtime call and the driver call in it, or the
wrapper of a backtrace, have the same. One of them is kept: one that launches by its name, of these the shortest.

Not claimed: that a number is never used again. Of launches in several processes with one number the last before the
kernel is taken.
"""

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from measure.trace.attribution.nesting import Flags, Ints
from measure.trace.attribution.recording import gaps_table
from results.limits import BoundedStream, beyond, check_regular, limit

CHUNK = 1 << 20
"""Characters read at a time."""

HOW_TO_RECORD = (
    "record again: torch.profiler.profile(record_shapes=True, with_stack=True) around whole steps, "
    "then export_chrome_trace('trace.json.gz')"
)

MORE = "flopledger.more"
"""Key of the header: whether something follows the document in the file."""

_NO_NUMBER = re.compile(r"(?<=:)\s*-?(?:inf|nan)(?=\s*[,}\]])")
_EVENT = 1 << 16
"""Characters of an event that are looked at for such a value."""

_NEXT = re.compile(r"\}[ \t\r\n]*,[ \t\r\n]*(?=\{)")
"""Between two events, or two objects inside of one."""

Decode = Callable[[str], list[dict[str, Any]]]

_SPACE = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_SCAN: Any = json.JSONDecoder(strict=False, parse_float=str).scan_once  # type: ignore[attr-defined]


def events(path: str | Path, header: dict[str, Any], decode: Decode | None = None) -> Iterator[dict[str, Any]]:
    """Every event in the file's order. `header` gets what the file says beside them, before or after.

    decode: a faster way, which may leave fields out: a list of events as text → the events; none where it is not one.
    Raises ValueError, one line, for a file that is no JSON, has no events, or ends too early.
    """
    with open_text(path) as file:
        try:
            yield from _Document(file, str(path), decode).events(header)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}: the gzip data are cut or damaged ({error}); {HOW_TO_RECORD}") from error


def to_ns(microseconds: int | str | None) -> int:
    """Whole nanoseconds of a time as `events` yields it; -1 if there is none."""
    if not isinstance(microseconds, str):
        return microseconds * 1000 if type(microseconds) is int else -1
    if microseconds[-4:-3] == "." and (digits := microseconds[:-4] + microseconds[-3:]).isdigit():
        return int(digits)
    whole, _, fraction = microseconds.partition(".")
    if "e" in microseconds or "E" in microseconds or not fraction.isdigit():
        return round(float(microseconds) * 1000)
    ns = int(whole) * 1000
    rest = int((fraction + "00")[:3])
    return ns - rest if whole.startswith("-") else ns + rest


def open_text(path: str | Path, newline: str | None = None) -> IO[str]:
    """A text file, plain or gzip. Raises ValueError, one line, for what cannot be opened."""
    try:
        check_regular(path)
        with open(path, "rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        if zipped:
            whole = io.BufferedReader(BoundedStream(gzip.GzipFile(path), str(path)), CHUNK)
            return io.TextIOWrapper(whole, encoding="utf-8-sig", errors="replace", newline=newline)
        return open(path, encoding="utf-8-sig", errors="replace", newline=newline)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error


class _Document:
    """A window on the text that moves forward; `at` is the next character in it."""

    def __init__(self, file: IO[str], name: str, decode: Decode | None) -> None:
        self._file, self._decode = file, decode
        self._name = name
        self._text = ""
        self._at = 0
        self._empty = True

    def events(self, header: dict[str, Any]) -> Iterator[dict[str, Any]]:
        first = self._peek()
        if first == "[":
            yield from self._list()
            self._after(header)
            return
        if first != "{":
            raise ValueError(f"{self._name}: expected a trace (JSON), it begins with {first!r}")
        self._at += 1
        found = False
        while (character := self._peek()) != "}":
            if character == ",":
                self._at += 1
                continue
            key = self._value()
            if self._peek() != ":":
                raise self._broken()
            self._at += 1
            if key == "traceEvents" and self._peek() == "[":
                found = True
                yield from self._list()
            else:
                header[str(key)] = self._value()
        if not found:
            raise ValueError(f"{self._name}: no traceEvents, so no trace of torch.profiler; {HOW_TO_RECORD}")
        self._at += 1
        self._after(header)

    def _after(self, header: dict[str, Any]) -> None:
        """Whether anything follows the document."""
        while not (rest := self._text[self._at :].strip()) and self._more():
            pass
        header[MORE] = bool(rest)

    def _list(self) -> Iterator[dict[str, Any]]:
        self._at += 1
        scan, between = _SCAN, _BETWEEN.match
        while True:
            yield from self._decoded()
            text, at = self._text, self._at
            try:
                while True:
                    at = between(text, at).end()  # type: ignore[union-attr]
                    event, at = scan(text, at)
                    if type(event) is dict:
                        yield event
            except (StopIteration, json.JSONDecodeError):
                self._at = at
            if at < len(self._text) and self._text[at] == "]":
                self._at = at + 1
                return
            if not self._repaired() and not self._read_more():
                raise self._broken()

    def _decoded(self) -> list[dict[str, Any]]:
        """The events of the window but for the last, all at once. An end inside of a text or an object leaves a list
        that is none, so that nothing is taken."""
        ends = [*_NEXT.finditer(self._text, max(self._at, len(self._text) - _EVENT))] if self._decode else []
        found = self._decode(f"[{self._text[self._at : ends[-1].start() + 1]}]") if self._decode and ends else []
        if found:
            self._at = ends[-1].end()
        return found

    def _repaired(self) -> bool:
        """Whether the next event holds `inf` or `nan` as a value, as Kineto wrote it; null takes its place."""
        end = self._at + _EVENT
        event = self._text[self._at : end]
        repaired = _NO_NUMBER.sub("null", event)
        if repaired == event:
            return False
        self._text, self._at = repaired + self._text[end:], 0
        return True

    def _value(self) -> Any:
        """The next value of any kind. It must not end where the window does, since a number could go on."""
        while True:
            self._peek()
            try:
                value, end = _SCAN(self._text, self._at)
            except (StopIteration, json.JSONDecodeError):
                end = len(self._text)
            if end < len(self._text):
                self._at = end
                return value
            if not self._read_more():
                raise self._broken()

    def _peek(self) -> str:
        """The next character that is no space."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                raise self._broken()

    def _read_more(self) -> bool:
        """Reads as much again as has not ended, so that a value of any size is looked at a few times only; False at the
        end of the file. Raises ValueError for a value that is larger than its limit."""
        waiting = len(self._text) - self._at
        if waiting > limit("event_bytes"):
            raise ValueError(beyond(f"{self._name}: a value of the trace is {waiting} characters", "event_bytes"))
        return self._more(max(CHUNK, waiting))

    def _more(self, size: int = 0) -> bool:
        chunk = self._file.read(size or CHUNK)
        self._text = self._text[self._at :] + chunk
        self._at = 0
        self._empty = self._empty and not chunk.strip()
        return bool(chunk)

    def _broken(self) -> ValueError:
        rest = self._text[self._at : self._at + 40]
        if self._empty:
            return ValueError(f"{self._name}: the file is empty; {HOW_TO_RECORD}")
        where = "ends in the middle" if len(self._text) - self._at <= CHUNK else f"is no JSON at {rest!r}"
        return ValueError(f"{self._name}: the trace {where}; {HOW_TO_RECORD}")


BLOCK = 512
"""Numbers of a block, or a divisor of how many there are."""


def is_numbered(events: Mapping[str, Ints]) -> bool:
    """Whether each call and annotation has a number of its own, so that one which is left out leaves a gap. events: as
    of `gaps`."""
    ids = events["external_id"]
    return bool(len(ids)) and bool((ids >= 0).all()) and len(np.unique(ids)) == len(ids)


def gaps(events: Mapping[str, Ints], base_ns: int) -> pd.DataFrame:
    """A row for each gap in the numbers. events: external_id, event_index (-1: none), thread, start_ns of all calls and
    annotations. None if numbers are there twice: then several recordings are in one file."""
    ids, index = events["external_id"], events["event_index"]
    rows = np.flatnonzero(ids >= 0)
    rows = rows[np.argsort(ids[rows], kind="stable")]
    number, thread, start_ns = ids[rows], events["thread"][rows], events["start_ns"][rows] + base_ns
    if not len(rows) or not np.diff(number).all():
        return gaps_table()
    if (index < 0).all():
        number = number - number[0] + 1
    block = (number - 1) // BLOCK
    blocks, first, count = np.unique(block, return_index=True, return_counts=True)
    last = first + count - 1
    latest = pd.Series(block).groupby(thread).max()
    is_full = blocks < latest[thread[last]].to_numpy(np.int64)
    lost = np.where(is_full, BLOCK, number[last] - BLOCK * blocks) - count
    begins, ends = np.minimum.reduceat(start_ns, first), np.maximum.reduceat(start_ns, first)
    inside = gaps_table(count=lost[lost > 0], before_ns=begins[lost > 0], after_ns=ends[lost > 0])
    return pd.concat([inside, _of_threads(events, int((np.diff(number) - 1).sum()), base_ns)], ignore_index=True)


def _of_threads(events: Mapping[str, Ints], most: int, base_ns: int) -> pd.DataFrame:
    """Gaps in the order of export between two threads: the last calls of the one or the first of the other. None where
    more than `most` numbers are left out within threads: what is no call is numbered, too, and is not in the file."""
    index, thread = events["event_index"], events["thread"]
    rows = np.flatnonzero(index >= 0)
    rows = rows[np.argsort(index[rows], kind="stable")]
    lost, changes = np.diff(index[rows]) - 1, np.diff(thread[rows]) != 0
    if (lost < 0).any() or lost[~changes].sum() > most:
        return gaps_table()
    wide, start_ns = changes & (lost > 0), events["start_ns"][rows] + base_ns
    return gaps_table(count=lost[wide], before_ns=start_ns[:-1][wide], after_ns=start_ns[1:][wide])


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
