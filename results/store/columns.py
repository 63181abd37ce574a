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
from typing import Any

from results.records.rows import ColumnRows, R, Record, from_cell, header, kinds_of, to_text
from results.records.vocabulary import SCHEMA_VERSION
from results.store.layout import decode, lines_of
from results.store.migrations import migrate
from results.store.ranges import check_value, has_range
from results.text_files import csv_lines, read_text

Block = Sequence[Sequence[str]] | bytes
"""Rows of text that belong together, those of one attempt; or the whole lines of their file."""

_NUMBERS = ((int,), (float,), (bool,))
"""Kinds of fields in whose columns an empty text is unknown, whatever the field says."""


_SMALL, _TOGETHER = 4096, 100
"""Bytes below which a block is split together with those after it, and how many blocks together."""

_KEPT = 1 << 14
"""Texts of one column whose numbers are kept until they come again."""


@dataclass
class _Column:
    """One column of a file. number: what makes a value of each of its texts; None: texts they stay. pieces: of each
    block a value for each of its rows, or the one text that all of them have.

    Of the numbers in the former, known: text → number; ends: the least and the largest of each block's new ones; total:
    the sum of those; gaps: whether one is not there.
    """

    number: Callable[[str], Any] | None = None
    pieces: list[Sequence[Any] | str] = field(default_factory=list)
    known: dict[str, Any] = field(default_factory=dict)
    ends: list[Any] = field(default_factory=list)
    total: float = 0
    gaps: bool = False

    def add(self, texts: Sequence[str] | str) -> None:
        """Those of one more block. Raises ValueError for one that is no number where it ought to be."""
        if isinstance(texts, str) or texts.count(texts[0]) == len(texts):
            self.pieces.append(texts if isinstance(texts, str) else texts[0])
        elif self.number is None:
            self.pieces.append(texts)
        else:
            self.pieces.append(self._numbers(texts, self.number))

    def _numbers(self, texts: Sequence[str], number: Callable[[str], Any]) -> list[Any]:
        """A number for each text, None for an empty one."""
        known = self.known if len(self.known) < _KEPT else {}
        if made := {text: number(text) for text in {*texts}.difference(known) if text}:
            self.ends += min(made.values()), max(made.values())
            self.total += sum(made.values())
            known.update(made)
        if "" in texts:
            self.gaps, known[""] = True, None
        return list(map(known.__getitem__, texts))

    def texts(self) -> set[str]:
        """The texts among its pieces, each once."""
        found = {piece for piece in self.pieces if isinstance(piece, str)}
        return found if self.number is not None else found.union(*self.pieces_of_rows())

    def pieces_of_rows(self) -> list[Sequence[Any]]:
        """Those that have a value for each row."""
        return [piece for piece in self.pieces if not isinstance(piece, str)]

    def all(self, rows: Sequence[int], known: Mapping[str, Any]) -> list[Any]:
        """A value for each row. rows: of each piece; known: text → value."""
        found: list[Any] = []
        for count, piece in zip(rows, self.pieces, strict=True):
            if isinstance(piece, str):
                found += [known[piece]] * count
            else:
                found += piece if self.number is not None else map(known.__getitem__, piece)
        return found


def records(
    file: str,
    record: type[R],
    names: Sequence[str],
    blocks: Iterable[Block],
    version: int = SCHEMA_VERSION,
    whole: bool = False,
) -> ColumnRows[R]:
    """The records of rows whose columns are `names`; rows of an older version are migrated first.

    whole: nothing is unknown but where the field's type says so. Equal texts of a column may be one value that records
    share: it is not to be changed. Raises ValueError as `texts` does, for text that its field cannot hold, and for a
    number outside its field's range; each with the name of the file.
    """
    given, numbers = list(blocks), _number_fields(record)  # type: ignore[arg-type]  # a class can be hashed
    try:
        return _records(file, record, names, given, version, whole, numbers)
    except ValueError:  # not all are finite numbers, or something is wrong: what, is said of the texts
        return _records(file, record, names, given, version, whole, {})


