"""How a record becomes one row of text and a row becomes the record again.

None is an empty field, booleans are true and false, integers are exact, floats are the shortest text that reads back
equal, and nested values (tuples, lists, mappings) are compact JSON with text as keys. What `to_values` accepts,
`from_row` gives back equal, except that lists come back as tuples and that line ends and NULs in text become spaces.
What could not be read back is refused before it is written. A text that a spreadsheet would take for a formula has an
apostrophe before it (`cell_text`). Nothing here knows CSV's quoting or files.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from results.printable import shortened

R = TypeVar("R", bound="Record")


class Record:
    """Base of all records: conversion to and from one row of strings."""

    def to_row(self) -> dict[str, str]:
        """The record as column name → text, in the order of its fields. Raises ValueError as `to_values` does."""
        return dict(zip(header(type(self)), to_values(self), strict=True))

    @classmethod
    def from_row(cls: type[R], row: Mapping[str, str]) -> R:
        """The record that `to_row` wrote.

        Columns that this version does not know are left out; a missing column takes the field's default.
        Raises ValueError for a field without default that is missing, or text that its type cannot hold.
        """
        values = {name: _read(row[name], column, name) for name, column in _columns(cls).items() if name in row}
        try:
            return cls(**values)
        except TypeError as fault:
            raise ValueError(f"{cls.__name__}: {fault}") from fault


def of_columns(record: type[R], same: Mapping[str, Any], columns: Mapping[str, Sequence[Any]]) -> list[R]:
    """Records of the values of each field, without the calls that `__init__` makes for each of them.

    For rows by the hundred thousand, where it takes a quarter of the time. same: the fields of which all records have
    one value; columns: of each other field the values, as many in each, at least one column. Nothing is checked: names
    are all the record's fields, values of the fields' types.
    """
    blank = {name: same.get(name) for name in header(record)}
    held = [blank.copy() for _ in next(iter(columns.values()))]
    for name, values in columns.items():
        for fields, value in zip(held, values, strict=True):
            fields[name] = value
    rows = [object.__new__(record) for _ in held]
    for row, fields in zip(rows, held, strict=True):
        object.__setattr__(row, "__dict__", fields)  # at once: field by field it takes twice as long
    return rows


def changed(row: R, values: Mapping[str, Any]) -> R:
    """`dataclasses.replace` for rows by the hundred thousand. Nothing is checked: values are of the record's fields."""
    held = vars(row).copy()
    held.update(values)
    other = object.__new__(type(row))
    object.__setattr__(other, "__dict__", held)
    return other


class LazyRows(Sequence[R]):
    """Rows that are made when they are asked for, each time anew; equal to a tuple of them. `__iter__` makes them."""

    @typing.overload
    def __getitem__(self, place: int) -> R: ...
    @typing.overload
    def __getitem__(self, place: slice) -> tuple[R, ...]: ...
    def __getitem__(self, place: int | slice) -> R | tuple[R, ...]:
        return tuple(self)[place]

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, (LazyRows, tuple)) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))


class CellRows(LazyRows[R]):
    """Rows of one cell after the other, as a tuple of them would be; what cells have in common is kept once.

    parts: (own, rows): rows that belong to a cell with the values of `own` in place of theirs, which are the first
    columns of their file; {}: as they are. Raises ValueError for other columns.
    """

    def __init__(self, parts: Iterable[tuple[Mapping[str, Any], Sequence[R]]]) -> None:
        self.parts = tuple((own, rows) for own, rows in parts if rows)
        found = {(tuple(own), header(type(rows[0]))) for own, rows in self.parts if own}
        if len(found) > 1 or any(names != first[: len(names)] for names, first in found):
            raise ValueError(f"expected the same first columns of one record for all parts, got {sorted(found)}")

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self.parts)

    def __iter__(self) -> Iterator[R]:
        for own, rows in self.parts:
            yield from (changed(row, own) for row in rows) if own else rows


