"""Definition: docs/schema.md has every column of every file, in order, with its type and whether it may be empty."""

import collections.abc
import dataclasses
import re
import types
import typing
from pathlib import Path
from typing import Any

from reports.shared import numbers
from results.records import answers, cell, counts
from results.records.answers import Headline, ParallelStep, StepTime, Utilization, WorkTime
from results.records.cell import STATUSES, Sample, Telemetry
from results.records.counts import (
    Agreement,
    BatchLaw,
    CleanedOperation,
    CleaningLog,
    Kernel,
    OperationInstance,
    ProfileCount,
    ProfiledOperation,
    Ratio,
)
from results.records.rows import SCHEMA_VERSION, OfCell, Record
from results.store.layout import RECORDS, operation_files
from results.store.manifest import MANIFEST, Manifest

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

OF_COMMANDS = ("Attribution", "AttributionCause", "Comparison", "GateCheck", "StepModule", "StepOperation", "Verdict")
NOT_A_FILE = ("Record", "OfAttempt", "OfCell", "Parameters", "Cell", *OF_COMMANDS)
"""Records that are the beginning of runs.csv's row, the base of all, or answers that no run keeps."""

HEADING = re.compile(r"^## `(?P<file>[^`]+)`$", re.MULTILINE)
ROW = re.compile(r"^`(?P<column>\w+)`(?P<unknown>\??) ?(?P<kind>[a-z ]*) \| (?P<meaning>.+)$", re.MULTILINE)
BEGINNING = re.compile(r"^… \| (?P<of>.+)$", re.MULTILINE)
BEGINNINGS: dict[str, tuple[type, int]] = {
    "`cell_id` and `attempt`": (OfCell, 2),
    "the six columns of a cell": (OfCell, 6),
    "the columns of `samples.csv`": (Sample, 99),
    "the columns of `telemetry.csv`": (Telemetry, 99),
}
"""What stands for a table's first columns → the record that they are of, and how many."""
UNITS = ("_per_s", "_s", "_hz", "_w", "_j", "_c", "_ratio")
"""Ends of names that say a number's unit."""

Row = tuple[str, str, bool]


def sections(document: str) -> dict[str, list[Row]]:
    """File → rows of its table: column, type, whether it may be empty; the first may be told by another's."""
    rows = {}
    for match in HEADING.finditer(document):
        body = re.split(r"^## ", document[match.end() :], maxsplit=1, flags=re.MULTILINE)[0]
        found: list[Row] = []
        for beginning in BEGINNING.finditer(body):
            record, count = BEGINNINGS[beginning["of"]]
            found += _rows(record)[:count]
        rows[match["file"]] = found + [(row["column"], row["kind"], bool(row["unknown"])) for row in ROW.finditer(body)]
    return rows


def _rows(record: type) -> list[Row]:
    """The rows that a record's table must have."""
    hints = typing.get_type_hints(record)
    names = [f.name for f in dataclasses.fields(record)]
    return [(name, type_of(name, hints[name]), types.NoneType in typing.get_args(hints[name])) for name in names]


def type_of(column: str, hint: Any) -> str:
    """The document's word for a field's type; "" for text, and for a number whose unit is in its name."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    kinds = (typing.get_origin(option) or option for option in options)
    word = " or ".join(_WORDS[kind] for kind in kinds if kind is not types.NoneType)
    return "" if word == "text" or (word == "number" and column.endswith(UNITS)) else word


_WORDS = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    tuple: "list",
    collections.abc.Mapping: "object",
    Any: "size",
}


def faults(document: str) -> list[str]:
    """Where the document and the records differ, a line each."""
    tables = sections(document)
    wrong = [f"no table for {file}" for file in FILES if file not in tables]
    wrong += [f"a table for {file}, which is none" for file in tables if file not in FILES]
    for file in FILES.keys() & tables.keys():
        expected = _rows(FILES[file])
        wrong += [f"{file}: lacks {row}" for row in expected if row not in tables[file]]
        wrong += [f"{file}: {row} is not in the record" for row in tables[file] if row not in expected]
        if sorted(expected) == sorted(tables[file]) and expected != tables[file]:
            wrong.append(f"{file}: not in the record's order")
    return wrong


def test_the_document_has_every_column() -> None:
    assert faults(DOCUMENT) == []


def test_every_record_has_a_file() -> None:
    """A new record must come with a file in the table above, and so with a section."""
    made = {
        name
        for module in (answers, cell, counts)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, Record) and name not in NOT_A_FILE
    }
    assert made <= {record.__name__ for record in FILES.values()}


def test_the_statuses_are_those_of_the_code() -> None:
    assert tuple(re.findall(r"^`(\w+)`[^|]* \|", _section("Statuses"), re.MULTILINE)) == STATUSES


def test_the_warnings_that_reports_put_into_words_are_explained() -> None:
    codes = re.findall(r"^`(\w+)`[^|]* \|", _section("Warnings"), re.MULTILINE)
    assert set(numbers.MARK_TEXTS) <= set(codes)


def test_the_history_ends_with_the_version_in_use() -> None:
    versions = [int(v) for v in re.findall(r"^(\d+) \|", _section("History of the schema"), re.MULTILINE)]
    assert versions == list(range(1, SCHEMA_VERSION + 1))
    assert f"\n`schema_version` integer | {SCHEMA_VERSION}\n" in _section("`manifest.json`")


def _section(title: str) -> str:
    _, found, rest = DOCUMENT.partition(f"## {title}\n")
    assert found, f"expected a section {title}"
    return re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0]
