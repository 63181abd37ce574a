"""Published steps of a model and of models like it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
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


@functools.cache
def published_steps_on(device_name: str, table: Path = TABLE) -> tuple[PublishedStep, ...]:
    """The imported rows of one device: those that `on_device` takes from all, in a tenth of the time of reading all."""
    from results.store import read_records

    device = lookup(device_name)
    return read_records(table, PublishedStep, "device", lambda name: device is not None and lookup(name) == device)


def same_model(rows: Sequence[PublishedStep], model: str) -> list[PublishedStep]:
    """Rows of this model, by the name that was counted or printed, with or without "timm:"."""
    plain = model.removeprefix("timm:").partition(".")[0]
    return [row for row in rows if plain in (row.counted_model.removeprefix("timm:").partition(".")[0], row.model)]


def relatives(rows: Sequence[PublishedStep], model: str) -> list[PublishedStep]:
    """Rows of the model; where there is none, of its family."""
    if own := same_model(rows, model):
        return own
    family = family_of(rows, model)
    return [row for row in rows if row.family == family] if family else []


OTHER_NAMES: Mapping[str, str] = {
    "vit": "vision_transformer",
    "swin": "swin_transformer",
    "maxvit": "maxxvit",
    "mobilenetv2": "efficientnet",
    "mnasnet": "efficientnet",
    "wideresnet": "resnet",
    "resnext": "resnet",
    "inceptionv3": "inception_v3",
}
"""How a model's name begins, in lower case without underscores → the module of timm that builds such models."""


def family_of(rows: Sequence[PublishedStep], model: str) -> str:
    """The family of a model: of rows of it, else the one that its name begins with; empty where there is none."""
    if own := next((row.family for row in same_model(rows, model) if row.family), ""):
        return own
    plain = model.removeprefix("timm:").partition(".")[0].replace("_", "").lower()
    names = {family.replace("_", ""): family for family in {row.family for row in rows} if family}
    names |= {start: family for start, family in OTHER_NAMES.items() if family in names.values()}
    best = max((start for start in names if plain.startswith(start)), key=len, default="")
    return names.get(best, "")


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
