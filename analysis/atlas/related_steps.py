"""Published steps of a model and of models like it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.atlas.published_step import PublishedStep
from analysis.devices import lookup

TABLE = Path(__file__).with_name("published_steps.csv.gz")
"""The imported rows (`python -m runners.atlas import`)."""


@dataclass(frozen=True, kw_only=True)
class RelativeStep:
    """What a published step reached. source: the file it is from."""

    model: str
    batch_size: int
    layout: str
    framework: str
    utilization_ratio: float
    achieved_over_bound_ratio: float | None
    source: str


@functools.cache
def published_steps(table: Path = TABLE) -> tuple[PublishedStep, ...]:
    """Every imported row. Raises ValueError for a file that is not the table."""
    from results.store import read_records

    return read_records(table, PublishedStep)


def same_model(rows: Sequence[PublishedStep], model: str) -> list[PublishedStep]:
    """Rows of this model, by the name that was counted or printed, with or without "timm:"."""
    plain = model.removeprefix("timm:").partition(".")[0]
    return [row for row in rows if plain in (row.counted_model.removeprefix("timm:").partition(".")[0], row.model)]


def relatives(rows: Sequence[PublishedStep], model: str) -> list[PublishedStep]:
    """Rows of the model; where there is none, of the family whose name its own begins with."""
    if own := same_model(rows, model):
        return own
    plain = model.removeprefix("timm:").partition(".")[0].replace("_", "")
    families = {row.family for row in rows if row.family and plain.startswith(row.family.replace("_", ""))}
    best = max(families, key=len, default=None)
    return [row for row in rows if row.family == best] if best else []


def on_device(rows: Sequence[PublishedStep], device_name: str) -> list[PublishedStep]:
    """Rows that were measured on the device of the peaks table that this name means."""
    wanted = lookup(device_name)
    return [row for row in rows if wanted is not None and lookup(row.device) == wanted]


def best_of_each(rows: Sequence[PublishedStep], most: int) -> list[RelativeStep]:
    """The best of each model, the best first, at most so many."""
    best: dict[str, PublishedStep] = {}
    for row in rows:
        if row.utilization_ratio is not None and row.utilization_ratio > (
            best[row.counted_model].utilization_ratio or 0.0 if row.counted_model in best else 0.0
        ):
            best[row.counted_model] = row
    chosen = sorted(best.values(), key=lambda row: -(row.utilization_ratio or 0.0))[:most]
    return [
        RelativeStep(
            model=row.counted_model,
            batch_size=row.batch_size or 0,
            layout=row.layout,
            framework=row.framework + (", compiled" if row.compiled else ""),
            utilization_ratio=row.utilization_ratio or 0.0,
            achieved_over_bound_ratio=row.achieved_over_bound_ratio,
            source=f"{row.source}: {row.file}, row {row.row}",
        )
        for row in chosen
    ]
