"""Defines a run's files and the bytes of their rows, on which writer and reader agree; makes pandas tables of records.

`encode` returns the bytes of records, `read_block` the records of bytes. A cell's rows begin with `cell_id` and
`attempt`, so that an attempt's bytes are found without parsing CSV. The checksum in runs.csv covers the header and
exactly those bytes. Other rows (`CHECKSUMMED`) end with a checksum over the header, the row and the checksum before it,
which shows a changed, moved or lost row. Each row of runs.csv has the number of rows of ceilings.csv and sessions.csv
so far (`COUNTED`). In a `table`, integers are `Int64` or Python objects, never floats. Unknown is NaN for floats and ""
for text; nested values are JSON text. Reading changes no file. Resuming an older run adds the columns that runs.csv
lacks; files keep their old names.
"""

from __future__ import annotations

import csv
import functools
import gzip
import hashlib
import io
import itertools
import json
import operator
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.records.cell import (
    Ceiling,
    RankCollective,
    RankRow,
    RankSample,
    RankTelemetry,
    Run,
    Sample,
    SessionRow,
    Telemetry,
)
from results.records.counts import FlopCount, Operation, Storage
from results.records.rows import Column, R, Record, cell_text, columns_of, header, plain, read_rows, to_text
from results.store.disk import Disk, read, replace
from results.text_files import csv_table, csv_written, read_text

if TYPE_CHECKING:
    import pandas as pd


FLOP_COUNTS = "flop_counts.csv"
RANKS, RANK_SAMPLES, RANK_TELEMETRY = "ranks.csv", "rank_samples.csv", "rank_telemetry.csv"
COLLECTIVES = "collectives.csv"

CELL_FILES: dict[str, type[Record]] = {
    "samples.csv": Sample,
    "telemetry.csv": Telemetry,
    FLOP_COUNTS: FlopCount,
    RANKS: RankRow,
    RANK_SAMPLES: RankSample,
    RANK_TELEMETRY: RankTelemetry,
    COLLECTIVES: RankCollective,
}
"""File → record, of the rows that belong to an attempt at a cell. Their first two fields are cell_id and attempt."""

RUNS, SESSIONS, CEILINGS, OPERATIONS = "runs.csv", "sessions.csv", "ceilings.csv", "operations"
PROFILES = "profiles"

PACKED: dict[type[Record], str] = {Operation: "operations.csv.gz", Storage: "storages.csv.gz"}
"""Record → the file in which a published run has these rows of all its traces; its first column is `trace_id`."""

RECORDING_ENDINGS = {"kineto": "json.gz", "nsys": "sqlite.gz"}
"""Recorder → ending of a recording's file: what the recorder writes, gzipped."""

COMMAND = "command.txt"
"""Ending of the file with the command that made a recording, where a command did."""

RECORDS: dict[str, type[Record]] = {RUNS: Run, SESSIONS: SessionRow, CEILINGS: Ceiling, **CELL_FILES}

CHECKSUMMED = (RUNS, SESSIONS, CEILINGS)
"""Files whose rows each end with a checksum, in the column `CHECKSUM`."""

COUNTED = (SESSIONS, CEILINGS)
"""Files whose number of rows, with their checksum, each attempt commits."""

CHECKSUM = "checksum"

FORMER = {"sitting": "session", "seal": CHECKSUM, "sittings.csv": SESSIONS}
"""Name of a column or a file before version 9 → its name now."""

SINCE = 4
"""First schema version whose rows and headers have checksums."""

QUICK = 6
"""Compression level for large files: measured, half the time of the best level for 3 % more bytes."""

Key = tuple[str, int]
"""cell_id and attempt."""

_COMPRESSED = re.compile(
    rf"{OPERATIONS}/[A-Za-z0-9_-][A-Za-z0-9._-]*\.csv\.gz"
    rf"|{PROFILES}/[A-Za-z0-9_-][A-Za-z0-9._-]*\.(?:csv\.gz|json\.gz|sqlite\.gz|command\.txt)"
)
"""Matches names by `operation_files`, `profile_file` and `recording_file`."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


def key_of(row: Any) -> Key:
    """Return the attempt that a row belongs to."""
    return row.cell_id, row.attempt


def by_cell(rows: Iterable[R]) -> dict[Key, list[R]]:
    """Return attempt → its rows, in order."""
    cells: dict[Key, list[R]] = {}
    for key, own in itertools.groupby(rows, operator.attrgetter("cell_id", "attempt")):
        cells.setdefault(key, []).extend(own)
    return cells


def check_name(what: str, name: str) -> str:
    """Return `name` if it can be part of a file name and an unquoted CSV field. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"expected a {what} of letters, digits, '.', '_' and '-', got {name!r}")
    return name


