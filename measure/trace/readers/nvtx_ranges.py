"""NVTX ranges of an export of Nsight Systems, sorted: torch's and PyProf's become calls, ours and all others ranges.

A marker of PyProf stands around the operator call of the same function: it gives that call its arguments, which
emit_nvtx does not write. A range that is open when the capture ends, ends with it.

Not claimed: that hand-made ranges are operator calls. They are calls where the export has none of torch's; beside
torch's they are ranges.

emit_nvtx writes "NAME[, seq = N][, op_id = M][, sizes = [[..], []]][, input_op_ids = [..]]", before PyTorch 1.5 also
"stashed seq=N" (torch/csrc/autograd/profiler_legacy, nvtx_observer.cpp); PyProf a Python dict with the function and its
arguments. Both are read as literals, never evaluated; a text that fits no format is a name as it stands.
"""

from __future__ import annotations

import ast
import json
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from measure.trace.attribution.nesting import NODE, OPERATOR, Flags, Ints
from measure.trace.attribution.recording import calls_table, objects, ranges_table, sizes_of
from measure.trace.readers.kineto import ANNOTATION
from measure.trace.readers.pyprof_arguments import Arguments, call_name, of_marker, operator
from results.limits import limit

_SEQUENCE, _STASHED = ", seq = ", ", stashed seq="
_OP_ID = ", op_id = "
_SIZES = ", sizes = "
_IDS = ", input_op_ids = "


class Name(NamedTuple):
    """A range's text taken apart; -1 and None for what it does not say."""

    name: str
    sequence_nr: int = -1
    op_id: int = -1
    sizes: str | None = None


def parse(text: str) -> Name:
    """The parts of a range's text."""
    if ", " not in text:
        return Name(text)
    rest, _, _ = text.partition(_IDS)
    rest, separator, sizes = rest.partition(_SIZES)
    name, op_id = _number(rest, _OP_ID)
    name, sequence_nr = _number(name, _SEQUENCE)
    if sequence_nr < 0 and "stashed seq" in name:
        name, sequence_nr = _number(name, _STASHED)
    return Name(name, sequence_nr, op_id, sizes if separator else None)


def _number(text: str, key: str) -> tuple[str, int]:
    """A text without the key and the number at its end, and the number; -1: there is none."""
    before, found, digits = text.rpartition(key)
    return (before, int(digits)) if found and digits.isdecimal() else (text, -1)


def parse_sizes(text: str) -> tuple[Any, ...] | None:
    """ "[[32, 3], []]" → ((32, 3), ()); None for what is no list of sizes."""
    try:
        return sizes_of(json.loads(text))
    except (ValueError, RecursionError):  # no JSON, a number of 5,000 digits, lists within lists
        return None


def parse_marker(text: str) -> Mapping[str, Any] | None:
    """The dict of a PyProf marker; None for any other text."""
    if not text.startswith("{'") or len(text) > limit("line_bytes"):
        return None
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


PUSH_POP, START_END, DOMAIN_CREATE = 59, 60, 75
"""Values of NVTX_EVENTS.eventType."""

OWN = "flopledger"
"""Our domain; emit_nvtx writes a copy of each of our annotations to its own."""

PID = 24
"""Bits of a global id that hold the thread; the process and the virtual machine stand above."""

BARE = ("detach", "detach_")
"""Operators whose ranges are a bare name, which before PyTorch 1.11 nothing else distinguished from hand-made ones."""

COLUMNS = ("start", "end", "eventType", "text", "textId", "globalTid", "domainId")
"""What `NvtxRanges.take` takes, in this order."""


def thread_of(global_id: Ints) -> Ints:
    """The thread in global ids; -1 for none."""
    return np.where(global_id >= 0, global_id & ((1 << PID) - 1), -1)


def process_of(global_id: Ints) -> Ints:
    """The process in global ids, its virtual machine above it; -1 for none."""
    return np.where(global_id >= 0, global_id >> PID, -1)


