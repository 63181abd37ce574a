"""What the words of a raw row can be: one of those of its column, a time, JSON of the right kind.

The ranges of numbers are checked when a row is read (results/records/rows.py). Not claimed: that a value is true. A
cell whose own row fails is kept from everything that would stumble over it.

By which numbers a cell is measured until it is done (`measure/timing/protocols.py`), as its rows can be asked for
them.
"""

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.devices.precisions import PRECISIONS, UNITS
from analysis.operators.registry import KINDS
from analysis.stats.summary import INTERVAL_RULES
from analysis.utilization.step_times import block_summary, paired_ceiling
from results.records.cell import Parameters, Run, Sample
from results.records.rows import MALLOC_SETTINGS, PHASES, RECORDERS, STATUSES, WORKS, Record, header

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
    """What is wrong with the words of one row, each with its column."""
    names = _asked(type(row))  # type: ignore[arg-type]  # a class can be hashed
    return [words for name in names if (words := _fault(row, name, getattr(row, name)))]


@functools.cache
def _asked(record: type[Record]) -> tuple[str, ...]:
    """The columns of a record that are asked."""
    asked = {*WORDS, *_OF, *_TEXTS, *DATES, *_FILLED, "phase"}
    return tuple(name for name in header(record) if name in asked)


def _fault(row: Record, name: str, value: Any) -> str:
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


TARGET_CI_RATIO = {"cuda": 0.005, "cpu": 0.03}
"""Half width of the 95 % interval ÷ mean at which measuring stops (docs/conventions.md)."""

MIN_BLOCKS = {"cuda": 10, "cpu": 5}
"""Blocks that are measured at least; of a quick cell a fifth."""

QUICK = 5

BUSY_RATIO = 0.05
"""Share of all processors that others may take while blocks are timed."""


def kind_of(run: Parameters) -> str:
    """ "cuda" or "cpu"."""
    return "cuda" if run.device.startswith("cuda") else "cpu"


def target_of(run: Parameters) -> float:
    """The half width ÷ mean that was asked for."""
    return TARGET_CI_RATIO[kind_of(run)] if run.target_ci_ratio is None else run.target_ci_ratio


def narrowness(run: Run, blocks: Sequence[Sample], samples: Sequence[Sample] = ()) -> tuple[bool, str]:
    """Whether the interval is as narrow as was asked for, from enough blocks; and that in words.

    samples: all of this attempt. Where a ceiling was timed beside the blocks, it is the interval of the ratio, else
    that of the blocks.
    """
    paired = paired_ceiling(samples, run.interval_rule) if run.paired_ceiling and samples else None
    width = block_summary(blocks, run.interval_rule).half_width_ratio if paired is None else paired.half_width_ratio
    target, fewest = target_of(run), max(2, math.ceil(MIN_BLOCKS[kind_of(run)] / (QUICK if run.quick else 1)))
    shown = "no interval" if width is None else f"±{100 * width:.2g} %"
    of_what = "" if paired is None else " of the paired utilization"
    words = f"{shown}{of_what} from {len(blocks)} blocks, asked for ±{100 * target:.2g} % from {fewest}"
    return width is not None and width <= target and len(blocks) >= fewest, words