def operation_files(trace_id: str) -> dict[str, type[Record]]:
    """Return the two files of a trace, by their path within the run. Raises ValueError for an id that is not a file
    name."""
    stem = f"{OPERATIONS}/{check_name('trace_id', trace_id)}"
    return {f"{stem}.csv.gz": Operation, f"{stem}.storages.csv.gz": Storage}


def profile_file(cell_id: str, attempt: int) -> str:
    """Return the file of an attempt's profile, by its path within the run. Raises ValueError for an id that is not a
    name."""
    return f"{PROFILES}/{check_name('cell_id', cell_id)}-{attempt}.csv.gz"


def recording_file(cell_id: str, attempt: int, pass_name: str, source: str, ending: str = "") -> str:
    """Return the file of one pass's recording as its recorder wrote it, by its path within the run; with the ending
    COMMAND the file of the command that made it. Raises ValueError."""
    if source not in RECORDING_ENDINGS:
        raise ValueError(f"expected a source of {', '.join(RECORDING_ENDINGS)}, got {source!r}")
    stem = f"{check_name('cell_id', cell_id)}-{attempt}-{check_name('work', pass_name)}"
    return f"{PROFILES}/{stem}.{source}.{ending or RECORDING_ENDINGS[source]}"


def is_committed_name(file: object) -> bool:
    """Return whether a run can have committed a file of this name, below its directory."""
    known = {*CELL_FILES, *COUNTED, *PACKED.values()}
    return isinstance(file, str) and (file in known or bool(_COMPRESSED.fullmatch(file)))


def head(record: type[Record]) -> bytes:
    """Return the header line of a record's rows, before checksums are added."""
    return csv_written([header(record)]).encode()


def columns(file: str) -> tuple[str, ...]:
    """Return the column names of one of the files of `RECORDS`, in order."""
    return header(RECORDS[file]) + ((CHECKSUM,) if file in CHECKSUMMED else ())


def path_of(run: Path, file: str) -> Path:
    """Return the path of a file in a run directory, with its former name if such a file exists."""
    former = next((run / name for name, current in FORMER.items() if current == file), run / file)
    return former if former.exists() else run / file


def current_name(name: str) -> str:
    """Return the name that a column or a file has in this version of the schema."""
    return FORMER.get(name, name)


def column_names(top: bytes) -> list[str]:
    """Return the columns of a header line, with their current names. Raises ValueError as `decode` does."""
    (names,) = decode([top])
    return list(map(current_name, names))


def head_of(file: str) -> bytes:
    """Return the header line of one of the files of `RECORDS`."""
    return csv_written([columns(file)]).encode()


def row_checksum(head_line: bytes, row: bytes, before: bytes) -> bytes:
    """Return the checksum of one row: of the header line, the row's bytes without its own, and the checksum before
    it."""
    return checksum(b"\n".join((before, head_line, row))).encode()


def add_checksums(head_line: bytes, block: bytes, before: bytes) -> tuple[bytes, bytes]:
    """Return whole lines with a checksum at the end of each, and the last checksum. before: the checksum of the file's
    last row."""
    checked, top = [], head_line.rstrip(b"\n")
    for line in lines_of(block):
        before = row_checksum(top, line, before)
        checked.append(line + b"," + before + b"\n")
    return b"".join(checked), before


def encode(rows: Sequence[Record]) -> bytes:
    """Encode records as the lines of their file. Raises ValueError for a value that could not be read back."""
    return csv_written(to_values(rows)).encode()


def to_values(rows: Sequence[Record]) -> Iterator[tuple[str, ...]]:
    """Yield the fields of each record of one type as CSV texts, in the order of its header.

    Raises ValueError for a value that could not be read back as the field's type: a float in a field of exact integers,
    None where the field has no unknown.
    """
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        group = rows[start : start + _ROWS_AT_ONCE]
        columns = columns_of(type(group[0])).values()
        yield from zip(*(_column_texts(group, column) for column in columns), strict=True)


_ROWS_AT_ONCE = 1000
"""Number of rows that are formatted at once, column by column. It bounds the memory of their texts."""


def _column_texts(rows: Sequence[Record], column: Column) -> list[str]:
    values, writers = [*map(operator.attrgetter(column.name), rows)], column.writers
    kinds = {*map(type, values)}
    if len(kinds) == 1 and kinds <= writers.keys():
        return [*map(writers[kinds.pop()], values)]
    return [
        _checked(rows[0], column, plain(value)) if (write := writers.get(type(value))) is None else write(value)
        for value in values
    ]


def _checked(record: Record, column: Column, value: Any) -> str:
    if not column.holds(value):
        raise ValueError(f"{type(record).__name__}.{column.name}: expected {column.label}, got {value!r}")
    return json.dumps(value) if Any in column.kinds and isinstance(value, str) else cell_text(value)


