"""docs/schema.md against the records: every column of every file, in order, with its type, unit and emptiness."""

from __future__ import annotations

import collections.abc
import dataclasses
import re
import types
import typing
from pathlib import Path
from typing import Any

from reports.shared import numbers
from results.records import answers, cell, counts, operations, samples
from results.records.answers import Headline, ParallelStep, StepTime, Utilization, WorkTime
from results.records.counts import Agreement, BatchLaw, CleanedOperation, CleaningLog, ProfileCount, Ratio
from results.records.operations import Kernel, OperationInstance, ProfiledOperation
from results.records.rows import Record
from results.records.vocabulary import SCHEMA_VERSION, STATUSES
from results.store.layout import RECORDS, operation_files
from results.store.manifest import MANIFEST, Manifest
from results.store.migrations import MIGRATIONS
from runners.sweep.plan import Grid

DOCUMENT = (Path(__file__).parents[2] / "docs" / "schema.md").read_text(encoding="utf-8")

FILES: dict[str, type] = {
    **RECORDS,
    **operation_files("TRACE_ID"),
    "headline.csv": Headline,
    "utilization.csv": Utilization,
    "parallel.csv": ParallelStep,
    "step_times.csv": StepTime,
    "work_times.csv": WorkTime,
    "profiles/CELL_ID-ATTEMPT.csv.gz": ProfiledOperation,
    "cleaned/profiled_operations.csv.gz": CleanedOperation,
    "cleaned/profile_counts.csv": ProfileCount,
    "cleaned/ratios.csv": Ratio,
    "cleaned/agreement.csv": Agreement,
    "cleaned/batch_law.csv": BatchLaw,
    "cleaned/cleaning_log.csv": CleaningLog,
    "kernels.csv.gz": Kernel,
    "operation_instances.csv.gz": OperationInstance,
    MANIFEST: Manifest,
}
"""File → record, of every file that has a table of its own in the document."""

NOT_A_FILE = ("Record", "OfCell", "Parameters", "Cell")
"""Records that are the beginning of runs.csv's row, or the base of all."""

HEADING = re.compile(r"^## `(?P<file>[^`]+)` · record `(?P<record>\w+)`$", re.MULTILINE)
UNITS = {
    "flop_per_s": "FLOP/s",
    "items_per_s": "items/s",
    "bytes_per_s": "bytes/s",
    "_s": "s",
    "_hz": "Hz",
    "_w": "W",
    "_j": "J",
    "_c": "°C",
    "_bytes": "bytes",
    "nbytes": "bytes",
    "flop": "FLOP",
    "_ratio": "ratio",
}
"""End of a column's name → its unit, the longer ending first."""

Row = tuple[str, str, str, str, str]


def sections(document: str) -> dict[tuple[str, str], list[Row]]:
    """(file, record) → rows of its table: column, type, unit, meaning, when empty."""
    found = {}
    matches = list(HEADING.finditer(document))
    for match in matches:
        body = re.split(r"^## ", document[match.end() :], maxsplit=1, flags=re.MULTILINE)[0]
        rows = [line for line in body.splitlines() if line.startswith("| `")]
        found[match["file"], match["record"]] = [_cells(line) for line in rows]
    return found


def _cells(line: str) -> Row:
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    assert len(cells) == 5, f"expected 5 cells in {line}"
    column, kind, unit, meaning, empty = cells
    return column.strip("`"), kind, unit, meaning, empty.removesuffix(" |")


def type_of(hint: Any) -> str:
    """The document's word for a field's type."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    names = []
    for option in options:
        kind = typing.get_origin(option) or option
        if kind is not types.NoneType:
            names.append(_WORDS[kind])
    return " or ".join(names)


_WORDS = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    tuple: "list",
    collections.abc.Mapping: "object",
    Any: "size",
}


def unit_of(column: str) -> str:
    """The unit that a column's name says; "" for a name that says none."""
    return next((unit for end, unit in UNITS.items() if column.endswith(end)), "")


def faults(document: str) -> list[str]:
    """Where the document and the records differ, a line each."""
    tables = sections(document)
    expected = {(file, record.__name__): record for file, record in FILES.items()}
    wrong = [f"no table for {file}" for file, name in expected if (file, name) not in tables]
    wrong += [f"a table for {file} ({name}), which is none" for file, name in tables if (file, name) not in expected]
    for key in expected.keys() & tables.keys():
        wrong += [f"{key[0]}: {fault}" for fault in _column_faults(expected[key], tables[key])]
    return wrong


def _column_faults(record: type, rows: list[Row]) -> list[str]:
    columns = [f.name for f in dataclasses.fields(record)]
    listed = [row[0] for row in rows]
    if listed != columns:
        lacking, extra = sorted(set(columns) - set(listed)), sorted(set(listed) - set(columns))
        return [f"missing {lacking}, extra {extra}" if lacking or extra else "not in the record's order"]
    hints = typing.get_type_hints(record)
    wrong = []
    for column, kind, unit, meaning, empty in rows:
        if kind != type_of(hints[column]):
            wrong.append(f"{column} is {type_of(hints[column])}, not {kind}")
        if unit_of(column) and unit != unit_of(column):
            wrong.append(f"{column} is in {unit_of(column)}, not {unit}")
        if not meaning or not empty:
            wrong.append(f"{column} has no meaning or does not say when it is empty")
        if _may_be_unknown(hints[column]) == empty.startswith("never"):
            wrong.append(f"{column}: empty {empty!r}, but the field's type says otherwise")
    return wrong


def _may_be_unknown(hint: Any) -> bool | None:
    """Whether a field may be None; None for text, which may be empty without being unknown, and for a free type."""
    if hint in (str, Any):
        return None
    return types.NoneType in typing.get_args(hint)


def test_the_document_has_every_column() -> None:
    assert faults(DOCUMENT) == []


def test_every_record_has_a_file() -> None:
    """A new record must come with a file in the table above, and so with a section."""
    made = {
        name
        for module in (answers, cell, counts, operations, samples)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, Record) and name not in NOT_A_FILE
    }
    assert made <= {record.__name__ for record in FILES.values()}


def test_the_statuses_are_those_of_the_code() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", _section("Statuses"), re.MULTILINE)) == STATUSES


def test_the_warnings_that_reports_put_into_words_are_explained() -> None:
    codes = re.findall(r"^\| `(\w+)` \|", _section("Warnings"), re.MULTILINE)
    assert set(numbers.MARK_WORDS) <= set(codes)


def test_the_history_ends_with_the_version_in_use() -> None:
    versions = [int(v) for v in re.findall(r"^\| (\d+) \|", _section("History of the schema"), re.MULTILINE)]
    assert versions == list(range(1, SCHEMA_VERSION + 1))
    assert set(MIGRATIONS) <= set(versions)


def test_the_options_in_the_manifest_are_those_of_a_sweep() -> None:
    """The sentence names them before its full stop."""
    sentence = _section("`manifest.json` · record `Manifest`").partition("`options` has the keys ")[2].partition(".")[0]
    assert re.findall(r"`(\w+)`", sentence) == [f.name for f in dataclasses.fields(Grid)]


def _section(title: str) -> str:
    _, found, rest = DOCUMENT.partition(f"## {title}\n")
    assert found, f"expected a section {title}"
    return re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0]
