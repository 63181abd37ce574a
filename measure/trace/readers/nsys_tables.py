"""Tables of an SQLite file that nobody may change: columns by name, whole numbers in numpy, missing ones filled.

Exports of Nsight Systems differ in tables and columns from year to year, and a trimmed one lacks what it does not need:
a table that is not there has no rows, and a column that is not there holds the default in every row.

A gzipped one, as a sweep keeps it, is unpacked into memory: it needs as much as the file has bytes unpacked.

A view or a virtual table is a program, which may have no end: only plain tables are read. What columns calculate
is stopped at `database_seconds`, and no value is longer than `event_bytes` (results/limits.py).

Not claimed: that the file is what it says; only that all of its pages are there.
"""

import functools
import gzip
import re
import sqlite3
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from measure.trace.attribution.nesting import Ints
from results.limits import check_regular, limit, unpack

MAGIC = b"SQLite format 3\x00"
GZIP = b"\x1f\x8b"
CHUNK = 1 << 16
"""Rows read at a time."""

STEPS = 100_000
"""Instructions of SQLite between two looks at the clock."""

EXPECTED = ("NVTX_", "CUPTI_", "StringIds", "TARGET_INFO")
"""How the names of the tables begin that are read."""

_VIRTUAL = re.compile(r"\s*CREATE\s+VIRTUAL\b", re.IGNORECASE)


class Tables:
    """One open file. Raises sqlite3.DatabaseError where pages are damaged, ValueError for what is no whole SQLite."""

    def __init__(self, path: str | Path, hint: str) -> None:
        """hint: what to do about a file that cannot be read, put at the end of the message."""
        packed, problem = _look(path)
        if problem:
            raise ValueError(f"{path}: {problem}; {hint}")
        log = Path(f"{path}-wal")
        # read only; beside no log of changes also without locks, which a read-only folder does not allow
        how = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
        where = ":memory:" if packed else f"{Path(path).resolve().as_uri()}?{how}"
        self._connection = sqlite3.connect(where, uri=True)
        try:
            if packed:
                self._connection.deserialize(packed)
            self._connection.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
            self._bound(str(path))
            self.names = self._tables(str(path), hint)
        except BaseException:
            self._connection.close()
            raise

    def _bound(self, path: str) -> None:
        """Nothing of the file is called, no value is longer than the limit, and no statement runs longer."""
        self._connection.execute("PRAGMA trusted_schema = OFF")
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limit("event_bytes"))
        end_s = time.monotonic() + limit("database_seconds")
        self._connection.set_progress_handler(lambda: time.monotonic() > end_s, STEPS)

    def _tables(self, path: str, hint: str) -> frozenset[str]:
        """Names of the plain tables. Raises ValueError for a view or a virtual table that has a table's name."""
        listed = self._connection.execute("SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'view')")
        names = set()
        for kind, name, sql in listed:
            if kind == "view" or _VIRTUAL.match(sql or ""):
                if str(name).startswith(EXPECTED):
                    raise ValueError(f"{path}: {name[:60]} is no plain table, as nsys exports it; {hint}")
                continue
            names.add(name)
        return frozenset(names)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def columns(self, table: str) -> frozenset[str]:
        """Names of a table's columns; none if there is no such table."""
        if table not in self.names:
            return frozenset()
        return frozenset(row[1] for row in self._connection.execute(f'PRAGMA table_info("{table}")'))

    def count(self, table: str) -> int:
        """Rows of a table, 0 if there is none."""
        if table not in self.names:
            return 0
        (count,) = self._connection.execute(f'SELECT COUNT(*) FROM "{table}"').fetchone()
        return int(count)

    def rows(
        self, table: str, wanted: Sequence[str], among: Mapping[str, Sequence[int]] | None = None
    ) -> Iterator[Any]:
        """Tuples of the wanted columns, None where a value or the column is missing; in the order of the file.

        among: column → the values that it must have; a column that is not there forbids nothing.
        """
        there = self.columns(table)
        if not there:
            return
        listed = ", ".join(f'"{name}"' if name in there else "NULL" for name in wanted)
        tests = [
            f'"{name}" IN ({", ".join(str(int(value)) for value in values)})'
            for name, values in (among or {}).items()
            if name in there
        ]
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        cursor = self._connection.execute(f'SELECT {listed} FROM "{table}"{where}')
        cursor.arraysize = CHUNK
        while chunk := cursor.fetchmany():
            yield from chunk

    def ints(
        self, table: str, wanted: Sequence[str], others: Sequence[str] = ()
    ) -> tuple[dict[str, Ints], list[tuple[Any, ...]]]:
        """Columns of whole numbers, -1 where a value or the column is missing; and tuples of the other columns."""
        there, count = self.columns(table), len(wanted)
        parts: list[Ints] = [np.zeros((0, count), np.int64)]
        rest: list[tuple[Any, ...]] = []
        if there:
            numbers = [f'COALESCE("{name}", -1)' if name in there else "-1" for name in wanted]
            values = [f'"{name}"' if name in there else "NULL" for name in others]
            cursor = self._connection.execute(f'SELECT {", ".join(numbers + values)} FROM "{table}"')
            while chunk := cursor.fetchmany(CHUNK):
                parts.append(np.asarray([row[:count] for row in chunk], np.int64))
                rest += [row[count:] for row in chunk] if others else ()
        whole = np.concatenate(parts)
        return {name: np.ascontiguousarray(whole[:, at]) for at, name in enumerate(wanted)}, rest


def _look(path: str | Path) -> tuple[bytes, str]:
    """The bytes of a gzipped file, unpacked (empty: it is none), and what is wrong with it as SQLite ("": nothing)."""
    try:
        check_regular(path)
        with open(path, "rb") as file:
            head = file.read(100)
            size = file.seek(0, 2)
        packed = b""
        if head.startswith(GZIP):
            packed = unpack(Path(path).read_bytes())
            head, size = packed[:100], len(packed)
    except ValueError as error:
        return b"", str(error)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        return b"", f"the gzip data are cut or damaged ({error})"
    except OSError as error:
        return b"", str(error.strerror or error)
    return packed, _problem(head, size)


def _problem(head: bytes, size: int) -> str:
    """What is wrong with a file as SQLite; "" if it is one and as long as its first page says."""
    if not head.startswith(MAGIC):
        return "this is no SQLite file"
    page = int.from_bytes(head[16:18], "big")
    pages = int.from_bytes(head[28:32], "big")
    trusted = head[24:28] == head[92:96]  # else an old SQLite wrote the number of pages
    if len(head) < 100 or (trusted and size < pages * (65536 if page == 1 else page)):
        return "the SQLite file is cut: it is shorter than its first page says"
    return ""
