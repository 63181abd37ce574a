"""Each field of each file of a run changed on disk, by each kind of lie, with no seal made anew.

`python -m tests.support.lies.lie_matrix --write` has their numbers in docs/lies.md.
"""

from __future__ import annotations

import csv
import io
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.silent_damage import PUBLISHED, small_run
from results.records import Record, cell_text
from results.store.layout import RECORDS
from results.store.store import read_run
from tests.support.lies import lies

Rows = list[list[str]]
FILES = ("runs.csv", "sittings.csv", "ceilings.csv", "samples.csv", "flop_counts.csv")


def sealed(folder: Path) -> Path:
    """One published cell, written by today's store."""
    return small_run(PUBLISHED, folder / "run", cells=1)


def lies_about(record: type[Record], names: list[str], row: list[str]) -> Iterator[tuple[str, str, str]]:
    """(column, kind, its text) of each lie about one row that changes its text."""
    columns = [name for name in names if name in record.__dataclass_fields__]  # type: ignore[attr-defined]
    value = record.from_row(dict(zip(names, row, strict=True)))
    for name in columns:
        for kind, change in lies.KINDS.items():
            changed: Any = change(getattr(value, name))
            if changed is lies.NO:
                continue
            text = cell_text(changed)
            if text != row[names.index(name)]:
                yield name, kind, text


def lied(path: Path, file: str) -> Iterator[tuple[str, str]]:
    """The run with one lie after the other about the last row of a file: (column, kind)."""
    whole = (path / file).read_bytes()
    names, *rows = csv.reader(io.StringIO(whole.decode()))
    assert _text([names, *rows]).encode() == whole  # so that a lie is all that is changed
    for name, kind, text in lies_about(RECORDS[file], names, rows[-1]):
        changed = [*rows[-1]]
        changed[names.index(name)] = text
        (path / file).write_text(_text([names, *rows[:-1], changed]))
        yield name, kind
    (path / file).write_bytes(whole)


def _text(rows: Rows) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def is_reported(path: Path) -> bool:
    """Whether reading the run says that it is not as it was written, or that nobody could know."""
    try:
        data = read_run(path)
    except ValueError:
        return True
    return bool(data.problems or data.unsealed)


def section() -> list[str]:
    """The lines of docs/lies.md about lies whose checksums nobody made anew."""
    told = ["## Without new checksums", ""]
    told += ["One published cell; one field in the last row of a file says something else, and reading names it:", ""]
    told += ["| file | lies | named |", "| --- | --- | --- |"]
    with tempfile.TemporaryDirectory() as name:
        run = sealed(Path(name))
        for file in FILES:
            path = Path(shutil.copytree(run, Path(name) / file))
            named = [is_reported(path) for _ in lied(path, file)]
            told.append(f"| {file} | {len(named)} | {sum(named)} |")
    return told
