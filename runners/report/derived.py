"""Derived tables that lie in a run beside those that its raw rows give now, row by row and column by column.

Columns that only one of them has are of another version, and are not compared. Reads alone.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results import csv_rows
from results.store import decompress

if TYPE_CHECKING:
    from cleaning.gates import Difference
    from cleaning.reconcile import Built
    from results.records import Record

HEADLINE = "headline.csv"
PARALLEL = "parallel.csv"
"""Of a run with cells of several ranks alone."""

PARQUET = ".parquet"

SAME = 1e-9
"""Relative difference of two numbers that are the same."""

Row = dict[str, str]


def differences(path: Path, built: Built) -> list[Difference]:
    """What differs, and one entry without words for each table that is as it should be."""
    from cleaning.gates import Difference
    from reports.sweep.figures import UTILIZATION

    found = []
    for file, content in derived_tables(built):
        if file == UTILIZATION or not (path / file).is_file():
            continue
        try:
            there = _rows((path / file).read_bytes(), file)
        except (ValueError, OSError, EOFError, csv.Error) as fault:
            found.append(Difference(file, "", f"cannot be read: {fault}"))
            continue
        found_here = [
            Difference(file, cell_id, words) for cell_id, words in table_differences(there, _rows(content, file))
        ]
        found += found_here or [Difference(file, "", "")]
    return found


def derived_tables(built: Built) -> Iterable[tuple[str, bytes]]:
    """(file, content) of every derived table; one without rows is its header alone."""
    from reports.sweep.answer import to_csv
    from results.store import compress

    for file, (rows, record) in _rows_of(built).items():
        content = to_csv(rows, record).encode()
        yield file, compress(content) if file.endswith(".gz") else content


def parquet_tables(built: Built) -> Iterable[tuple[str, bytes]]:
    """The same as Parquet, under the name of the CSV file with another ending. Raises ImportError without pyarrow."""
    from reports.sweep.answer import to_parquet

    for file, (rows, record) in _rows_of(built).items():
        yield f"{file.partition('.')[0]}{PARQUET}", to_parquet(rows, record)


def _rows_of(built: Built) -> dict[str, tuple[Sequence[Record], type[Record]]]:
    """File → its rows, and the record that they are of."""
    from reports.sweep.answer import headline_rows
    from reports.sweep.figures import UTILIZATION
    from results import records

    return {
        HEADLINE: (headline_rows(built), records.Headline),
        UTILIZATION: (built.utilization, records.Utilization),
        "utilization_post2021.csv": (built.post2021, records.Utilization),
        "step_times.csv": (built.step_times, records.StepTime),
        "work_times.csv": (built.work_times, records.WorkTime),
        "cleaned/profiled_operations.csv.gz": (built.cleaned_operations, records.CleanedOperation),
        "cleaned/profile_counts.csv": (built.profile_counts, records.ProfileCount),
        "cleaned/ratios.csv": (built.ratios, records.Ratio),
        "cleaned/agreement.csv": (built.agreement, records.Agreement),
        "cleaned/batch_law.csv": (built.batch_laws, records.BatchLaw),
        "cleaned/flop_counts.csv": (built.cleaned.flop_counts, records.FlopCount),
        "cleaned/cleaning_log.csv": (built.cleaned.log, records.CleaningLog),
        **({PARALLEL: (built.parallel_steps, records.ParallelStep)} if built.parallel_steps else {}),
    }


def table_differences(there: list[Row], now: list[Row]) -> Iterator[tuple[str, str]]:
    """(cell id or empty, what differs) of two tables."""
    if len(there) != len(now):
        yield "", f"{len(there)} rows, the raw rows give {len(now)}"
        return
    for number, (old, new) in enumerate(zip(there, now, strict=True), start=2):
        for name in (name for name in old if name in new):
            if not _same(old[name], new[name]):
                yield new.get("cell_id", ""), f"line {number}: {name} is {old[name]!r}, not {new[name]!r}"
                break


def _rows(content: bytes, file: str) -> list[Row]:
    return csv_rows((decompress(content) if file.endswith(".gz") else content).decode())


def _same(old: str, new: str) -> bool:
    return old == new or _close(_value(old), _value(new))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return text


def _close(old: Any, new: Any) -> bool:
    if isinstance(old, float) or isinstance(new, float):
        numbers = isinstance(old, (int, float)) and isinstance(new, (int, float))
        return numbers and math.isclose(old, new, rel_tol=SAME)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return all(map(_close, old, new))
    return bool(old == new)