class ColumnRows(LazyRows[R]):
    """Rows of one record that are kept as columns, for files of a million rows.

    same, columns: as `of_columns` takes them. places: which of the columns' entries are these rows; None: all.
    """

    def __init__(
        self,
        record: type[R],
        same: Mapping[str, Any],
        columns: Mapping[str, Sequence[Any]],
        places: Sequence[int] | None = None,
    ) -> None:
        self.record, self._same, self._columns = record, same, columns
        self._places = range(len(next(iter(columns.values())))) if places is None else places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[R]:
        return iter(of_columns(self.record, self._same, {name: self.column(name) for name in self._columns}))

    def column(self, name: str) -> Sequence[Any]:
        """The values of one field."""
        if name in self._same:
            return [self._same[name]] * len(self)
        values, places = self._columns[name], self._places
        return values[places.start : places.stop] if isinstance(places, range) else [values[at] for at in places]

    def have(self, name: str, value: Any) -> bool:
        """Whether a field has this value in every row, as far as it takes no search: of a field that is kept once."""
        return name in self._same and bool(self._same[name] == value)

    def chosen(self, places: Sequence[int]) -> ColumnRows[R]:
        """The rows at these places, which rise; a range has a step of 1."""
        if len(places) == len(self):
            return self
        mine = self._places
        found = mine[places.start : places.stop] if isinstance(places, range) else [mine[at] for at in places]
        return ColumnRows(self.record, self._same, self._columns, found)


def column_of(rows: Sequence[R], name: str) -> Sequence[Any]:
    """The values of one field, of rows however they are kept."""
    return rows.column(name) if isinstance(rows, ColumnRows) else [getattr(row, name) for row in rows]


def rows_with(rows: Sequence[R], wanted: Mapping[str, Any]) -> Sequence[R]:
    """The rows whose fields have these values, kept as the others are."""
    places: Sequence[int] = range(len(rows))
    for name, value in wanted.items():
        if isinstance(rows, ColumnRows) and rows.have(name, value):
            continue
        column = column_of(rows, name)
        if column.count(value) < len(rows):
            places = [place for place in places if column[place] == value]
    return rows if len(places) == len(rows) else chosen_of(rows, places)


def chosen_of(rows: Sequence[R], places: Sequence[int]) -> Sequence[R]:
    """The rows at these places, which rise, kept as the others are."""
    return rows.chosen(places) if isinstance(rows, ColumnRows) else [rows[at] for at in places]


@dataclass(frozen=True, kw_only=True)
class OfCell(Record):
    """Base of what is derived of one attempt at a cell: the first columns of its file."""

    cell_id: str
    attempt: int
    model: str
    batch_size: int
    precision: str
    device: str


def header(record: type[Record]) -> tuple[str, ...]:
    """Column names of a record's file."""
    if record not in _HEADERS:
        _HEADERS[record] = tuple(f.name for f in dataclasses.fields(record))  # type: ignore[arg-type]
    return _HEADERS[record]


_HEADERS: dict[type, tuple[str, ...]] = {}
"""Asked for each row that is compared: a table, as `_COLUMNS`."""


def to_values(record: Record) -> list[str]:
    """The fields of a record as CSV texts, in the order of its header.

    Raises ValueError for a value that could not be read back as the field's type: a float where an exact integer is
    kept, None where the field has no unknown.
    """
    texts = []
    for name, column in _columns(type(record)).items():
        value = getattr(record, name)
        kind = type(value)
        if kind in column.simple:  # most of a sample's fields; the rest of this loop would say the same
            texts.append(repr(value))
            continue
        if value is None and column.optional:  # the same
            texts.append("")
            continue
        if kind is str and column.short is literal:  # the same
            texts.append(_cell_word(value) if len(value) <= _LONGEST_KEPT else cell_text(value))
            continue
        texts.append(_checked_text(type(record), name, column, value))
    return texts


def to_columns(record: type[R], rows: Sequence[R], field: Callable[[str], str] = str) -> list[list[str]]:
    """The same of many records of one kind, a list of texts for each field: quicker where there are many.

    field: what a file makes of a text, such as quotes around it; numbers and booleans are asked for none. Raises
    ValueError as `to_values` does, for the first field of which a value could not be read back.
    """
    columns = _columns(record)
    values: Iterable[Sequence[Any]] = zip(*map(operator.itemgetter(*columns), map(vars, rows)), strict=True)
    found = [_column_texts(record, *named, each, field) for named, each in zip(columns.items(), values, strict=False)]
    return found or [[] for _ in columns]


