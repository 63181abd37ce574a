"""Golden answers: what the project answered before the cut, as small CSVs that one test compares with today's.

ANSWERS: a table's name (of `NAME.csv` in this folder) → the function that computes its rows. It takes `wanted`, which
says of a case's name whether it is to be computed, and gives rows as dicts whose first column is the case's name.
PLAIN: a table's name → the cases that the plain suite computes; the marker `slow` computes all. A table without an
entry is computed whole by the plain suite, one with an empty entry by `slow` only.
TOLERANCES: a table's name → by how much its floats may differ, relative; TOLERANCE where there is no entry.
A value changes only in a commit whose subject begins with `golden:` and whose text says why the old one was wrong.
"""

import contextlib
import csv
import io
import math
import runpy
import sys
import warnings
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from unittest import mock

Value = int | float | str | bool | None
Row = dict[str, Value]
Wanted = Callable[[str], bool]
Answer = Callable[[Wanted], Iterable[Row]]

FOLDER = Path(__file__).parent
DIGITS = 12
TOLERANCE = 1e-9


def printed(command: str, *words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `python -m runners.COMMAND WORDS`, run in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    words = (command, *map(str, words))
    with mock.patch.object(sys, "argv", list(words)), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # a test imported it before
                runpy.run_module(f"runners.{command}", run_name="__main__")
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()


def stored_text(value: Value) -> str:
    """A value as the CSV holds it: floats at twelve significant digits, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float) and math.isfinite(value):
        return repr(float(f"{value:.{DIGITS}g}"))
    return str(value)


def write(name: str, rows: Iterable[Row]) -> None:
    texts = [{column: stored_text(value) for column, value in row.items()} for row in rows]
    columns = list(dict.fromkeys(column for row in texts for column in row))
    with (FOLDER / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(texts)


def read(name: str) -> list[dict[str, str]]:
    with (FOLDER / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def agrees(value: Value, stored: str, tolerance: float = TOLERANCE) -> bool:
    """Ints and text are equal; floats differ by at most the tolerance."""
    if isinstance(value, float) and stored:
        other = float(stored)
        return math.isclose(value, other, rel_tol=tolerance) or (math.isnan(value) and math.isnan(other))
    return stored_text(value) == stored


def differences(rows: Iterable[Row], stored: Collection[dict[str, str]], tolerance: float = TOLERANCE) -> list[str]:
    """One line for each value that is not the stored one, and for rows that one side lacks."""
    computed = list(rows)
    lines = [
        f"{next(iter(row.values()))}: {column} is {stored_text(row.get(column))}, was {text}"
        for row, old in zip(computed, stored, strict=False)
        for column, text in old.items()
        if not agrees(row.get(column), text, tolerance)
    ]
    if len(computed) != len(stored):
        lines.append(f"{len(computed)} rows, were {len(stored)}")
    return lines
