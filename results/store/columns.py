"""Rows of text, column by column, and as records again: one typed value a field, unknown is None.

What every reader of a table shares, whether it wants records (here) or a pandas table (`tables.py`). Knows no pandas.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from results.records import SCHEMA_VERSION, ColumnRows, Record, from_cell, header, kinds_of, to_text
from results.store.layout import decode, lines_of
from results.store.migrations import migrate
from results.store.ranges import check_value, has_range
from results.text_files import csv_lines, read_text

R = TypeVar("R", bound=Record)

Block = Sequence[Sequence[str]] | bytes
"""Rows of text that belong together, those of one attempt; or the whole lines of their file."""

_NUMBERS = ((int,), (float,), (bool,))
"""Kinds of fields in whose columns an empty text is unknown, whatever the field says."""


_SMALL, _TOGETHER = 4096, 100
"""Bytes below which a block is split together with those after it, and how many blocks together."""


@dataclass
class _Column:
    """The texts of one column. values: one a row, or the one text that all rows have; rows: how many there are."""

    values: list[str] = field(default_factory=list)
    rows: int = 0

    def add(self, values: Sequence[str] | str, rows: int) -> None:
        """Texts of some more rows; a text: each of them has it."""
        if isinstance(values, str) and (not self.rows or (self._is_one and self.values[0] == values)):
            self.values = [values]
        else:
            self.values = self.all()
            self.values.extend([values] * rows if isinstance(values, str) else values)
        self.rows += rows

    def all(self) -> list[str]:
        """A text for each row."""
        return self.values * self.rows if self._is_one else self.values

    @property
    def _is_one(self) -> bool:
        return len(self.values) == 1


def records(
    file: str,
    record: type[R],
    names: Sequence[str],
    blocks: Iterable[Block],
    version: int = SCHEMA_VERSION,
    whole: bool = False,
) -> ColumnRows[R]:
    """The records of rows whose columns are `names`; rows of an older version are migrated first.

    whole: nothing is unknown but where the field's type says so. Equal texts of a column are one value, which records
    share: it is not to be changed. Raises ValueError as `texts` does, for text that its
    field cannot hold, and for a number outside its field's range; each with the name of the file.
    """
    hints = _hints(record)  # type: ignore[arg-type]  # a class can be hashed
    required = _required_fields(record, whole)  # type: ignore[arg-type]  # a class can be hashed
    same: dict[str, Any] = {}
    columns: dict[str, Sequence[Any]] = {}
    for name, column in _columns(file, record, names, blocks, version).items():
        try:
            distinct = set(column.values)
            if whole and float in kinds_of(hints[name]) and any(map(_is_other_nan, distinct)):
                raise ValueError(f"{name}: expected a number, got NaN")
            known = _values(record, name, hints[name], distinct)
            if None in known.values() and name in required:
                raise ValueError(f"{name}: expected a number, got nothing")
        except ValueError as fault:
            raise ValueError(f"{file}, {fault}") from fault
        if len(known) == 1 and columns:
            same[name] = known[column.values[0]]
        else:
            columns[name] = list(map(known.__getitem__, column.all()))
    return ColumnRows(record, same, columns)


def _values(record: type[Record], name: str, hint: Any, texts: set[str]) -> dict[str, Any]:
    """Text → value. Raises ValueError for text that the field cannot hold, and for a number outside its range."""
    known = _numbers(texts, kinds_of(hint))
    if known is None:
        known = {text: _value(text, hint, name) for text in texts}
        checked: Iterable[Any] = known.values()
    else:
        numbers = [value for value in known.values() if value is not None]
        checked = (min(numbers), max(numbers)) if numbers else ()  # a range is all that lies between two numbers
    if has_range(record, name):
        for value in checked:
            check_value(record, name, value)
    return known


def _numbers(texts: Iterable[str], kinds: tuple[Any, ...]) -> dict[str, Any] | None:
    """Text → number, or None for an empty text; None where one is no finite number, or the field is none of numbers."""
    if kinds not in ((int,), (float,)):
        return None
    (kind,) = kinds
    try:
        known = {text: kind(text) if text else None for text in texts}
    except ValueError:
        return None
    finite = kind is int or all(value is None or math.isfinite(value) for value in known.values())
    return known if finite else None


@functools.cache
def _hints(record: Any) -> dict[str, Any]:
    return typing.get_type_hints(record)


@functools.cache
def _required_fields(record: Any, whole: bool) -> frozenset[str]:
    """The fields that every row has: not unknown by their type and, unless the rows are whole, without a default."""
    hints = _hints(record)
    absent = dataclasses.MISSING
    needed = [f.name for f in dataclasses.fields(record) if whole or f.default is f.default_factory is absent]
    return frozenset(name for name in needed if types.NoneType not in typing.get_args(hints[name]))


def read_records(
    path: Path, record: type[R], column: str = "", wanted: Callable[[str], bool] | None = None
) -> tuple[R, ...]:
    """The records of a derived table (.csv or .csv.gz); none where the file is missing or empty.

    column, wanted: only rows whose text in this column is wanted; the others are not looked at, and cost no time.
    Raises ValueError for a file that is not the table its name says.
    """
    names, rows = read_rows(path)
    if wanted is not None and column in names:
        place = names.index(column)
        chosen = {text for text in {row[place] for row in rows if len(row) > place} if wanted(text)}
        rows = [row for row in rows if len(row) <= place or row[place] in chosen]
    return tuple(records(str(path), record, names, [rows])) if rows else ()


def read_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a table (.csv or .csv.gz); both empty where the file is missing or empty."""
    try:
        names, *rows = csv_lines(read_text(path)) or [[]]
    except FileNotFoundError:
        return [], []
    return names, rows


