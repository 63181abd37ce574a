"""Rows as Parquet: the columns of the CSV file with the types of the record's fields, unknown is null.

Needs pyarrow, which is optional (`requirements-parquet.txt`). Whole numbers are 64 bits wide; a column that holds a
larger one is decimal text. Lists and other nested values are JSON text, as in CSV, so that every reader takes them.
Text that begins like a formula has no apostrophe here: no spreadsheet calculates it.
"""

from __future__ import annotations

import importlib.util
import io
import typing
from collections.abc import Sequence
from typing import Any

from results.records.rows import Record, header, kinds_of, to_text

LARGEST = 2**63 - 1

NEEDED = "pyarrow, which is not installed: python -m pip install -r requirements-parquet.txt"


def can_write() -> bool:
    """Whether pyarrow is there."""
    return importlib.util.find_spec("pyarrow") is not None


def to_parquet(rows: Sequence[Record], record: type[Record]) -> bytes:
    """Rows as one Parquet file, the columns being the record's fields. Raises ImportError without pyarrow."""
    import pyarrow
    from pyarrow import parquet

    hints = typing.get_type_hints(record)
    columns = {}
    for name in header(record):
        values = [getattr(row, name) for row in rows]
        word = _type(values, kinds_of(hints[name]))
        columns[name] = pyarrow.array([_cell(value, word) for value in values], getattr(pyarrow, word)())
    out = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), out, compression="zstd")
    return out.getvalue()


def _type(values: Sequence[Any], kinds: Sequence[Any]) -> str:
    """pyarrow's word for the column's type."""
    if kinds == (bool,):
        return "bool_"
    if kinds == (int,):
        return "string" if any(value is not None and abs(int(value)) > LARGEST for value in values) else "int64"
    return "float64" if set(kinds) <= {int, float} else "string"


def _cell(value: Any, word: str) -> Any:
    """A value as the type has it."""
    if value is None:
        return None
    if word == "string":
        return to_text(value)
    return {"bool_": bool, "int64": int, "float64": float}[word](value)