def _records(
    file: str,
    record: type[R],
    names: Sequence[str],
    blocks: Sequence[Block],
    version: int,
    whole: bool,
    numbers: Mapping[str, Callable[[str], Any]],
) -> ColumnRows[R]:
    """As `records`. numbers: the fields whose texts become finite numbers as they are read, which is quicker."""
    hints = _hints(record)  # type: ignore[arg-type]  # a class can be hashed
    required = _required_fields(record, whole)  # type: ignore[arg-type]  # a class can be hashed
    same: dict[str, Any] = {}
    columns: dict[str, Sequence[Any]] = {}
    rows, found = _columns(file, record, names, blocks, version, numbers)
    for name, column in found.items():
        try:
            distinct = column.texts()
            if whole and float in kinds_of(hints[name]) and any(map(_is_other_nan, distinct)):
                raise ValueError(f"{name}: expected a number, got NaN")
            known = _values(record, name, hints[name], distinct)
            if None in known.values() and name in required:
                raise ValueError(f"{name}: expected a number, got nothing")
            if column.number is not None:
                _check_numbers(record, name, column, name in required)
        except ValueError as fault:
            raise ValueError(f"{file}, {fault}") from fault
        if columns and len(known) == 1 and not column.pieces_of_rows():
            (same[name],) = known.values()
        else:
            columns[name] = column.all(rows, known)
        column.pieces.clear()
    return ColumnRows(record, same, columns)


def _check_numbers(record: type[Record], name: str, column: _Column, needed: bool) -> None:
    """Raises ValueError where a number is not finite, is outside its range, or is not there and needed."""
    if needed and column.gaps:
        raise ValueError(f"{name}: expected a number, got nothing")
    if column.number is float and not math.isfinite(column.total):
        raise ValueError(f"{name}: expected finite numbers")
    for value in (min(column.ends), max(column.ends)) if column.ends and has_range(record, name) else ():
        check_value(record, name, value)


@functools.cache
def _number_fields(record: Any) -> dict[str, Callable[[str], Any]]:
    """Field → int or float, of the fields of finite numbers of one kind."""
    kinds = {name: kinds_of(hint) for name, hint in _hints(record).items()}
    return {name: found[0] for name, found in kinds.items() if found in ((int,), (float,))}


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


def read_records(path: Path, record: type[R]) -> tuple[R, ...]:
    """The records of a derived table (.csv or .csv.gz); none where the file is missing or empty.

    Raises ValueError for a file that is not the table its name says.
    """
    names, rows = read_rows(path)
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
    rows, found = _columns(file, record, names, blocks, version, {})
    return {name: column.all(rows, {text: text for text in column.texts()}) for name, column in found.items()}


def _columns(
    file: str,
    record: type[Record],
    names: Sequence[str],
    blocks: Iterable[Block],
    version: int,
    numbers: Mapping[str, Callable[[str], Any]],
) -> tuple[list[int], dict[str, _Column]]:
    """The rows of each block, and the columns. numbers: the fields whose texts become numbers."""
    columns = {name: _Column(numbers.get(name)) for name in header(record)}
    rows, defaults = [], _defaults(record)
    for block in _joined_blocks(blocks):
        count, found = _by_column(file, names, block, version)
        rows.append(count)
        for name, column in columns.items():
            texts = found.get(name, defaults.get(name))
            if texts is None:
                raise ValueError(f"{file}: column {name} is missing")
            column.add(texts)
    return rows, columns


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
    """How many rows a block has, and its columns as `_Column.add` takes them. Block by block, so that few texts are
    there at a time."""
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
    inner = width - start.count(",") - len(end)
    text = text[len(start) : len(text) - len(end) - 1].replace(f"{end}\n{start}", _END)
    fields = f"{text}{_END}".split(",")
    ends = fields[inner :: inner + 1] if inner > 0 else []
    if len(fields) != rows * (inner + 1) + 1 or ends.count("\n") != rows:
        return None
    return [*start.split(",")[:-1], *(fields[place : -1 : inner + 1] for place in range(inner)), *[""] * len(end)]


def _defaults(record: type[Record]) -> dict[str, str]:
    """Column → text of the field's default, for the fields that have one."""
    defaults = {}
    for f in dataclasses.fields(record):  # type: ignore[arg-type]
        if f.default is not dataclasses.MISSING:
            defaults[f.name] = to_text(f.default)
        elif f.default_factory is not dataclasses.MISSING:
            defaults[f.name] = to_text(f.default_factory())
    return defaults