def texts(
    file: str, record: type[Record], names: Sequence[str], blocks: Iterable[Block], version: int = SCHEMA_VERSION
) -> dict[str, list[str]]:
    """The columns of `record` as they are written; a column that is missing has its field's default.

    Raises ValueError for a row of another width or a column without default that is missing.
    """
    return {name: column.all() for name, column in _columns(file, record, names, blocks, version).items()}


def _columns(
    file: str, record: type[Record], names: Sequence[str], blocks: Iterable[Block], version: int
) -> dict[str, _Column]:
    columns: dict[str, _Column] = {name: _Column() for name in header(record)}
    defaults = _defaults(record)
    for block in _joined_blocks(blocks):
        _extend(file, columns, *_by_column(file, names, block, version), defaults)
    return columns


def _joined_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks that are not empty, small ones together. A quote may hide a line's end: such a block stays alone."""
    small: list[bytes] = []
    for block in blocks:
        if isinstance(block, bytes) and len(block) < _SMALL and b'"' not in block:
            small.append(block)
            if len(small) < _TOGETHER:
                continue
            block = b""
        if together := b"".join(small):
            yield together
        small = []
        if block:
            yield block
    if together := b"".join(small):
        yield together


def _value(text: str, hint: Any, name: str) -> Any:
    if not text and kinds_of(hint) in _NUMBERS:
        return None
    value = from_cell(text, hint, name)
    return None if isinstance(value, float) and math.isnan(value) else value


def _is_other_nan(text: str) -> bool:
    """Whether float() takes the text for NaN, and no writer wrote it: with a sign or a space."""
    return text.lower() != "nan" and text.strip().lower().lstrip("+-") == "nan"


def _by_column(
    file: str, names: Sequence[str], block: Block, version: int
) -> tuple[int, dict[str, Sequence[str] | str]]:
    """How many rows a block has, and its columns as `_Column.add` takes them. Block by block, because a list of every
    row would keep the garbage collector busy."""
    if isinstance(block, bytes):
        if version == SCHEMA_VERSION and (found := _without_quotes(block, len(names))):
            return block.count(b"\n"), dict(zip(names, found, strict=True))
        block = decode(lines_of(block))
    for row in block:
        if len(row) != len(names):
            raise ValueError(f"{file}: expected {len(names)} fields, got {len(row)} in {','.join(row)[:60]!r}")
    if version == SCHEMA_VERSION:
        return len(block), dict(zip(names, zip(*block, strict=True), strict=True))
    rows = [migrate(file, dict(zip(names, row, strict=True)), version) for row in block]
    return len(rows), {name: [row[name] for row in rows] for name in rows[0]}


_END = ",\n,"
"""A line's end as a field of its own."""


def _without_quotes(block: bytes, width: int) -> list[list[str] | str] | None:
    """The columns of whole lines that need no reader of CSV; None where one has quotes, is of another width, or is no
    text. The first two fields, the attempt's, and the last ones without text are not split where all lines have them
    so."""
    if b'"' in block or b"\r" in block:
        return None
    try:
        text = block.decode()
    except UnicodeDecodeError:
        return None
    rows, first = text.count("\n"), text[: text.index("\n")]
    start = first[: first.find(",", first.find(",") + 1) + 1]
    if width < 3 or start.count(",") != 2 or text.count(f"\n{start}") != rows - 1:
        start = ""
    rest = first[len(start) :]
    end = rest[len(rest.rstrip(",")) :]
    if text.count(f"{end}\n") != rows:
        end = ""
    text = f"\n{text}".replace(f"\n{start}", "\n")[1:] if start else text
    inner = width - start.count(",") - len(end)
    fields = text.replace(f"{end}\n", _END).split(",")
    ends = fields[inner :: inner + 1] if inner > 0 else []
    if len(fields) != rows * (inner + 1) + 1 or ends.count("\n") != rows:
        return None
    return [*start.split(",")[:-1], *(fields[place : -1 : inner + 1] for place in range(inner)), *[""] * len(end)]


def _extend(
    file: str,
    columns: Mapping[str, _Column],
    rows: int,
    found: Mapping[str, Sequence[str] | str],
    defaults: Mapping[str, str],
) -> None:
    for name, column in columns.items():
        if name in found:
            column.add(found[name], rows)
        elif name in defaults:
            column.add(defaults[name], rows)
        else:
            raise ValueError(f"{file}: column {name} is missing")


def _defaults(record: type[Record]) -> dict[str, str]:
    """Column → text of the field's default, for the fields that have one."""
    defaults = {}
    for f in dataclasses.fields(record):  # type: ignore[arg-type]
        if f.default is not dataclasses.MISSING:
            defaults[f.name] = to_text(f.default)
        elif f.default_factory is not dataclasses.MISSING:
            defaults[f.name] = to_text(f.default_factory())
    return defaults
