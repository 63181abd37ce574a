"""Each field of each file of a run changed, by each kind of lie, with no seal made anew: reading says so.

The lies whose seals are made anew are those of `tests/cleaning/gates/test_lies.py`.
"""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.silent_damage import PUBLISHED, small_run
from results.records import Record, cell_text
from results.store.layout import RECORDS, SEALED
from results.store.store import read_run
from tests.support.lies import lies
from tests.support.made_up.seals import older

Rows = list[list[str]]
FILES = ("runs.csv", "sittings.csv", "ceilings.csv", "samples.csv", "flop_counts.csv")


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(PUBLISHED, tmp_path_factory.mktemp("lies") / "run", cells=1)


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


@pytest.mark.parametrize("file", FILES)
def test_a_lie_without_a_new_seal_is_reported(sealed: Path, tmp_path: Path, file: str) -> None:
    path = Path(shutil.copytree(sealed, tmp_path / "run"))
    assert not is_reported(path)
    reported = [(lie, is_reported(path)) for lie in lied(path, file)]
    assert len(reported) > 8
    assert [lie for lie, seen in reported if not seen] == []
    assert not is_reported(path)


@pytest.mark.parametrize("file", [file for file in FILES if file in SEALED])
def test_of_an_older_run_it_is_reported_or_the_run_is_unsealed(sealed: Path, tmp_path: Path, file: str) -> None:
    path = Path(shutil.copytree(sealed, tmp_path / "run"))
    older(path)
    assert read_run(path).unsealed
    assert [lie for lie in lied(path, file) if not is_reported(path)] == []
