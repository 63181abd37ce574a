"""Tables, JSON and TOML that others made: each is read within the limits, or refused with a ValueError in one line.

Python's readers raise five kinds of exceptions for damaged text (csv.Error, RecursionError, UnicodeDecodeError, zlib's
and gzip's), wait for pipes, and unpack whatever they are given. Not claimed: that the content makes sense.

Digests that stand for what must not be written down.

Names that look like one that is not known; a number with the name of what it counts.
"""

import csv
import difflib
import hashlib
import io
import json
import tomllib
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results.limits import check_regular, unpack

_GZIP = b"\x1f\x8b"

_LONGEST_FIELD = 1 << 30
"""Of a table; the csv module's own limit of 131,072 is less than some traces' lists of tensors."""


def read_text(path: Path, errors: str = "strict") -> str:
    """The text of a file, unpacked if it begins as gzip does. errors: as of `bytes.decode`.

    Raises ValueError for what is no regular file, damaged, no UTF-8, or more than `memory_bytes`; OSError where the
    system refuses to read it.
    """
    check_regular(path)
    content = path.read_bytes()
    try:
        return (unpack(content) if content.startswith(_GZIP) else content).decode("utf-8", errors)
    except (OSError, EOFError, zlib.error) as fault:
        raise ValueError(f"damaged gzip: {fault}") from fault


def csv_lines(text: str) -> list[list[str]]:
    """The fields of each line; none of an empty one. Raises ValueError for text that is no CSV."""
    csv.field_size_limit(_LONGEST_FIELD)
    try:
        return list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as fault:
        raise ValueError(f"not CSV: {fault}") from fault


def csv_table(text: str) -> tuple[list[str], list[list[str]]]:
    """The names in the first line of a table, and its rows, empty lines left out.

    Raises ValueError for text that is no CSV, and for a row that has more or fewer fields than there are names.
    """
    names, *rows = csv_lines(text) or [[]]
    for number, fields in enumerate(rows, start=1):
        if fields and len(fields) != len(names):
            raise ValueError(f"row {number}: expected {len(names)} fields, got {len(fields)}")
    return names, [fields for fields in rows if fields]


def csv_rows(text: str) -> list[dict[str, str]]:
    """The rows of a table by the names in its first line. Raises ValueError as `csv_table` does."""
    names, rows = csv_table(text)
    return [dict(zip(names, fields, strict=True)) for fields in rows]


def json_value(text: str) -> Any:
    """What a JSON text says. Raises ValueError, also for brackets within brackets beyond Python's depth."""
    try:
        return json.loads(text)
    except RecursionError as fault:
        raise ValueError("JSON that is nested too deeply") from fault


def toml_tables(text: str) -> dict[str, Any]:
    """What a TOML text says. Raises ValueError, also for brackets within brackets beyond Python's depth."""
    try:
        return tomllib.loads(text)
    except RecursionError as fault:
        raise ValueError("TOML that is nested too deeply") from fault


def hashed(identity: str) -> str:
    """16 hex digits that stand for a serial number or uuid: equal for the same card, and not the card's own.

    NVML writes "GPU-" before a uuid and torch does not; both give the same digits.
    """
    return hashlib.sha256(identity.removeprefix("GPU-").casefold().encode()).hexdigest()[:16]


def nearest(got: str, valid: Sequence[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """Up to n valid names that look like `got`, best first; letter case does not count.

    cutoff: how alike they must be, from 0 to 1, as in `difflib.get_close_matches`.
    """
    by_folded = {name.casefold(): name for name in reversed(valid)}
    return [by_folded[name] for name in difflib.get_close_matches(got.casefold(), list(by_folded), n, cutoff)]


def counted(number: int, name: str) -> str:
    """A number of things: 1, "event" → "1 event"; 2, "event" → "2 events"."""
    return f"{number} {name}{'' if number == 1 else 's'}"
