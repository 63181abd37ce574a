"""Which values each field of each record may have: a sign and a range by its unit, checked when a file is read.

A field's range is that of its own name (`FIELDS`), else that of the unit its name ends in (`UNITS`). Every field that
holds numbers has one; a test holds that. Not claimed: that a value within its range is true.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from results.records.rows import Record, header


@dataclass(frozen=True)
class Range:
    """The values from `low` to `high`. above: `low` itself is none of them. infinite: infinity is one of them."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    infinite: bool = False

    def holds(self, value: float) -> bool:
        """Whether a number is one of the range's; NaN never is."""
        if isinstance(value, float) and not math.isfinite(value):
            return self.infinite and not math.isnan(value) and self.low <= value
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        if self.high < math.inf:
            return f"a number from {self.low:g} to {self.high:g}"
        if self.low == -math.inf:
            return "a number" if self.infinite else "a finite number"
        return f"a finite number {'above' if self.above else 'of at least'} {self.low:g}"


SIGNED = Range()
NOT_NEGATIVE = Range(0)
POSITIVE = Range(0, above=True)
FROM_ONE = Range(1)
PROBABILITY = Range(0, 1)
ANY = Range(infinite=True)

UNITS: Mapping[str, Range] = {
    "_flop_per_s": POSITIVE,
    "_bytes_per_s": POSITIVE,
    "_per_s": POSITIVE,
    "_bytes": NOT_NEGATIVE,
    "_flop": NOT_NEGATIVE,
    "_ratio": NOT_NEGATIVE,
    "_calls": NOT_NEGATIVE,
    "_index": NOT_NEGATIVE,
    "_steps": NOT_NEGATIVE,
    "_hz": NOT_NEGATIVE,
    "_s": NOT_NEGATIVE,
    "_w": NOT_NEGATIVE,
    "_j": NOT_NEGATIVE,
    "_c": Range(-273.15),
}
"""The end of a field's name → its range; the first that fits."""

FIELDS: Mapping[str, Range] = {
    **dict.fromkeys(("flop_per_s", "bytes_per_s", "cores", "per_clock", "RankRow.ceiling"), POSITIVE),
    "group_size": FROM_ONE,
    "ranks": FROM_ONE,
    **dict.fromkeys(("late_rank", "collective_bytes"), NOT_NEGATIVE),
    **dict.fromkeys(
        ("batch_size", "image_size", "num_classes", "epoch_images", "steps", "items", "items_per_step", "threads"),
        FROM_ONE,
    ),
    **dict.fromkeys(
        (
            "asked", "attempt", "blocks", "blocks_a", "blocks_b", "call", "calls", "degrees", "disturbed_blocks",
            "effective_blocks", "flop", "group", "id", "index", "instance", "involuntary_switches", "kernels",
            "late_since_block", "late_since_step", "launches", "moved_blocks", "nbytes", "operations",
            "outliers", "own_parameters", "parameters", "parent", "rank", "recording", "removed", "repaired", "repeat",
            "page_faults", "repeats", "step", "units", "unknown",
        ),
        NOT_NEGATIVE,
    ),
    **dict.fromkeys(("reads", "writes", "batches", "input_shapes", "output_shapes"), NOT_NEGATIVE),
    **dict.fromkeys(("attention", "executed", "ignored", "mixture", "not_understood"), NOT_NEGATIVE),
    **dict.fromkeys(("p_different", "p_same", "unknown_time_ratio", "outside_time_ratio"), PROBABILITY),
    **dict.fromkeys(("sequence_nr", "born_index", "died_index"), Range(-1)),
    # ends of intervals, and what is a difference
    **dict.fromkeys(
        (
            "low_s", "time_low_s", "low_time_s", "profiled_low_s", "real_low_s", "start_s", "utilization_low_ratio",
            "drift_ratio", "overhead_ratio", "difference_flop", "unexplained_flop", "constant_flop", "slope_flop",
            "constant", "slope", "ratio", "exact_ratio", "own_bytes", "rounding_bytes", "low_ratio", "total_ratio",
            "flop_ratio", "AccountCause.flop", "OperationTime.step",
        ),
        SIGNED,
    ),
    "utilization_high_ratio": ANY,  # the lower end of the time may be 0
    "sync_wait_ratio": NOT_NEGATIVE,
    "Sample.steps": FROM_ONE,
    "Sample.start_s": NOT_NEGATIVE,
    "WorkTime.steps": NOT_NEGATIVE,
    "StepTime.steps": NOT_NEGATIVE,
    "target_ci_ratio": POSITIVE,
    **dict.fromkeys(("value_a", "value_b"), NOT_NEGATIVE),
    "native_value": SIGNED,  # a counter's own word, however wrong
    "printed": SIGNED,
    **dict.fromkeys(("first_loss", "last_loss", "seed", "thread", "device", "stream"), ANY),
}  # fmt: skip
"""A field's name, or RECORD.FIELD → its range."""


def range_of(record: type[Record], name: str) -> Range | None:
    """The range of a field's numbers: its own, or that of its unit; None for a name that has none."""
    own = FIELDS.get(f"{record.__name__}.{name}", FIELDS.get(name))
    return own or next((kept for end, kept in UNITS.items() if name.endswith(end)), None)


def has_range(record: type[Record], name: str) -> bool:
    """Whether a field's values are checked: one of text alone has no range."""
    return name in _checks(record)  # type: ignore[arg-type]  # a class can be hashed


def check_value(record: type[Record], name: str, value: Any) -> None:
    """Raises ValueError, naming the column, for a number outside its range, by itself or within a list or mapping."""
    check = _checks(record).get(name)  # type: ignore[arg-type]  # a class can be hashed
    if check is not None:
        check(value)


def check_ranges(row: Record) -> None:
    """`check_value` of each field of a record."""
    for name, check in _checks(type(row)).items():  # type: ignore[arg-type]  # a class can be hashed
        if (value := getattr(row, name)) is not None:
            check(value)


@functools.cache
def _checks(record: type[Record]) -> dict[str, Callable[[Any], None]]:
    ranges = ((name, range_of(record, name)) for name in header(record))
    return {name: functools.partial(_check, name, kept) for name, kept in ranges if kept is not None}


def _check(name: str, kept: Range, value: Any) -> None:
    """Of a column: text, None and booleans pass, since the types of fields are checked elsewhere."""
    if value is None or value is True or value is False or isinstance(value, str):
        return
    if isinstance(value, (int, float)):
        if not kept.holds(value):
            raise ValueError(f"column {name}: expected {kept}, got {_short(value)}")
    elif isinstance(value, (tuple, list)):
        if value and {*map(type, value)} == {int} and kept.holds(min(value)) and kept.holds(max(value)):
            return  # and so does it all between them
        for part in value:
            _check(name, kept, part)
    elif isinstance(value, Mapping):
        for part in value.values():
            _check(name, kept, part)


def _short(value: float) -> str:
    """A number as a message has it: integers may have a million digits."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} binary digits"
    return repr(value)
