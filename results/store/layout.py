"""Which files a run has, and the bytes of their rows: what writer and reader must agree on.

A cell's rows begin with `cell_id` and `attempt`; that is how the bytes that one attempt wrote are found again without
reading the CSV, and the checksum in runs.csv is over the header and exactly those bytes. Rows that stand for
themselves (`SEALED`) end with a checksum over the header, the row and the checksum before it, so that a row that was
changed, moved or lost is seen at it or after it; how many ceilings and sessions there were, the rows of runs.csv say.
"""

import csv
import gzip
import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

from results.limits import unpack
from results.records.cell import (
    Ceiling,
    RankCollective,
    RankRow,
    RankSample,
    RankTelemetry,
    Run,
    Sample,
    Sitting,
    Telemetry,
)
from results.records.counts import FlopCount, Operation, Storage
from results.records.rows import R, Record, header, to_values

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
"""File → record, of the rows that belong to an attempt at a cell. The first two fields are cell_id and attempt."""

RUNS, SITTINGS, CEILINGS, OPERATIONS = "runs.csv", "sittings.csv", "ceilings.csv", "operations"
PROFILES = "profiles"

PACKED: dict[type[Record], str] = {Operation: "operations.csv.gz", Storage: "storages.csv.gz"}
"""Record → the one file in which a published run has these rows of all its traces; its first column is `trace_id`."""

RECORDING_ENDINGS = {"kineto": "json.gz", "nsys": "sqlite.gz"}
"""Recorder → how the file of a recording ends: what the recorder writes, gzipped."""

RECORDS: dict[str, type[Record]] = {RUNS: Run, SITTINGS: Sitting, CEILINGS: Ceiling, **CELL_FILES}

SEALED = (RUNS, SITTINGS, CEILINGS)
"""Files whose rows each end with a checksum, in the column `SEAL`."""

COUNTED = (SITTINGS, CEILINGS)
"""Those of which an attempt commits how many rows there were before it, with their checksum."""

SEAL = "seal"
SINCE = 4
"""The version of the schema since which rows and headers are sealed."""

QUICK = 6
"""Level for what may be large: seen, half the time of the best one for 3 % more bytes."""

Key = tuple[str, int]
"""cell_id and attempt."""

_COMPRESSED = re.compile(
    rf"{OPERATIONS}/[A-Za-z0-9_-][A-Za-z0-9._-]*\.csv\.gz"
    rf"|{PROFILES}/[A-Za-z0-9_-][A-Za-z0-9._-]*\.(?:csv\.gz|json\.gz|sqlite\.gz|command\.txt)"
)
"""What `operation_files`, `profile_file`, `recording_file` and `command_file` name."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


def key_of(row: Any) -> Key:
    """The attempt that a row belongs to."""
    return row.cell_id, row.attempt


def by_cell(rows: Iterable[R]) -> dict[Key, list[R]]:
    """Attempt → its rows, in their order."""
    cells: dict[Key, list[R]] = {}
    for row in rows:
        cells.setdefault(key_of(row), []).append(row)
    return cells


def check_name(what: str, name: str) -> str:
    """`name`, if it can be a part of a file name and a CSV field without quotes. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"expected a {what} of letters, digits, '.', '_' and '-', got {name!r}")
    return name


def operation_files(trace_id: str) -> dict[str, type[Record]]:
    """The two files of a trace, by their path within the run. Raises ValueError for an id that is no file name."""
    stem = f"{OPERATIONS}/{check_name('trace_id', trace_id)}"
    return {f"{stem}.csv.gz": Operation, f"{stem}.storages.csv.gz": Storage}


def profile_file(cell_id: str, attempt: int) -> str:
    """The file of an attempt's profile, by its path within the run. Raises ValueError for an id that is no name."""
    return f"{PROFILES}/{check_name('cell_id', cell_id)}-{attempt}.csv.gz"


def recording_file(cell_id: str, attempt: int, work: str, source: str) -> str:
    """The file of one work's recording as its recorder wrote it, by its path within the run. Raises ValueError."""
    if source not in RECORDING_ENDINGS:
        raise ValueError(f"expected a source of {', '.join(RECORDING_ENDINGS)}, got {source!r}")
    return f"{_recording(cell_id, attempt, work, source)}.{RECORDING_ENDINGS[source]}"


def command_file(cell_id: str, attempt: int, work: str, source: str) -> str:
    """The file of the command that made a recording, where a command did. Raises ValueError."""
    return f"{_recording(cell_id, attempt, work, source)}.command.txt"