def _column_texts(
    record: type[Record], name: str, column: _Column, values: Sequence[Any], field: Callable[[str], str]
) -> list[str]:
    kinds = set(map(type, values))
    if kinds <= (column.simple | {types.NoneType} if column.optional else column.simple):
        return _number_texts(values, kinds - {types.NoneType})
    if kinds == {bool} == {*column.kinds}:
        return ["true" if value else "false" for value in values]
    words = kinds == {str} and column.short is literal
    if words or (kinds == {tuple} <= {*column.kinds} and _are_alike(values)):
        return _of_each(values, {value: field(cell_text(value)) for value in set(values)})
    bare = column.kinds == (Mapping,)
    return [field("{}" if bare and value == {} else _checked_text(record, name, column, value)) for value in values]


def _number_texts(values: Sequence[Any], kinds: set[type]) -> list[str]:
    """kinds: the types of the numbers. Of one type equal numbers have one text, but for zeros of either sign."""
    distinct = set(values)
    if len(kinds) > 1 or (float in kinds and 0.0 in distinct):
        return ["" if value is None else repr(value) for value in values]
    return _of_each(values, {value: "" if value is None else repr(value) for value in distinct})


def _of_each(values: Sequence[Any], texts: Mapping[Any, str]) -> list[str]:
    """The text of each value, quickly where all are one. texts: of the values that differ."""
    return [*texts.values()] * len(values) if len(texts) == 1 else list(map(texts.__getitem__, values))


def _are_alike(values: Iterable[tuple[Any, ...]]) -> bool:
    """Whether tuples hold words alone, or integers alone: equal numbers may have texts that differ, as 1 and 1.0."""
    kinds = {type(part) for value in values for part in value}
    return kinds <= {str} or kinds == {int}


def _checked_text(record: type[Record], name: str, column: _Column, value: Any) -> str:
    value = plain(value)
    if not _fits(value, column):
        raise ValueError(f"{record.__name__}.{name}: expected {column.label}, got {value!r}")
    return json.dumps(value) if column.anything and isinstance(value, str) else cell_text(value)


