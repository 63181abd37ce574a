"""The rows of a file as records, and records as a pandas table with the types of their fields.

In a pandas table exact integers never pass through a float: they become `Int64` with gaps, or Python integers (dtype
object) where one is beyond 64 bits. Floats are float64 with NaN for unknown, booleans `boolean`, text `str` with "" for
empty. A field that may be an integer or a float stays Python numbers (dtype object). Nested values are compact JSON
text, "" for unknown: `json.loads` opens them. pandas is imported only where somebody asks for such a table.

Reading changes no file. A run of an older schema version that is resumed gets the columns of this version first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.records.cell import Run
from results.records.rows import Column, R, Record, columns_of, read_rows, to_text
from results.store import layout
from results.store.disk import Disk, read, replace
from results.store.layout import decode, lines_of
from results.text_files import csv_table, read_text

if TYPE_CHECKING:
    import pandas as pd


def records(file: str, record: type[R], names: Sequence[str], block: bytes) -> list[R]:
    """`read_block`, whose ValueError has the name of the file."""
    try:
        return read_block(record, names, block)
    except ValueError as fault:
        raise _of_file(file, fault) from fault


def read_block(record: type[R], names: Sequence[str], block: bytes) -> list[R]:
    """The records of whole lines whose columns are `names`; a column that an older version lacks has its default.

    Raises ValueError for lines that are no CSV, a line of another width, and as `read_rows` of results/records does.
    """
    rows = decode(lines_of(block))
    for row in rows:
        if len(row) != len(names):
            raise ValueError(f"expected {len(names)} fields, got {len(row)} in {','.join(row)[:60]!r}")
    return read_rows(record, names, rows)


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


RESUMABLE = 6
"""The first version whose runs can be resumed: later ones only add columns to runs.csv."""


def check_resumable(version: int, path: Path) -> None:
    """Raises ValueError unless rows of this version can be added to a run of `version`."""
    if version < RESUMABLE:
        raise ValueError(
            f"{path} has schema version {version}, --resume needs version {RESUMABLE} or newer: start a new run"
        )


def add_columns(path: Path, disk: Disk) -> None:
    """Adds the columns that runs.csv of an older version lacks, with their defaults and new checksums, at once.

    A row whose checksum is wrong keeps it. A process that is killed afterwards leaves a run that can be read and
    resumed. Raises ValueError for other columns, OSError if the file cannot be replaced.
    """
    top, _, body = (read(path / layout.RUNS) or b"").partition(b"\n")
    if not top or top + b"\n" == layout.head_of(layout.RUNS):
        return
    (names,) = layout.decode([top])
    if not {*names} <= {*layout.columns(layout.RUNS)}:
        raise ValueError(f"{path / layout.RUNS} was written with other columns: start a new run")
    new_top = layout.head_of(layout.RUNS).rstrip(b"\n")
    rows, before, new_before = [new_top], b"", b""
    for line in layout.lines_of(body):
        row, _, seal = line.rpartition(b",")
        intact, before = seal == layout.seal_row(top, row, before), seal
        if intact:
            run = Run.from_row(dict(zip(names, layout.decode([line])[0], strict=True)))
            row = layout.encode([run]).rstrip(b"\n")
        new_before = layout.seal_row(new_top, row, new_before) if intact else seal
        rows.append(row + b"," + new_before)
    replace(disk, path / layout.RUNS, b"\n".join([*rows, b""]))
