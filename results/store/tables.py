"""The rows of a file as records, and records as a pandas table with the types of their fields.

In a pandas table exact integers never pass through a float: they become `Int64` with gaps, or Python integers (dtype
object) where one is beyond 64 bits. Floats are float64 with NaN for unknown, booleans `boolean`, text `str` with "" for
empty. A field that may be an integer or a float stays Python numbers (dtype object). Nested values are compact JSON
text, "" for unknown: `json.loads` opens them. pandas is imported only where somebody asks for such a table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.records.rows import Column, R, Record, columns_of, read_rows, to_text
from results.records.vocabulary import SCHEMA_VERSION
from results.store.layout import decode, lines_of
from results.store.migrations import migrate
from results.text_files import csv_table, read_text

if TYPE_CHECKING:
    import pandas as pd


def records(file: str, record: type[R], names: Sequence[str], block: bytes, version: int = SCHEMA_VERSION) -> list[R]:
    """`read_block`, whose ValueError has the name of the file."""
    try:
        return read_block(file, record, names, block, version)
    except ValueError as fault:
        raise _of_file(file, fault) from fault


def read_block(
    file: str, record: type[R], names: Sequence[str], block: bytes, version: int = SCHEMA_VERSION
) -> list[R]:
    """The records of whole lines whose columns are `names`; those of an older version are migrated first.

    Raises ValueError for lines that are no CSV, a line of another width, and as `read_rows` of results/records does.
    """
    rows = decode(lines_of(block))
    for row in rows:
        if len(row) != len(names):
            raise ValueError(f"expected {len(names)} fields, got {len(row)} in {','.join(row)[:60]!r}")
    if version == SCHEMA_VERSION or not rows:
        return read_rows(record, names, rows)
    migrated = [migrate(file, dict(zip(names, row, strict=True)), version) for row in rows]
    return read_rows(record, list(migrated[0]), [list(row.values()) for row in migrated])


def read_records(path: Path, record: type[R]) -> list[R]:
    """The records of a derived table (.csv or .csv.gz); none where the file is missing or empty.

    Raises ValueError for a file that is not the table its name says.
    """
    try:
        return read_rows(record, *csv_table(read_text(path)))
    except FileNotFoundError:
        return []
    except ValueError as fault:
        raise _of_file(str(path), fault) from fault


def _of_file(file: str, fault: ValueError) -> ValueError:
    """The fault with the name of the file: "samples.csv, column wall_s: …" of a value, "samples.csv: …" of the rest."""
    return ValueError(f"{file}{',' if _OF_A_VALUE.match(str(fault)) else ':'} {fault}")


_OF_A_VALUE = re.compile(r"column \w+:")


def table(record: type[Record], rows: Sequence[Record]) -> pd.DataFrame:
    """The rows with a column for each field of their record."""
    import pandas as pd

    columns = columns_of(record).items()
    return pd.DataFrame({name: _series(column, [getattr(row, name) for row in rows]) for name, column in columns})


def _series(column: Column, values: list[Any]) -> pd.Series[Any]:
    import numpy as np
    import pandas as pd

    if column.kinds == (int,):
        limits, known = np.iinfo(np.int64), [value for value in values if value is not None]
        if known and not limits.min <= min(known) <= max(known) <= limits.max:
            return pd.Series(values, dtype=object)
        unknown = np.array([value is None for value in values], dtype=bool)
        exact = np.array([0 if value is None else value for value in values], dtype=np.int64)
        return pd.Series(pd.arrays.IntegerArray(exact, unknown))
    if column.kinds == (int, float):
        return pd.Series(values, dtype=object)
    if column.kinds in ((float,), (bool,)):
        return pd.Series(values, dtype=np.float64 if column.kinds == (float,) else "boolean")
    return pd.Series([to_text(value) for value in values], dtype="str")
