"""Converts records to rows of text and back, and checks the ranges of their numbers.

`to_text` and `cell_text` format a value. None is an empty field, booleans are true and false, integers are exact, and
floats are the shortest text that reads back equal. Nested values are compact JSON with text as keys. A text that a
spreadsheet would calculate gets an apostrophe. `read_rows` returns the values that `to_values`
(results/store/layout.py) accepts, except that lists become tuples, and line ends and NULs in text become spaces. A
number must be finite and in the range of its name's unit (`UNITS`), by default not negative; an annotation of its field
overrides that range: `slope: Annotated[int | None, SIGNED]`. CSV's quoting and files are not handled here.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from results.printable import shortened


@dataclass(frozen=True)
class Range:
    """The values from `low` to `high`. above: excludes `low` itself. infinite: includes infinity."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    infinite: bool = False

    def holds(self, value: float) -> bool:
        """Return whether a number is in the range; NaN never is."""
        is_known = self.infinite or abs(value) != math.inf
        return is_known and self.low <= value <= self.high and not (self.above and value == self.low)

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError, naming the column, for a number outside, by itself or within a list or mapping. Text, None
        and booleans pass, since the types of fields are checked elsewhere."""
        if isinstance(value, (int, float)):
            if value is not True and value is not False and not self.holds(value):
                if isinstance(value, int) and value.bit_length() > 200:  # it may have a million digits
                    got = f"an integer of {value.bit_length()} binary digits"
                else:
                    got = repr(value)
                raise ValueError(f"column {name}: expected {self}, got {got}")
        elif isinstance(value, (tuple, list, Mapping)):
            for part in value.values() if isinstance(value, Mapping) else value:
                self.check(name, part)

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
FROM_MINUS_ONE = Range(-1)
PROBABILITY = Range(0, 1)
ANY = Range(infinite=True)

UNITS: Mapping[str, Range] = {"_per_s": POSITIVE, "_c": Range(-273.15)}
"""Suffix of a field's name → its range, where that is not NOT_NEGATIVE."""

REQUEST = "request"
"""Annotates a cell's parameter that does not change its training step: what is measured of the step, and how often.
Cells that differ only in such parameters have the same step."""

Json = Mapping[str, Any]
Counts = Annotated[Json, NOT_NEGATIVE]
Shapes = Annotated[tuple[Any, ...], NOT_NEGATIVE]

FromOne = Annotated[int, FROM_ONE]
FromMinusOne = Annotated[int, FROM_MINUS_ONE]
Signed = Annotated[float, SIGNED]
Positive = Annotated[float, POSITIVE]
Probability = Annotated[float, PROBABILITY]


def range_of(name: str, hint: Any) -> Range | None:
    """Return the range of a field's numbers; None for a field of text or of values of any kind. hint: with `Annotated`
    extras."""
    own = _annotated(hint)
    if own is not None or not {int, float} & {hint, *typing.get_args(hint)}:
        return own
    return next((limits for end, limits in UNITS.items() if name.endswith(end)), NOT_NEGATIVE)


def _annotated(hint: Any) -> Range | None:
    """Return the range in an annotation, at any depth."""
    if isinstance(hint, Range):
        return hint
    return next((limits for part in typing.get_args(hint) if (limits := _annotated(part)) is not None), None)


R = TypeVar("R", bound="Record")


class Record:
    """Base of all records."""