def _recording(cell_id: str, attempt: int, work: str, source: str) -> str:
    stem = f"{check_name('cell_id', cell_id)}-{attempt}-{check_name('work', work)}"
    return f"{PROFILES}/{stem}.{check_name('source', source)}"


def is_committed_name(file: object) -> bool:
    """Whether a run can have committed a file of this name, below its directory."""
    known = {*CELL_FILES, *COUNTED, *PACKED.values()}
    return isinstance(file, str) and (file in known or bool(_COMPRESSED.fullmatch(file)))


def head(record: type[Record]) -> bytes:
    """The header line of a record's rows, as they are before they are sealed."""
    return _lines([header(record)])


def columns(file: str) -> tuple[str, ...]:
    """The column names of one of the files of `RECORDS`, in order."""
    return header(RECORDS[file]) + ((SEAL,) if file in SEALED else ())


def head_of(file: str) -> bytes:
    """The header line of one of the files of `RECORDS`."""
    return _lines([columns(file)])


def seal_row(head_line: bytes, row: bytes, before: bytes) -> bytes:
    """The checksum of one row: of the header line, the row's bytes without its own, and the checksum before it."""
    return checksum(b"\n".join((before, head_line, row))).encode()


def seal_lines(file: str, block: bytes, before: bytes) -> tuple[bytes, bytes]:
    """Whole lines with a checksum at the end of each, and the last checksum. before: that of the file's last row."""
    sealed, top = [], head_of(file).rstrip(b"\n")
    for line in lines_of(block):
        before = seal_row(top, line, before)
        sealed.append(line + b"," + before + b"\n")
    return b"".join(sealed), before


def encode(rows: Iterable[Record]) -> bytes:
    """Records as the lines of their file. Raises ValueError for a value that could not be read back."""
    return _lines([to_values(row) for row in rows])


def decode(lines: Sequence[bytes]) -> list[list[str]]:
    """The fields of whole lines. Raises ValueError for text that is no CSV or no UTF-8."""
    csv.field_size_limit(1 << 30)  # the module's own limit of 131072 is less than some traces' lists of tensors
    try:
        rows = list(csv.reader(map(bytes.decode, lines), strict=True))
    except csv.Error as fault:
        raise ValueError(f"not CSV: {fault}") from fault
    if len(rows) < len(lines):
        raise ValueError("not CSV: a quote hides the end of a line")
    return rows


def lines_of(block: bytes) -> list[bytes]:
    """Whole lines, without their ends."""
    return block.split(b"\n")[:-1]


def checksum(data: bytes) -> str:
    """16 hex digits of SHA-256 over bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def seal(rows: int, data: bytes) -> list[Any]:
    """What `Run.committed` holds for one file: how many rows, and the checksum of their bytes."""
    return [rows, checksum(data)]


def compress(data: bytes, level: int = 9) -> bytes:
    """gzip without name and time, so that equal contents give equal files. level: `QUICK` for what may be large."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=level, fileobj=buffer, mtime=0) as packed:
        packed.write(data)
    return buffer.getvalue()


def decompress(data: bytes) -> bytes:
    """What `compress` packed. Raises ValueError if it is damaged, or more than `memory_bytes` of results/limits.py."""
    import zlib

    try:
        return unpack(data)
    except (OSError, EOFError, zlib.error) as fault:
        raise ValueError(f"damaged gzip: {fault}") from fault


def _lines(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


class BrokenSeal(ValueError):
    """A row that is not the one that was written after the row before it. seal: what it says of itself."""

    def __init__(self, seal: bytes) -> None:
        super().__init__("not as it was written: its checksum does not match, or rows before it are gone or moved")
        self.seal = seal


def check_seal(top: bytes, line: bytes, before: bytes) -> bytes:
    """The checksum of a row. Raises BrokenSeal."""
    row, _, seal = line.rpartition(b",")
    if seal != seal_row(top, row, before):
        raise BrokenSeal(seal)
    return seal


def prefixes(top: bytes, lines: Sequence[bytes]) -> dict[int, str]:
    """N → the checksum of the header and the first N rows."""
    counted, whole = {}, hashlib.sha256(top + b"\n")
    for number, line in enumerate(lines, start=1):
        whole.update(line + b"\n")
        counted[number] = whole.copy().hexdigest()[:16]
    return counted
