"""What is checked of a run, as tables that a person reads: verdicts of gates, and predicted step times.

A gate that fails shows its cells and numbers. Predictions are a table that was made before
(`benchmarks/gpu/predictions.py`): a row for each cell, with the least time of its step, and where something like it was
published a predicted time with its intervals. A prediction holds at a level where the measured time lies in that
level's interval. Not claimed: that cells of one model are independent.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cleaning.reconcile.variants import Built, View
from reports.shared.layout import WIDTH, Hanging, Part, page, strong, table_of
from reports.shared.numbers import DASH, si_time
from results.records.answers import FAIL, OPEN, PASS, Verdict
from results.records.cell import Cell
from results.records.rows import cell_text
from results.text_files import csv_rows, read_text

SHOWN = 4
"""Cells of a failing gate that the table names; csv and json have all."""

_MARKS = {PASS: "pass", FAIL: "FAIL", OPEN: "open"}


def to_text(verdicts: Sequence[Verdict], names: Mapping[str, str], width: int = WIDTH, colour: bool = False) -> str:
    """A sentence, then a line a gate, below a failing one its cells. names: cell id → what a person calls it."""
    column = max((len(each.gate) for each in verdicts), default=0)
    asked = max((len(str(each.asked)) for each in verdicts), default=0)
    parts: list[Part] = [strong(closing(verdicts)), ""]
    for verdict in verdicts:
        head = f"{verdict.gate:<{column}}  {_mark(verdict)}  {verdict.asked:>{asked}}"
        parts.append(Hanging(head, verdict.checks))
        parts += [f"      {line}" for line in _below(verdict, names)]
    return page(parts, width, colour)


def closing(verdicts: Sequence[Verdict]) -> str:
    """One sentence: how many gates, what became of them."""
    count = {name: sum(verdict.verdict == name for verdict in verdicts) for name in _MARKS}
    failing = ", ".join(verdict.gate for verdict in verdicts if verdict.verdict == FAIL)
    needed = ", ".join(verdict.gate for verdict in verdicts if verdict.verdict == OPEN and verdict.needed)
    text = f"{len(verdicts)} gates: {count[PASS]} passed, {count[FAIL]} failed, {count[OPEN]} open"
    more = (f"failed: {failing}" if failing else "", f"open, and needed to publish: {needed}" if needed else "")
    return "; ".join((text, *filter(None, more)))


def _mark(verdict: Verdict) -> str:
    return "OPEN" if verdict.verdict == OPEN and verdict.needed else _MARKS[verdict.verdict]


def _below(verdict: Verdict, names: Mapping[str, str]) -> list[str]:
    lines = []
    if verdict.verdict == FAIL:
        found = {f"{names[cell]} ({cell})" if cell in names else cell: words for cell, words in verdict.found.items()}
        lines = [f"{name}: {words}" for name, words in list(found.items())[:SHOWN]]
        lines += [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return [*lines, verdict.reason] if verdict.reason else lines


KEY = ("device", "model", "batch_size", "precision", "layout", "compile")
"""Columns that say which cell a row is of; the device by the name that its driver prints."""

NUMBERS = ("model_flop", "bound_time_s", "step_time_s")
"""Columns of numbers; low_90_s and high_90_s, or those of other levels, come beside them."""

PLAIN = ("optimizer", "input_pipeline", "parallel")
"""Parameters of a cell that are no columns of predictions: those are of steps with the defaults."""

Predictions = Mapping[Sequence[str], Mapping[str, Any]]
"""The cell, by its texts in KEY → its row, in which numbers are floats, and None where they are not known."""


def read_predictions(path: Path) -> Predictions:
    """The table of a file. Raises ValueError for one that is no such table, OSError."""
    rows = csv_rows(read_text(path))
    names: Sequence[str] = list(rows[0]) if rows else []
    numbers = [*NUMBERS, *(f"{end}_{level}_s" for level in levels_of(names) for end in ("low", "high"))]
    if not levels_of(names) or {*KEY, *numbers, "reason"} - set(names):
        wanted = ", ".join((*KEY, *NUMBERS, "low_90_s", "high_90_s", "reason"))
        raise ValueError(f"expected a table with columns {wanted}; got {', '.join(names) or 'no row'}")
    return {
        tuple(row[name] for name in KEY): {**row, **{name: float(row[name]) if row[name] else None for name in numbers}}
        for row in rows
    }


def levels_of(names: Iterable[str]) -> list[str]:
    """The levels of the intervals in these columns, %: those of low_90_s are ["90"]."""
    return [found[1] for name in names if (found := re.fullmatch(r"low_(\d+)_s", name))]


def checked(built: Built, predictions: Predictions) -> list[dict[str, Any]]:
    """A row for each measured cell that a prediction is of, in the order of the run. Raises ValueError for none."""
    devices = {session.sitting: session.device_name for session in built.sittings}
    rows = []
    for view in built.views:
        key = (devices.get(view.run.sitting, ""), *(cell_text(getattr(view.run, name)) for name in KEY[1:]))
        is_plain = all(getattr(view.run, name) == getattr(Cell, name) for name in PLAIN)
        if view.measured and is_plain and view.step is not None and key in predictions:
            rows.append(_row(view, view.step.time_s, predictions[key]))
    if not rows:
        raise ValueError(
            f"--predictions: expected a run of its cells on {next(iter(predictions))[0]}, got none of them"
        )
    return rows


def _row(view: View, time_s: float | None, predicted: Mapping[str, Any]) -> dict[str, Any]:
    """A cell of other FLOP than predicted has other sizes: nothing of it is compared, and the reason says so."""
    sizes = {"batch_size": view.run.batch_size, "compile": view.run.compile}
    row = {**predicted, **sizes, "model_flop": predicted["model_flop"] and int(predicted["model_flop"])}
    counted = {each.model_flop for each in view.fractions if each.method == "exact"} - {None, row["model_flop"]}
    if counted:
        row |= {name: None for name, value in row.items() if isinstance(value, float)}
        row["reason"] = f"{row['model']} has {counted.pop():,} model FLOP here, which are not those predicted"
    held = {f"held_{level}": _lies(row[f"low_{level}_s"], time_s, row[f"high_{level}_s"]) for level in levels_of(row)}
    return {**row, "measured_time_s": time_s, "is_above_bound": _lies(row["bound_time_s"], time_s, math.inf), **held}


def _lies(low: float | None, value: float | None, high: float | None) -> bool | None:
    """Whether low ≤ value ≤ high; None where one of them is not known."""
    return None if low is None or value is None or high is None else low <= value <= high


def predictions_text(rows: Sequence[Mapping[str, Any]], width: int, colour: bool) -> str:
    """How many held at each level, then the cells, then why some have no predicted time."""
    levels = levels_of(rows[0])
    columns = {f"held_{level}": f"within the {level} % interval" for level in levels}
    parts: list[Part] = []
    for name, words in {**columns, "is_above_bound": "not under the least time"}.items():
        known = [row[name] for row in rows if row[name] is not None]
        parts.append(strong(f"{words}: {sum(known)} of {len(known)}"))
    heads = ["model", "batch", "precision", *(f"in {level} %" for level in levels), "measured", "predicted"]
    table = [
        [
            row["model"] + ", compiled" * row["compile"], str(row["batch_size"]), row["precision"],
            *({True: "yes", False: "no", None: DASH}[row[name]] for name in columns),
            _time(row["measured_time_s"]), _time(row["step_time_s"]),
            *(f"{_time(row[f'low_{level}_s'])} to {_time(row[f'high_{level}_s'])}".replace("– to –", DASH)
              for level in levels),
            _time(row["bound_time_s"]),
        ]
        for row in rows
    ]  # fmt: skip
    heads += [*(f"{level} % interval" for level in levels), "least"]
    reasons = [f"No predicted time: {reason}." for reason in dict.fromkeys(row["reason"] for row in rows) if reason]
    return page([*parts, "", table_of([heads, *table], words=(0, 2), wraps=(0,)), "", *reasons], width, colour)


def _time(value: float | None) -> str:
    return DASH if value is None else si_time(value)
