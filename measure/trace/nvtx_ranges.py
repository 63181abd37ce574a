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

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from measure.trace.kineto import ANNOTATION
from measure.trace.nesting import NODE, OPERATOR
from measure.trace.pyprof_arguments import Arguments, call_name, literal, of_marker, operator
from measure.trace.recording import (
    calls_in_order,
    calls_table,
    objects,
    ranges_in_order,
    ranges_table,
    sizes_of,
)

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
    before, separator, digits = text.rpartition(key)
    return (before, int(digits)) if separator and digits.isdecimal() else (text, -1)


@cache
def parse_sizes(text: str) -> tuple[Any, ...] | None:
    """ "[[32, 3], []]" → ((32, 3), ()); None for what is no list of sizes."""
    try:
        return sizes_of(json.loads(text))
    except (ValueError, RecursionError):  # no JSON, a number of 5,000 digits, lists within lists
        return None


PUSH_POP, START_END, DOMAIN_CREATE = 59, 60, 75
"""Values of NVTX_EVENTS.eventType."""

THREADS = 1 << 24
"""Numbers of threads in a global id; the process and the virtual machine stand above."""

BARE = ("detach", "detach_")
"""Operators whose ranges are a bare name, which before PyTorch 1.11 nothing else distinguished from hand-made ones."""

CALL, RANGE, COPY, BY_HAND, NOTHING = "call", "range", "copy", "by hand", "nothing"
"""What a range is: an operator call, any other range, emit_nvtx's copy of one of ours, one that anybody may have
pushed, or a marker of PyProf that is no function."""


def thread_of(global_id: pd.Series) -> pd.Series:
    """The thread in global ids; -1 for none."""
    return (global_id % THREADS).where(global_id >= 0, -1)


def process_of(global_id: pd.Series) -> pd.Series:
    """The process in global ids, its virtual machine above it; -1 for none."""
    return (global_id // THREADS).where(global_id >= 0, -1)


def calls_and_ranges(
    events: pd.DataFrame, strings: Mapping[int, str], end_ns: int
) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """Calls and ranges in the order of start, the outer first, and how many ranges have no end.

    events: start, end, eventType, textId, globalTid, domainId (-1: not recorded), text. strings: the export's table of
    texts. end_ns: when the capture ended, and with it a range that is open.
    """
    texts = events["text"].where(events["text"].notna(), events["textId"].map(strings).fillna(""))
    created = events["eventType"] == DOMAIN_CREATE
    domains = dict(zip(events["domainId"][created].tolist(), texts[created], strict=True))
    pushed = (events["start"] >= 0) & events["eventType"].isin((PUSH_POP, START_END, -1))
    events, texts = events[pushed], texts[pushed]
    rows: list[tuple[Any, ...]] = []
    for text, kind, domain in zip(texts, events["eventType"].tolist(), events["domainId"].tolist(), strict=True):
        if domain > 0:
            rows.append((RANGE, f"{domains.get(domain) or f'domain {domain}'}.{text}", -1, -1, None, None))
        elif kind == START_END:
            rows.append((RANGE, text, -1, -1, None, None))
        else:
            rows.append(_pushed(text))
    end = events["end"].where(events["end"] >= 0, np.maximum(end_ns, events["start"]))
    classified = pd.DataFrame(
        {
            "kind": [row[0] for row in rows],
            "name": objects([row[1] for row in rows]),
            "sequence_nr": np.array([row[2] for row in rows], np.int64),
            "external_id": np.array([row[3] for row in rows], np.int64),
            "input_shapes": objects([row[4] for row in rows]),
            "marker": objects([row[5] for row in rows]),
            "start_ns": events["start"].to_numpy(),
            "time_ns": (end - events["start"]).clip(lower=0).to_numpy(),
            "thread": thread_of(events["globalTid"]).to_numpy(),
            "process": process_of(events["globalTid"]).to_numpy(),
        }
    )
    ranges, calls = classified[classified["kind"] == RANGE], classified[classified["kind"] == CALL]
    copies = classified[(classified["kind"] == COPY) & ~classified["name"].isin(set(ranges["name"]))]
    by_hand = classified[classified["kind"] == BY_HAND]
    parts = [ranges, copies, *([by_hand] if len(calls) else [])]
    calls = calls_table(**_with_arguments(calls if len(calls) else by_hand).drop(columns="kind"))
    ranges = ranges_table(**pd.concat(parts)[["name", "start_ns", "time_ns", "thread", "process"]])
    return calls_in_order(calls), ranges_in_order(ranges), int((events["end"] < 0).sum())


def _pushed(text: str) -> tuple[str, str, int, int, Any, _Marker | None]:
    """What a range is, its name, numbers of node and call, sizes, and what PyProf says of it."""
    if text.startswith("{'"):
        marker = _marker_of(text)
        return (NOTHING, "", -1, -1, None, None) if marker is None else (CALL, marker.name, -1, -1, None, marker)
    name, sequence_nr, op_id, sizes = parse(text)
    kind, name = _kind(name)
    if kind == BY_HAND and (sequence_nr >= 0 or op_id >= 0 or sizes is not None):
        kind = CALL
    return kind, name, sequence_nr, op_id, None if sizes is None else parse_sizes(sizes), None


@cache
def _kind(name: str) -> tuple[str, str]:
    """What a range of a name is where its text says no more, and one object for all equal names."""
    if name.startswith("flopledger."):
        return COPY, name
    if ANNOTATION.match(name):
        return RANGE, name
    is_call = name in BARE or OPERATOR.fullmatch(name) or NODE.fullmatch(name)
    return (CALL if is_call else BY_HAND), name


class _Marker(NamedTuple):
    """A function as PyProf saw it called, with the name of the call that it is."""

    function: str
    name: str
    arguments: Arguments


@cache
def _marker_of(text: str) -> _Marker | None:
    """The function that a marker says was called; None for other markers: where in the program, how a module prints."""
    marker = literal(text)
    if marker is None or not {"op", "args"} <= marker.keys():
        return None
    function = str(marker["op"])
    try:
        return _Marker(function, call_name(str(marker.get("mod", "")), function), of_marker(marker))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _with_arguments(calls: pd.DataFrame) -> pd.DataFrame:
    """The calls, the arguments of each marker given to the call of the same function right in it; such a marker goes.

    A marker without such a call is a call itself: PyProf was there without emit_nvtx, or the function has no operator
    of its name. PyProf and torch differ on what works in place.
    """
    calls = calls.sort_values(
        ["process", "thread", "start_ns", "time_ns"], ascending=[True, True, True, False], kind="stable"
    ).reset_index(drop=True)
    markers = calls.pop("marker")
    lane, end = list(zip(calls["process"], calls["thread"], strict=True)), calls["start_ns"] + calls["time_ns"]
    dtypes, values = objects([None] * len(calls)), objects([None] * len(calls))
    shapes, gone = calls["input_shapes"].to_numpy(object).copy(), []
    for row in np.flatnonzero(markers.notna()).tolist():
        marker, inner = markers[row], row + 1
        inside = inner < len(calls) and lane[inner] == lane[row] and end[inner] <= end[row]
        own_name = operator(marker.function).removesuffix("_")
        if inside and calls["name"][inner].partition("::")[2].removesuffix("_") == own_name:
            gone.append(row)
            row = inner
        if shapes[row] is None:
            shapes[row] = marker.arguments.shapes
        dtypes[row], values[row] = marker.arguments.dtypes, marker.arguments.values
    return calls.assign(input_shapes=shapes, input_dtypes=dtypes, concrete_inputs=values).drop(index=gone)
