"""Reads foreign tables, JSON and TOML within limits, or refuses them with a ValueError in one line.

`read_text` returns the text of a file; `csv_table`, `json_value` and `toml_tables` parse it. Python's readers raise
five kinds of exceptions for damaged text, wait for pipes, and unpack whatever they are given. Here each kind of input
has a limit, checked before memory is used for it. The variable `FLOPLEDGER_LIMITS` changes limits for every command:
`FLOPLEDGER_LIMITS=database_seconds=1200,unpacked_bytes=64e9`. SECURITY.md has the same table (a test compares them).
Not claimed: that the content makes sense, or that everything within the limits is quick.
"""

import contextlib
import csv
import difflib
import gzip
import hashlib
import io
import json
import os
import stat
import tomllib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

VARIABLE = "FLOPLEDGER_LIMITS"


LIMITS: Mapping[str, tuple[int, str]] = {
    "config_layers": (20_000, "layers, blocks or experts that a configuration of transformers asks for"),
    "config_modules": (1_000_000, "the product of its numbers of layers and experts"),
    "config_bytes": (16 * 2**20, "size of a configuration of transformers"),
    "unpacked_bytes": (16 * 2**30, "content of a gzip file that is read in pieces: traces, PyProf"),
    "memory_bytes": (4 * 2**30, "content of a gzip file that is read as a whole: kept tables, exports of nsys"),
    "line_bytes": (2**20, "a line of PyProf's dictionaries"),
    "event_bytes": (2**26, "a value in a trace: an event, or an entry of its header"),
    "database_seconds": (600, "reading an export of Nsight Systems"),
    "formula_bits": (20_000, "binary digits of a number in a formula"),
}  # fmt: skip
"""Name → (default, what it limits). Names end in their unit."""


def limit(name: str) -> int:
    """Return the limit of this name that applies in this process. Raises ValueError as `stated` does."""
    return stated().get(name, LIMITS[name][0])


def stated(text: str | None = None) -> dict[str, int]:
    """Return the limits that `FLOPLEDGER_LIMITS` names. Raises ValueError for an unknown name, or no positive
    number."""
    limits: dict[str, int] = {}
    for part in (os.environ.get(VARIABLE, "") if text is None else text).split(","):
        if not part.strip():
            continue
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in LIMITS:
            hint = "".join(f", nearest {near}" for near in nearest(name, [*LIMITS], 1))
            raise ValueError(f"{VARIABLE}: expected NAME=N of {', '.join(LIMITS)}, got {part.strip()!r}{hint}")
        limits[name] = 0
        with contextlib.suppress(ValueError, OverflowError):
            limits[name] = int(float(value))
        if limits[name] < 1:
            raise ValueError(f"{VARIABLE}: expected a positive number for {name}, got {value!r}")
    return limits


def beyond(what: str, name: str) -> str:
    """Return a message about something larger than its limit: what it is, which limit, how the limit is raised."""
    return f"{what}: more than {limit(name)} ({LIMITS[name][1]}); {VARIABLE}={name}=N raises the limit"


def check_regular(path: Path | str) -> None:
    """Raise ValueError for a pipe, a socket or a device: reading a pipe waits, and a device has no end."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # whoever opens it says why
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ValueError(f"{path} is not a regular file")


def unpack(data: bytes) -> bytes:
    """Unpack gzip data. Raises ValueError where it is damaged or cut, or exceeds the limit `memory_bytes`, before the
    rest is unpacked."""
    most, parts = limit("memory_bytes"), io.BytesIO()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            while parts.tell() <= most and (piece := packed.read(1 << 20)):
                parts.write(piece)
    except (OSError, EOFError, zlib.error) as fault:
        raise ValueError(f"damaged gzip: {fault}") from fault
    if parts.tell() > most:
        raise ValueError(beyond("unpacked", "memory_bytes"))
    return parts.getvalue()


class BoundedStream(io.RawIOBase):
    """A binary stream of limited length: a read beyond the limit `unpacked_bytes`, counted from the last seek, raises
    ValueError."""

    def __init__(self, stream: IO[bytes] | Any, path: str) -> None:
        self._stream, self._path = stream, path
        self._left = limit("unpacked_bytes")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._left = limit("unpacked_bytes")
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(beyond(f"{self._path}: unpacked", "unpacked_bytes"))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


_GZIP = b"\x1f\x8b"

_LONGEST_FIELD = 1 << 30
"""Longest field of a table. The csv module's own limit of 131,072 is less than some traces' lists of tensors."""


def read_text(path: Path, errors: str = "strict") -> str:
    """Return the text of a file, unpacked if it begins as gzip does. errors: as of `bytes.decode`.

    Raises ValueError for a file that is not regular, not UTF-8, or gzip that is damaged or unpacks to more than
    `memory_bytes`; OSError where the system refuses to read it.
    """
    check_regular(path)
    content = path.read_bytes()
    return (unpack(content) if content.startswith(_GZIP) else content).decode("utf-8", errors)


def csv_written(rows: Iterable[Iterable[str]]) -> str:
    """Write rows of texts as CSV, each line with its end."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def csv_table(text: str) -> tuple[list[str], list[list[str]]]:
    """Return the names in the first line of a table, and its rows, without empty lines.

    Raises ValueError for text that is not CSV, and for a row that has more or fewer fields than there are names.
    """
    csv.field_size_limit(_LONGEST_FIELD)
    try:
        names, *rows = list(csv.reader(io.StringIO(text, newline=""))) or [[]]
    except csv.Error as fault:
        raise ValueError(f"not CSV: {fault}") from fault
    for number, fields in enumerate(rows, start=1):
        if fields and len(fields) != len(names):
            raise ValueError(f"row {number}: expected {len(names)} fields, got {len(fields)}")
    return names, [fields for fields in rows if fields]


def json_value(text: str) -> Any:
    """Parse JSON. Raises ValueError, also for brackets nested beyond Python's depth."""
    try:
        return json.loads(text)
    except RecursionError as fault:
        raise ValueError("JSON that is nested too deeply") from fault


def toml_tables(text: str) -> dict[str, Any]:
    """Parse TOML. Raises ValueError, also for brackets nested beyond Python's depth."""
    try:
        return tomllib.loads(text)
    except RecursionError as fault:
        raise ValueError("TOML that is nested too deeply") from fault


def hashed(identity: str) -> str:
    """Return a hash of a serial number or uuid, 16 hex digits: equal for the same card, without showing its number.

    NVML writes "GPU-" before a uuid and torch does not; both give the same digits.
    """
    return hashlib.sha256(identity.removeprefix("GPU-").casefold().encode()).hexdigest()[:16]


def nearest(got: str, valid: Sequence[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return up to n valid names that look like `got`, best first; letter case does not count.

    cutoff: how alike they must be, from 0 to 1, as in `difflib.get_close_matches`.
    """
    by_folded = {name.casefold(): name for name in reversed(valid)}
    return [by_folded[name] for name in difflib.get_close_matches(got.casefold(), list(by_folded), n, cutoff)]


def counted(number: int, name: str) -> str:
    """Format a number of things: 1, "event" → "1 event"; 2, "event" → "2 events"."""
    return f"{number} {name}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """Format the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