class _Spans:
    """Columns of host intervals as they are found."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.start_ns, self.end_ns, self.thread = array("q"), array("q"), array("q")

    def add(self, name: str, start_ns: int, end_ns: int, global_tid: int | None) -> None:
        """end_ns: -1 for a range that is open."""
        self.names.append(name)
        self.start_ns.append(start_ns)
        self.end_ns.append(end_ns)
        self.thread.append(-1 if global_tid is None else global_tid)

    def columns(self, last_ns: int) -> dict[str, Any]:
        """A range that is open at the end of the capture ends with it."""
        start, end, thread = (np.array(c, np.int64) for c in (self.start_ns, self.end_ns, self.thread))
        end = np.where(end < 0, np.maximum(last_ns, start), end)
        return {
            "start_ns": start,
            "time_ns": np.maximum(end - start, 0),
            "thread": thread_of(thread),
            "process": process_of(thread),
        }


class NvtxRanges:
    """NVTX ranges sorted into calls, ranges, PyProf's markers, and those that anybody may have pushed."""

    def __init__(self, strings: Mapping[int, str], domains: Mapping[int, str]) -> None:
        """strings: the export's table of texts. domains: number → name."""
        self._strings, self._domains = strings, domains
        self._calls, self._ranges, self._copies, self._by_hand = _Spans(), _Spans(), _Spans(), _Spans()
        self._sequence_nr, self._op_id = array("q"), array("q")
        self._shapes: list[Any] = []
        self._markers: dict[int, _Marker] = {}  # row of calls → what PyProf says
        self._sizes: dict[str, Any] = {}
        self._marker_of: dict[str, _Marker | None] = {}
        self._known: dict[str, tuple[str, _Spans | None]] = {}  # one object for equal names, and where they belong
        self._torch = 0
        self.last_ns, self.open = 0, 0  # the latest time in the ranges, and how many have no end

    def take(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Keep the ranges in rows of `COLUMNS`."""
        strings, last_ns = self._strings, self.last_ns
        for start_ns, end_ns, kind, text, text_id, thread, domain in rows:
            if start_ns is None:
                continue
            if end_ns is None:
                self.open += 1
                end_ns, latest_ns = -1, start_ns
            else:
                latest_ns = end_ns
            if latest_ns > last_ns:
                last_ns = latest_ns
            if text is None:
                text = strings.get(text_id, "")
            if domain:
                text = f"{self._domains.get(domain) or f'domain {domain}'}.{text}"
                self._ranges.add(text, start_ns, end_ns, thread)
            elif kind == START_END:
                self._ranges.add(text, start_ns, end_ns, thread)
            elif text.startswith("{'"):
                self._marker(text, start_ns, end_ns, thread)
            else:
                self._pushed(text, start_ns, end_ns, thread)
        self.last_ns = last_ns

    def _pushed(self, text: str, start_ns: int, end_ns: int, thread: int | None) -> None:
        name, sequence_nr, op_id, sizes = parse(text)
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = (name, self._spans_of(name))
        name, spans = known
        if spans is None:
            spans = self._calls if sequence_nr >= 0 or op_id >= 0 or sizes is not None else self._by_hand
        if spans is self._calls:
            self._torch += 1
            self._call(name, start_ns, end_ns, thread, sequence_nr, op_id, sizes)
        else:
            spans.add(name, start_ns, end_ns, thread)

    def _spans_of(self, name: str) -> _Spans | None:
        """Where ranges of a name belong; None: among the calls if their text says more than a name."""
        if name.startswith(f"{OWN}."):
            return self._copies
        if ANNOTATION.match(name):
            return self._ranges
        return self._calls if name in BARE or OPERATOR.fullmatch(name) or NODE.fullmatch(name) else None

    def _call(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        thread: int | None,
        sequence_nr: int = -1,
        op_id: int = -1,
        sizes: str | None = None,
    ) -> None:
        self._calls.add(name, start_ns, end_ns, thread)
        self._sequence_nr.append(sequence_nr)
        self._op_id.append(op_id)
        if sizes is None:
            self._shapes.append(None)
            return
        if sizes not in self._sizes:
            self._sizes[sizes] = parse_sizes(sizes)
        self._shapes.append(self._sizes[sizes])

    def _marker(self, text: str, start_ns: int, end_ns: int, thread: int | None) -> None:
        """A function with its arguments; not where in the program it was called, nor how a module prints."""
        if text not in self._marker_of:
            found = parse_marker(text)
            tells = found is not None and "op" in found and "args" in found
            self._marker_of[text] = _marker_of(found) if found is not None and tells else None
        marker = self._marker_of[text]
        if marker is not None:
            self._markers[len(self._calls.names)] = marker
            self._call(marker.name, start_ns, end_ns, thread)

    def ranges(self, end_ns: int) -> pd.DataFrame:
        """What is no call, in the order of start, the outer first. end_ns: when the capture ended."""
        own = set(self._ranges.names)
        copies = ranges_table(name=self._copies.names, **self._copies.columns(end_ns))
        parts = [
            ranges_table(name=self._ranges.names, **self._ranges.columns(end_ns)),
            copies[~copies["name"].isin(own)],
        ]
        if self._torch or self._markers:
            parts.append(ranges_table(name=self._by_hand.names, **self._by_hand.columns(end_ns)))
        whole = pd.concat(parts, ignore_index=True)
        return whole.sort_values(["start_ns", "time_ns", "name"], ascending=[True, False, True], ignore_index=True)

    def calls(self, end_ns: int) -> pd.DataFrame:
        """The calls in the order of start, the outer first. end_ns: when the capture ended."""
        if not self._torch and not self._markers:
            found = self._by_hand.columns(end_ns)
            return _sorted({"name": objects(self._by_hand.names), **found})
        columns = {
            "name": objects(self._calls.names),
            "input_shapes": objects(self._shapes),
            "input_dtypes": objects([None] * len(self._shapes)),
            "concrete_inputs": objects([None] * len(self._shapes)),
            "sequence_nr": np.array(self._sequence_nr, np.int64),
            "external_id": np.array(self._op_id, np.int64),
            **self._calls.columns(end_ns),
        }
        taken = self._give_arguments(columns)
        return _sorted({name: column[~taken] for name, column in columns.items()})

    def _give_arguments(self, columns: Mapping[str, Any]) -> Flags:
        """The arguments of each marker to the call of the same function right in it. → which markers gave them away.

        A marker without such a call is a call itself: PyProf was there without emit_nvtx, or the function has no
        operator of its name.
        """
        taken = np.zeros(len(self._shapes), bool)
        end = columns["start_ns"] + columns["time_ns"]
        after = _next_on_thread(columns) if self._markers else np.zeros(0, np.int64)
        for row, marker in self._markers.items():
            inner = int(after[row])
            inside = inner >= 0 and end[inner] <= end[row]
            taken[row] = inside and marker.fits(columns["name"][inner])
            at = inner if taken[row] else row
            if columns["input_shapes"][at] is None:
                columns["input_shapes"][at] = marker.arguments.shapes
            columns["input_dtypes"][at] = marker.arguments.dtypes
            columns["concrete_inputs"][at] = marker.arguments.values
        return taken


@dataclass(frozen=True)
class _Marker:
    """A function as PyProf saw it called."""

    function: str
    name: str
    arguments: Arguments

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> _Marker:
        function = str(found["op"])
        return cls(function, call_name(str(found.get("mod", "")), function), of_marker(found))

    def fits(self, call: str) -> bool:
        """Whether a call is this function's operator; PyProf and torch differ on what works in place."""
        return call.partition("::")[2].removesuffix("_") == operator(self.function).removesuffix("_")


def _marker_of(found: Mapping[str, Any]) -> _Marker | None:
    """None for what is no call of a function with sizes."""
    try:
        return _Marker.of(found)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _next_on_thread(columns: Mapping[str, Any]) -> Ints:
    """For each row the next one to begin on its thread, the inner after the outer; -1: none."""
    rows = np.arange(len(columns["start_ns"]))
    keys = (rows, -columns["time_ns"], columns["start_ns"], columns["thread"], columns["process"])
    order = np.lexsort(keys)
    same = np.ones(max(len(order) - 1, 0), bool)
    for name in ("process", "thread"):
        same &= columns[name][order[:-1]] == columns[name][order[1:]]
    after = np.full(len(order), -1, np.int64)
    after[order[:-1]] = np.where(same, order[1:], -1)
    return after


def _sorted(columns: Mapping[str, Any]) -> pd.DataFrame:
    order = np.lexsort((np.arange(len(columns["name"])), -columns["time_ns"], columns["start_ns"]))
    return calls_table(**{name: column[order] for name, column in columns.items()})