def decode(lines: Sequence[bytes]) -> list[list[str]]:
    """Return the fields of whole lines. Raises ValueError for text that is not CSV or not UTF-8."""
    csv.field_size_limit(1 << 30)  # the module's own limit of 131072 is less than some traces' lists of tensors
    try:
        rows = list(csv.reader(map(bytes.decode, lines), strict=True))
    except csv.Error as fault:
        raise ValueError(f"not CSV: {fault}") from fault
    if len(rows) < len(lines):
        raise ValueError("not CSV: a quote hides the end of a line")
    return rows


def lines_of(block: bytes) -> list[bytes]:
    """Split into whole lines, without their ends."""
    return block.split(b"\n")[:-1]


def checksum(data: bytes) -> str:
    """Return 16 hex digits of SHA-256 over bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def count_and_checksum(rows: int, data: bytes) -> list[Any]:
    """Return what `Run.committed` holds for one file: number of rows, and the checksum of their bytes."""
    return [rows, checksum(data)]


def compress(data: bytes, level: int = 9) -> bytes:
    """Compress as gzip without name and time, so that equal contents give equal files. level: `QUICK` for large
    files."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=level, fileobj=buffer, mtime=0) as packed:
        packed.write(data)
    return buffer.getvalue()


def records(file: str, record: type[R], names: Sequence[str], block: bytes) -> list[R]:
    """Call `read_block`, adding the file's name to its ValueError."""
    try:
        return read_block(record, names, block)
    except ValueError as fault:
        raise ValueError(f"{file}: {fault}") from fault


def read_block(record: type[R], names: Sequence[str], block: bytes) -> list[R]:
    """Return the records of whole lines whose columns are `names`; a column that an older version lacks has its
    default.

    Raises ValueError for lines that are not CSV, for a line of another width, and as `read_rows` does.
    """
    rows = decode(lines_of(block))
    for row in rows:
        if len(row) != len(names):
            raise ValueError(f"expected {len(names)} fields, got {len(row)} in {','.join(row)[:60]!r}")
    return read_rows(record, names, rows)


def read_table(path: Path, record: type[R]) -> list[R]:
    """Return the records of a CSV file (.csv or .csv.gz), whose columns may have their former names. Raises OSError,
    and ValueError for another table."""
    names, rows = csv_table(read_text(path))
    return read_rows(record, [*map(current_name, names)], rows)


def read_records(path: Path, record: type[R]) -> list[R]:
    """Return the records of a derived table (.csv or .csv.gz); none if the file is missing or has no rows.

    Raises ValueError, naming the file, for a table of other records.
    """
    try:
        return read_table(path, record)
    except FileNotFoundError:
        return []
    except ValueError as fault:
        raise ValueError(f"{path}: {fault}") from fault


def table(record: type[Record], rows: Sequence[Record], names: Collection[str] = ()) -> pd.DataFrame:
    """Return the rows as a table with a column for each field of their record, or only for those of these names."""
    import pandas as pd

    columns = [(name, column) for name, column in columns_of(record).items() if name in names or not names]
    return pd.DataFrame({name: _series(column, [getattr(row, name) for row in rows]) for name, column in columns})


def _series(column: Column, values: list[Any]) -> pd.Series[Any]:
    import pandas as pd

    dtype: Any = {(int,): "Int64", (int, float): object, (float,): "float64", (bool,): "boolean"}.get(column.kinds)
    if column.kinds == (int,) and any(value is not None and abs(value) >= 2**63 for value in values):
        dtype = object
    text_of = functools.lru_cache(4096)(to_text) if column.kinds == (str,) else to_text
    return pd.Series(values if dtype else list(map(text_of, values)), dtype=dtype or "str")


RESUMABLE = 6
"""First schema version whose runs can be resumed: later ones only add columns to runs.csv and rename columns."""


def add_columns(path: Path, disk: Disk) -> None:
    """Add the columns that runs.csv of an older version lacks, with their defaults and new checksums, atomically.

    A row whose checksum is wrong keeps it. A process that is killed afterwards leaves a run that can be read and
    resumed. Raises ValueError for other columns, OSError if the file cannot be replaced.
    """
    top, end, body = (read(path / RUNS) or b"").partition(b"\n")
    if not end or column_names(top) == [*columns(RUNS)]:
        return
    names = column_names(top)
    if not {*names} <= {*columns(RUNS)}:
        raise ValueError(f"{path / RUNS} was written with other columns: start a new run")
    new_top = head_of(RUNS).rstrip(b"\n")
    rows, before, new_before = [new_top], b"", b""
    for line in lines_of(body):
        row, _, written = line.rpartition(b",")
        intact, before = written == row_checksum(top, row, before), written
        if intact:
            (run,) = read_rows(Run, names, decode([line]))
            row = encode([run]).rstrip(b"\n")
        new_before = row_checksum(new_top, row, new_before) if intact else written
        rows.append(row + b"," + new_before)
    replace(disk, path / RUNS, b"\n".join([*rows, b""]))