def read_rows(record: type[R], names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[R]:
    """Return the records of rows of text whose columns are `names`.

    Unknown columns are left out; a missing column takes the field's default. Equal texts of a column are read once, and
    records share the value, which must not be changed. Raises ValueError, naming the column, for a missing field
    without default, for text that a field cannot hold and for a number outside its range.
    """
    if not rows:
        return []
    texts = dict(zip(names, zip(*rows, strict=True), strict=True))
    first: dict[str, Any] = {}
    differing: dict[str, list[Any]] = {}
    for name, column in columns_of(record).items():
        if name in texts:
            values = column.read_all({*texts[name]})
            first[name] = values[texts[name][0]]
            if len(values) > 1:
                differing[name] = [values[text] for text in texts[name]]
        elif column.default is dataclasses.MISSING:
            raise ValueError(f"column {name} is missing")
    begun, owns = record(**first), zip(*differing.values(), strict=True) if differing else [()] * len(rows)
    return [replace_fields(begun, zip(differing, own, strict=True)) for own in owns]


def replace_fields(row: R, values: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> R:
    """Copy a row with these fields replaced, like `dataclasses.replace` but fast for hundreds of thousands of rows.
    Nothing is checked."""
    fields = vars(row).copy()
    fields.update(values)
    other = object.__new__(type(row))
    object.__setattr__(other, "__dict__", fields)
    return other


@dataclass(frozen=True, kw_only=True)
class OfAttempt(Record):
    """Base of records of one attempt at a cell: the first columns of their file."""

    cell_id: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class OfCell(OfAttempt):
    """Base of records derived from a cell, with its identity."""

    model: str
    batch_size: FromOne
    precision: str
    device: str


@dataclass(frozen=True)
class Column:
    """How the values of one field are read and written.

    kinds: the types that it may hold, without None and without the types of their items, in the annotation's order.
    optional: whether it may be None. range: of its numbers; None: not checked. writers: exact type of a value → the
    function that formats it, for types that need no check. default: MISSING if the field has none. is_request: whether
    the field leaves the training step of a cell unchanged (`REQUEST`).
    """

    name: str
    kinds: tuple[Any, ...]
    optional: bool
    range: Range | None
    writers: Mapping[type, Callable[[Any], str]]
    default: Any
    is_request: bool

    @property
    def label(self) -> str:
        """Return the types, as messages name them."""
        return " or ".join(getattr(kind, "__name__", str(kind)) for kind in self.kinds)

    def holds(self, value: Any) -> bool:
        """Return whether a value can be read back unchanged."""
        if value is None or Any in self.kinds:
            return self.optional or Any in self.kinds
        return any(
            isinstance(value, _ACCEPTED.get(kind, kind)) and isinstance(value, bool) == (kind is bool)
            for kind in self.kinds
        )

    def read_all(self, texts: set[str]) -> dict[str, Any]:
        """Return text → its value. Raises as `read` does. A column of numbers is parsed, and checked by its least and
        greatest, at once."""
        numbers = texts - {""} if self.optional else texts
        if len(self.kinds) == 1 and self.kinds[0] in (int, float) and self.range is not None and numbers:
            with contextlib.suppress(ValueError, OverflowError):
                values = [*map(self.kinds[0], numbers)]
                if math.isfinite(sum(values)) and self.range.holds(min(values)) and self.range.holds(max(values)):
                    return dict.fromkeys(texts - numbers) | dict(zip(numbers, values, strict=True))
        return {text: self.read(text) for text in texts}

    def read(self, text: str) -> Any:
        """Return the value that was written as `text`; NaN is unknown. Raises ValueError, naming the column, for what
        the field cannot hold, or a number outside its range."""
        if not text and self.optional:
            return None
        error: Exception | None = None
        for kind in self.kinds:
            try:
                value = _READERS[kind](text)
            except (ValueError, KeyError, RecursionError) as fault:  # the last: of lists within lists
                error = fault
                continue
            if value != value and self.optional:
                return None
            if self.range is not None:
                self.range.check(self.name, value)
            return value
        if not text:
            raise ValueError(f"column {self.name}: an empty field where {self.label} was expected")
        shown = shortened(text, _LONGEST_SHOWN)
        raise ValueError(f"column {self.name}: expected {self.label}, got {shown!r}") from error


def columns_of(record: type[Record]) -> Mapping[str, Column]:
    """Return field → how it is read and written, in the order of the record's file."""
    if record not in _COLUMNS:
        hints = typing.get_type_hints(record, include_extras=True)
        _COLUMNS[record] = {
            f.name: column(
                f.name, hints[f.name], f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
            )
            for f in dataclasses.fields(record)  # type: ignore[arg-type]
        }
    return _COLUMNS[record]


_COLUMNS: dict[type, dict[str, Column]] = {}
"""Cache of `columns_of`, which is called for each row."""


def column(name: str, hint: Any, default: Any = dataclasses.MISSING) -> Column:
    """Return the column of a field of this type. hint: with its extras (`typing.Annotated`)."""
    held = _kinds(hint)
    kinds = tuple(kind for kind in held if kind is not types.NoneType)
    exact = [exact for kind in held for exact in _ACCEPTED.get(kind, (kind,)) if exact in _WRITERS]
    writers, is_request = {kind: _WRITERS[kind] for kind in exact}, REQUEST in typing.get_args(hint)
    return Column(name, kinds, types.NoneType in held, range_of(name, hint), writers, default, is_request)


def _kinds(hint: Any) -> list[Any]:
    """Return the types of a union, each without the types of its items."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _kinds(typing.get_args(hint)[0])
    if origin in (types.UnionType, typing.Union):
        return [kind for option in typing.get_args(hint) for kind in _kinds(option)]
    return [origin or hint]


def header(record: type[Record]) -> tuple[str, ...]:
    """Return the column names of a record's file."""
    return tuple(columns_of(record))


def to_text(value: Any) -> str:
    """Format one value as CSV text: '' for None, true/false, exact integers, shortest round-trip floats, compact
    JSON."""
    if value is None:
        return ""
    value = plain(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value.translate(_ONE_LINE).encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    return (_SORTED if isinstance(value, Mapping) else _IN_ORDER).encode(value)


def cell_text(value: Any) -> str:
    """Format one value for a CSV cell: `to_text`, with an apostrophe before text that begins like a formula.

    Foreign names (modules, kernels, devices) may begin with one of `= + - @` or a tab, which spreadsheets calculate.
    Numbers stay as they are. `literal` removes the apostrophe.
    """
    text = to_text(value)
    return f"'{text}" if isinstance(value, str) and _FORMULA.match(text) else text


def literal(text: str) -> str:
    """Return the text that `cell_text` wrote as `text`."""
    return text[1:] if text[:1] == "'" and _FORMULA.match(text) else text


def plain(value: Any) -> Any:
    """Convert a zero-dimensional NumPy (or torch) value to Python's own number; return anything else as it is."""
    if isinstance(value, (str, int, float)) and type(value).__module__ != "numpy":
        return value
    item = getattr(value, "item", None)
    return item() if callable(item) else value


_ACCEPTED: Mapping[Any, tuple[type, ...]] = {float: (float, int), tuple: (tuple, list), Mapping: (dict, Mapping)}
"""Kind of a field → the types of values that it accepts."""

_WRITERS: Mapping[Any, Callable[[Any], str]] = {
    types.NoneType: {None: ""}.__getitem__,
    bool: {True: "true", False: "false"}.__getitem__,
    int: repr,
    float: repr,
    str: functools.lru_cache(4096)(cell_text),  # names, units, sources, which repeat
    **dict.fromkeys((tuple, list), lambda value: to_text(value) if value else "[]"),
    dict: lambda value: to_text(value) if value else "{}",
}
"""Exact type of a value → the function that formats it."""


def _nested(kind: type, text: str) -> Any:
    """Parse JSON. Raises ValueError for JSON of another kind: "null" is not a mapping."""
    value = json.loads(text)
    if not isinstance(value, kind):
        raise ValueError(f"expected JSON of a {kind.__name__}, got {text}")
    return tuples(value) if kind is list else value


def tuples(value: Any) -> Any:
    """Return a value with all nested lists as tuples."""
    return tuple(map(tuples, value)) if isinstance(value, (list, tuple)) else value


_READERS: Mapping[Any, Callable[[str], Any]] = {
    str: literal,
    bool: {"true": True, "false": False}.__getitem__,
    int: int,
    float: float,
    tuple: lambda text: _nested(list, text or "[]"),
    Mapping: lambda text: _nested(dict, text or "{}"),
    Any: lambda text: json.loads(text) if text else None,
}
"""Kind of a field → the function that parses its text."""

_LONGEST_SHOWN = 200
"""Maximum number of characters of a text in an error."""


def json_default(value: Any) -> Any:
    """Convert a value that `json.dumps` does not know: a set to a sorted list, a mapping to a dict, a NumPy number to
    Python's own, anything else to text."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    number = plain(value)
    return str(value) if number is value else number


_SORTED = json.JSONEncoder(separators=(",", ":"), sort_keys=True, default=json_default)
_IN_ORDER = json.JSONEncoder(separators=(",", ":"), default=json_default)

_FORMULA = re.compile(r"'*[=+\-@\t]")
"""Text that a spreadsheet calculates, after any apostrophes: `cell_text` adds one and `literal` removes one."""

_ONE_LINE = {ord(character): " " for character in "\r\n\0"}


SCHEMA_VERSION = 9
"""Version of the files' columns. A column added later has a default that means what rows did before it."""


def digest(value: Any) -> str:
    """Return 16 hex digits of SHA-256 over the sorted compact JSON of a value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=json_default)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
