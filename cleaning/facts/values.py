"""What a value of a raw row can be: finite, not below its least, a word of its column, JSON of the right kind.

Says nothing of whether a value is true. `cleaning/facts/values.py` asks; a cell whose own row fails is kept from
everything that would stumble over it.
"""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.devices.precisions import PRECISIONS, UNITS
from analysis.operators.registry import KINDS
from analysis.stats.summary import INTERVAL_RULES
from results.records.rows import Record, kinds_of
from results.records.vocabulary import MALLOC_SETTINGS, PHASES, RECORDERS, STATUSES, WORKS

LEAST: Mapping[str, float] = {
    "batch_size": 1,
    "attempt": 1,
    "steps": 1,
    "epoch_images": 1,
    "repeats": 1,
    "born_index": -1,
    "first_loss": -math.inf,
    "last_loss": -math.inf,
    "seed": -math.inf,
    "temperature_c": -math.inf,
}
"""Column → least value; of every other column of numbers it is 0."""

WORDS: Mapping[str, Sequence[str]] = {
    "status": STATUSES,
    "precision": tuple(PRECISIONS),
    "layout": ("", "channels_first", "channels_last"),
    "malloc": ("", *MALLOC_SETTINGS),
    "profile": ("", *RECORDERS),
    "convolution_unit": ("", *UNITS),
    "matmul_unit": ("", *UNITS),
    "unit": ("", *UNITS),
    "energy_method": ("", "counter", "polled"),
    "interval_rule": tuple(INTERVAL_RULES),
    "part": ("warmup", "measure", "phase", "profiled", "suspended", "disturbed", "moved", "ceiling"),
    "work": ("", *WORKS),
    "native_unit": ("", "mac", "flop"),
    "kind": ("", *KINDS),
    "role": ("weight", "buffer", "gradient", "optimizer_state", "input", "activation", "temporary"),
    "operation": ("matmul", "convolution", "copy", "triad", "launch", "call", "issue", "read"),
    "family": ("", "square", "near", "area", "deep", "batch", "memory", "cache"),
}
"""Column → every word that it may hold."""

_PHASES: Mapping[str, Sequence[str]] = {
    "Sample": ("", *PHASES),
    "FlopCount": (*PHASES, "total"),
    "Operation": PHASES,
    "ProfiledOperation": ("", *PHASES),
}

_OF: Mapping[str, type | tuple[type, ...]] = {
    "executed": int,
    "hyper": int,
    "unprofiled": str,
    "ignored": (int, float),
    "not_understood": (int, float),
    "committed": list,
}
"""Column → what the values of its mapping are."""

DATES = ("started_at", "created_at")
"""Columns of a time: UTC, ISO 8601, to the second."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")

_FILLED = ("scope", "counter", "workload", "model")
"""Columns of words that are never empty."""

_TEXTS = ("warnings", "methods", "counters", "profiled", "event_reasons")
"""Columns that are lists of words."""


def faults(row: Record) -> list[str]:
    """What is wrong with the values of one row, each with its column."""
    record, found = type(row), []
    if record not in _COLUMNS:
        _COLUMNS[record] = _columns(record)
    for name, least in _COLUMNS[record]:
        value = getattr(row, name)
        if least is not None and (value is None or (least <= value < math.inf and value > -math.inf)):
            continue  # nearly every value of millions, without another call
        if words := _fault(row, name, value, least):
            found.append(words)
    return found


_COLUMNS: dict[type[Record], tuple[tuple[str, float | None], ...]] = {}


def _columns(record: type[Record]) -> tuple[tuple[str, float | None], ...]:
    """(column, the least number that it can hold; None: it holds none), of the columns that are asked."""
    hints = typing.get_type_hints(record)
    numbers = {name: bool({int, float} & set(kinds_of(hint))) for name, hint in hints.items()}
    asked = {*WORDS, *_OF, *_TEXTS, *DATES, *_FILLED, "phase"}
    return tuple((n, LEAST.get(n, 0) if number else None) for n, number in numbers.items() if number or n in asked)


def _fault(row: Record, name: str, value: Any, least: float | None) -> str:
    if least is not None:
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name} is {value}"
        return f"{name} is {value}, at least {least:g} is possible" if value < least else ""
    words = _PHASES.get(type(row).__name__) if name == "phase" else WORDS.get(name)
    if words is not None:
        return "" if value in words else f"{name} is {value!r}, which is none of its words"
    if name in DATES:
        return date_fault(name, value)
    if name in _FILLED:
        return "" if value else f"{name} is empty"
    if name in _OF:
        return next(_entries(name, value), "")
    if name in _TEXTS:
        holds = value is None or all(isinstance(each, str) for each in value)
        return "" if holds else f"{name} is {value!r}, expected a list of words"
    return ""


def date_fault(name: str, value: Any) -> str:
    """What is wrong with a time in words."""
    holds = isinstance(value, str) and _DATE.fullmatch(value)
    return "" if holds else f"{name} is {value!r}, expected UTC as 2026-01-02T03:04:05Z"


def _entries(name: str, value: Any) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{name} is {value!r}, expected a mapping"
        return
    for key, entry in value.items():
        if isinstance(entry, bool) or not isinstance(entry, _OF[name]):
            yield f"{name} of {key} is {entry!r}"
        elif isinstance(entry, (int, float)) and entry < 0:
            yield f"{name} of {key} is {entry}, below 0"
