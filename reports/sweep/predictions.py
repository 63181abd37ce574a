"""Compares step times that were predicted before a run with those that it measured.

`read_predictions` reads a table that `benchmarks/gpu/predictions.py` wrote, with a row for each cell. A row has the
least time of the cell's step. Where comparable figures were published, it also has a predicted time with a 90 %
interval. `compared` takes the table and a `Built` (everything derived from the run), and returns a row per cell. A
prediction holds if the measured time lies in the interval. `predictions_text` writes these rows as text. Cells of one
model may not be independent.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cleaning.reconcile.derived import Built, View
from reports.shared.layout import page, strong, table_of
from reports.shared.numbers import DASH, si_time
from results.records.cell import Cell
from results.records.rows import cell_text
from results.text_files import csv_table, read_text

KEY = ("device", "model", "batch_size", "precision", "layout", "compile")
"""Columns that identify a cell. The device is named as its driver prints it."""

TIMES = ("bound_time_s", "step_time_s", "low_90_s", "high_90_s")

NOT_PREDICTED = ("optimizer", "parallel")
"""Parameters of a cell for which the table has no column, since only their defaults are predicted."""

_WANTED = (*KEY, *TIMES, "model_flop", "reason")

Predictions = Mapping[Sequence[str], Mapping[str, Any]]
"""The values of KEY, as text → the cell's row. Times are in s; unknown is None."""


def read_predictions(path: Path) -> Predictions:
    """Return the table in a file. Raises ValueError if the file is no such table, and OSError if it cannot be read."""
    try:
        names, lines = csv_table(read_text(path))
        if missing := [name for name in _WANTED if name not in names]:
            columns = f"expected a table with columns {', '.join(_WANTED)}"
            raise ValueError(f"{columns}; got none named {', '.join(missing)}")
        rows = [dict(zip(names, line, strict=True)) for line in lines]
        numbers = {"model_flop": int, **dict.fromkeys(TIMES, float)}
        return {
            tuple(row[name] for name in KEY): {
                **row, **{name: kind(row[name]) if row[name] else None for name, kind in numbers.items()}
            }
            for row in rows
        }  # fmt: skip
    except ValueError as fault:
        raise ValueError(f"--predictions: {path}: {fault}") from fault


def compared(built: Built, predictions: Predictions) -> list[dict[str, Any]]:
    """Return a row for each measured cell that has a prediction, in the order of the run. Raises ValueError if no cell
    has one."""
    devices = {session.session: session.device_name for session in built.sessions}
    rows = []
    for view in built.views:
        key = (devices.get(view.run.session, ""), *(cell_text(getattr(view.run, name)) for name in KEY[1:]))
        is_plain = all(getattr(view.run, name) == getattr(Cell, name) for name in NOT_PREDICTED)
        if view.measured and view.step is not None and is_plain and key in predictions:
            rows.append(_row(view, view.step.time_s, predictions[key]))
    if not rows:
        device = next((key[0] for key in predictions), "a device")
        raise ValueError(f"--predictions: expected a run of its cells on {device}, got none of them")
    return rows


def _row(view: View, time_s: float | None, predicted: Mapping[str, Any]) -> dict[str, Any]:
    """Compare one cell. A cell with other FLOP than predicted has other sizes: it is not compared, and the reason says
    so."""
    row = {**predicted, "batch_size": view.run.batch_size, "compile": view.run.compile}
    counted = {fraction.model_flop for fraction in view.fractions if fraction.method == "exact"} - {
        None,
        row["model_flop"],
    }
    if counted:
        row |= dict.fromkeys(TIMES)
        row["reason"] = f"{row['model']} has {counted.pop():,} model FLOP here, which are not those predicted"
    bound, _, low, high = (row[name] for name in TIMES)
    return {
        **row,
        "measured_time_s": time_s,
        "is_above_bound": None if bound is None or time_s is None else bound <= time_s,
        "held_90": None if low is None or high is None or time_s is None else low <= time_s <= high,
    }


def predictions_text(rows: Sequence[Mapping[str, Any]], width: int, colour: bool) -> str:
    """Return how many predictions held, the cells, and why some have no predicted time."""
    summary = []
    for name, label in (("held_90", "within the 90 % interval"), ("is_above_bound", "not under the least time")):
        known = [row[name] for row in rows if row[name] is not None]
        summary.append(strong(f"{label}: {sum(known)} of {len(known)}"))
    table = [["model", "batch", "precision", "held", "measured", "predicted", "90 % interval", "least"]]
    for row in rows:
        bound, predicted, low, high = (DASH if row[name] is None else si_time(row[name]) for name in TIMES)
        measured = DASH if row["measured_time_s"] is None else si_time(row["measured_time_s"])
        held = {True: "yes", False: "no", None: DASH}[row["held_90"]]
        model = f"{row['model']}, compiled" if row["compile"] else row["model"]
        interval = DASH if row["low_90_s"] is None else f"{low} to {high}"
        table.append([model, str(row["batch_size"]), row["precision"], held, measured, predicted, interval, bound])
    reasons = [f"No predicted time: {reason}." for reason in dict.fromkeys(row["reason"] for row in rows) if reason]
    return page([*summary, "", table_of(table, text_columns=(0, 2), wraps=(0,)), "", *reasons], width, colour)
