"""Published steps of one model as text, CSV or documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.atlas import PublishedStep
from reports.shared import WIDTH, Part, csv_text, page, percent, si_time, table_of

COLUMNS = (
    "source", "file", "row", "model", "counted_model", "device", "devices", "mode", "precision", "layout", "framework",
    "compiled", "batch_size", "image_size", "step_time_s", "items_per_s", "model_flop", "utilization_ratio",
    "attainable_ratio", "achieved_over_bound_ratio", "status", "reason",
)  # fmt: skip
"""Fields of a row that are printed."""


def document(rows: Sequence[PublishedStep]) -> list[dict[str, Any]]:
    """The rows as JSON documents: SI units, unknown is None."""
    return [{name: getattr(row, name) for name in COLUMNS} for row in rows]


def to_csv(rows: Sequence[PublishedStep]) -> str:
    """The rows as CSV."""
    return csv_text(COLUMNS, (each.values() for each in document(rows)))


def to_text(rows: Sequence[PublishedStep], note: str = "", width: int = WIDTH, colour: bool = False) -> str:
    """The rows as a table, and what the columns mean."""
    cells = [
        [
            row.model,
            "-" if row.utilization_ratio is None else percent(row.utilization_ratio),
            "-" if row.achieved_over_bound_ratio is None else percent(row.achieved_over_bound_ratio),
            "-" if row.step_time_s is None else si_time(row.step_time_s),
            str(row.batch_size or "-"),
            row.mode + ("*" if row.compiled else ""),
            {"channels_last": "nhwc", "channels_first": "nchw"}.get(row.layout, "-"),
        ]
        for row in rows
    ]
    heads = ["model", "utilization", "of bound", "a step", "batch", "mode", "layout"]
    devices = sorted({f"{row.device}, {row.precision}" for row in rows})
    parts: list[Part] = [table_of([heads, *cells], words=(0, 5, 6), wraps=(0,), keep=4), ""]
    parts += [f"Measured by others on {each}." for each in devices]
    parts.append("* compiled. Utilization: of the datasheet's dense peak; of bound: least time ÷ time (docs/reach.md).")
    return page([*parts, *note.splitlines()], width, colour)