def to_text(value: Any) -> str:
    """One value as CSV text: '' for None, true/false, exact integers, shortest round-trip floats, compact JSON."""
    if value is None:
        return ""
    value = plain(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if value.isascii() and value.isprintable():
            return str(value)
        return value.translate(_ONE_LINE).encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    return (_SORTED if isinstance(value, Mapping) else _IN_ORDER).encode(value)


def cell_text(value: Any) -> str:
    """One value as the text of a CSV cell: `to_text`, with an apostrophe before text that begins like a formula.

    Names in the files of others (modules, kernels, devices) may begin with one of `= + - @` or a tab, which
    spreadsheets calculate. Numbers stay as they are. `literal` takes the apostrophe away again.
    """
    text = to_text(value)
    return f"'{text}" if text[:1] in _FORMULA_STARTS and isinstance(value, str) and _FORMULA.match(text) else text


_cell_word = functools.lru_cache(1 << 14)(cell_text)
"""Of short texts, which repeat: names, units, sources."""


def literal(text: str) -> str:
    """The text that `cell_text` wrote as `text`."""
    return text[1:] if text[:1] == "'" and _FORMULA.match(text) else text


def plain(value: Any) -> Any:
    """Python's own number for a zero-dimensional NumPy (or torch) value; anything else as it is."""
    if isinstance(value, (str, int, float)) and type(value).__module__ != "numpy":
        return value
    item = getattr(value, "item", None)
    return item() if callable(item) else value


def kinds_of(hint: Any) -> tuple[Any, ...]:
    """The types a field may hold, without None and without what they contain: (int, float) of `int | float | None`."""
    return _column(hint).kinds


def from_text(text: str, hint: Any, name: str = "") -> Any:
    """The value of type `hint` that `to_text` wrote as `text`.

    Raises ValueError, naming the column `name`, for text that the type cannot hold.
    """
    return _from_text(text, _column(hint), name)


def from_cell(text: str, hint: Any, name: str = "") -> Any:
    """`from_text`, quicker for what a large file holds most of; tuples of equal texts may be one."""
    return _read(text, _column(hint), name)


def _read(text: str, column: _Column, name: str) -> Any:
    """`_from_text`, without its questions for nearly every field of a large file."""
    if text and column.short is not None:
        try:
            value = column.short(text)
        except (ValueError, RecursionError):
            pass  # said below
        else:
            if value == value:  # no NaN
                return value
    return _from_text(text, column, name)


def _from_text(text: str, column: _Column, name: str) -> Any:
    if text == "" and (column.optional or str not in column.kinds):
        return None if column.optional else _empty(column, name)
    if column.optional and float in column.kinds and text.lower() == "nan":
        return None
    for kind in column.kinds:
        try:
            return _parse(text, kind)
        except (ValueError, KeyError, RecursionError) as fault:  # the last: of lists within lists
            if kind is column.kinds[-1]:
                shown = shortened(text, _LONGEST_TOLD)
                raise ValueError(f"column {name}: expected {column.label}, got {shown!r}") from fault
    raise AssertionError("a column has at least one kind")


@dataclass(frozen=True)
class _Column:
    """A field's type, taken apart: `kinds` are the types it may hold, tried in the annotation's order, without None.

    simple: the exact types of values whose text is their repr. short: what reads a text that is not empty, of a field
    of one type; it raises ValueError for what it cannot read.
    """

    kinds: tuple[Any, ...]
    optional: bool
    anything: bool
    label: str
    simple: frozenset[type]
    short: Callable[[str], Any] | None


@functools.cache
def _column(hint: Any) -> _Column:
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    kinds = tuple(typing.get_origin(option) or option for option in options if option is not types.NoneType)
    label = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
    simple = {float, int} if float in kinds else {int} & {*kinds}
    short = _SHORT.get(kinds[0]) if len(kinds) == 1 else None
    return _Column(kinds, types.NoneType in options, Any in kinds, label, frozenset(simple), short)


_COLUMNS: dict[type, dict[str, _Column]] = {}


def _columns(record: type[Record]) -> dict[str, _Column]:
    if record not in _COLUMNS:
        hints = typing.get_type_hints(record)
        _COLUMNS[record] = {name: _column(hints[name]) for name in header(record)}
    return _COLUMNS[record]


def _fits(value: Any, column: _Column) -> bool:
    if value is None:
        return column.optional or column.anything
    if column.anything:
        return True
    return any(_holds(kind, value) for kind in column.kinds)


def _holds(kind: Any, value: Any) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is tuple:
        return isinstance(value, (tuple, list))
    return isinstance(value, kind)


def _parse(text: str, kind: Any) -> Any:
    if kind is str:
        return literal(text)
    if kind is bool:
        return {"true": True, "false": False}[text]
    if kind is int:
        return int(text)
    if kind is float:
        return float(text)
    value = json.loads(text)
    if kind is not Any and not isinstance(value, list if kind is tuple else kind):
        raise ValueError(f"expected JSON of a {getattr(kind, '__name__', kind)}, got {text}")  # "null" is no mapping
    return _tuples(value) if kind is tuple else value


@functools.lru_cache(4096)
def _tuple(text: str) -> tuple[Any, ...]:
    """`_parse` of a tuple of numbers, words and tuples, which may be shared: a step repeats its shapes."""
    if len(text) > _LONGEST_KEPT or "{" in text:
        raise ValueError("not kept")
    found: tuple[Any, ...] = _parse(text, tuple)
    return found


_LONGEST_KEPT = 256
"""Characters of a text that `_tuple` and `_cell_word` keep."""

_LONGEST_TOLD = 200
"""Characters of a text that an error names."""

_SHORT: Mapping[Any, Callable[[str], Any]] = {str: literal, int: int, float: float, tuple: _tuple}


def _empty(column: _Column, name: str) -> Any:
    kind = column.kinds[0]
    if kind is tuple:
        return ()
    if kind is Any:
        return None
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return {}
    raise ValueError(f"column {name}: an empty field where {column.label} was expected")


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def json_default(value: Any) -> Any:
    """What `json.dumps` writes for a value it does not know: sets sorted, NumPy's numbers plain, all else as text."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    number = plain(value)
    return str(value) if number is value else number


_SORTED = json.JSONEncoder(separators=(",", ":"), sort_keys=True, default=json_default)
_IN_ORDER = json.JSONEncoder(separators=(",", ":"), default=json_default)

_FORMULA = re.compile(r"'*[=+\-@\t]")
"""What a spreadsheet calculates, and apostrophes before it: of these `cell_text` adds one and `literal` takes one."""

_FORMULA_STARTS = "'=+-@\t"
"""With what `_FORMULA` begins."""

_ONE_LINE = {ord(character): " " for character in "\r\n\0"}
