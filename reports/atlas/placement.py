"""Cells of a run among published steps (`runners.report RUN --atlas`): as text, document and part of the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from analysis.atlas import REFUSED, PlacedStep
from reports.shared import (
    DASH,
    WIDTH,
    Hanging,
    Part,
    Section,
    Table,
    digits,
    page,
    percent,
    si_time,
    strong,
    table_of,
)

COLUMNS = (
    "Percentile: the share of the published rows that use less of their datasheet peak. Predicted: the time of "
    "runners.predict, whose interval is to hold 90 % of the steps (docs/predict.md). Bound: least ÷ measured time "
    "(docs/reach.md)."
)

STAND_IN = "Cells marked † are of a stand-in device, which computes nothing: they check this program and nothing else."

MARK = "†"

HEADS = ("cell", "used", "percentile", "time ÷ predicted", "of the bound")


def placed_document(placed: Sequence[PlacedStep]) -> dict[str, Any]:
    """The cells as a JSON document: SI units, unknown is None, surprises first."""
    return {
        "placed": sum(each.status != REFUSED for each in placed),
        "refused": sum(each.status == REFUSED for each in placed),
        "surprises": [
            {"cell_id": each.cell_id, "attempt": each.attempt, "surprise": words}
            for each in placed
            for words in each.surprises
        ],
        "cells": [dataclasses.asdict(each) for each in placed],
    }


def placed_text(placed: Sequence[PlacedStep], width: int = WIDTH, colour: bool = False) -> str:
    """The cells as a page: surprises first, then a table, what it is compared with, and what is refused."""
    shown = [each for each in placed if each.status != REFUSED]
    parts: list[Part] = [strong(headline(placed)), *(Hanging("  *", line, 4) for line in surprise_lines(placed)), ""]
    if shown:
        rows = [_row(each) for each in shown]
        parts += [table_of([list(HEADS), *map(list, rows)], words=(0,), wraps=(0, 3), keep=3), ""]
    parts += notes(placed)
    return page(parts, width, colour)


def placed_section(placed: Sequence[PlacedStep]) -> Section:
    """The same as a part of report.html."""
    rows = tuple(tuple(_row(each)) for each in placed if each.status != REFUSED)
    table = Table("Cells among published steps", HEADS, rows, frozenset(("cell",)))
    return Section(
        "atlas",
        "Among published steps",
        (headline(placed), *surprise_lines(placed), *notes(placed)),
        (table,) if rows else (),
    )


def headline(placed: Sequence[PlacedStep]) -> str:
    """How many cells have a place, and how many surprise."""
    shown = sum(each.status != REFUSED for each in placed)
    surprising = sum(bool(each.surprises) for each in placed)
    cells = f"{shown} of {len(placed)} {'cell' if len(placed) == 1 else 'cells'}"
    if not shown:
        return f"None of {len(placed)} {'cells' if len(placed) != 1 else 'cell'} can be compared with published steps."
    outside = (
        f"{surprising} of them outside of what was expected" if surprising else "none outside of what was expected"
    )
    return f"{cells} compared with steps that others published; {outside}."


def surprise_lines(placed: Sequence[PlacedStep]) -> list[str]:
    """A line for each surprise."""
    return [f"{name_of(each)}: {words}" for each in placed for words in each.surprises]


def notes(placed: Sequence[PlacedStep]) -> list[str]:
    """What stands below: what percentiles are among, why something is missing, what is refused, what columns mean."""
    shown = [each for each in placed if each.status != REFUSED]
    lines = [_among(each) for each in shown if each.percentile is not None]
    missing = [
        (what, reason, name_of(each))
        for each in placed
        for what, reason in (
            ("refused", each.reason),
            ("no percentile", each.no_percentile),
            *_unexpected(each),
        )
        if reason
    ]
    for what, reason in dict.fromkeys((what, reason) for what, reason, _ in missing):
        names = [name for *about, name in missing if about == [what, reason]]
        cells = f"all {len(names)} cells" if len(names) == len(placed) > 1 else "; ".join(names)
        lines.append(f"{what}: {cells}: {reason}{'' if reason.endswith('.') else '.'}")
    lines += [COLUMNS] if shown else []
    lines += [STAND_IN] if any(each.stand_in for each in shown) else []
    return list(dict.fromkeys(lines))


def _among(each: PlacedStep) -> str:
    """What a percentile is among, as a sentence."""
    where = f"on {each.device_name}" if each.rows_of == "this device" else "on all devices, as this one has too few"
    return (
        f"{each.family}: {each.rows:,} rows of {each.models:,} models {where}, from {', '.join(each.sources)}; "
        f"median utilization {percent(each.median_ratio or 0.0)}."
    )


def _unexpected(each: PlacedStep) -> list[tuple[str, str]]:
    """(what is missing, reason) of prediction and bound; once where both are missing for the same."""
    if each.no_prediction == each.no_bound:
        return [("neither prediction nor bound", each.no_bound)]
    return [("no prediction", each.no_prediction), ("no bound", each.no_bound)]


def name_of(each: PlacedStep) -> str:
    """A cell in a few words."""
    variant = f", {each.variant}" if each.variant else ""
    repeat = f", repeat {each.repeat}" if each.repeat else ""
    return f"{each.model}{MARK if each.stand_in else ''}, batch {each.batch_size}, {each.precision}{variant}{repeat}"


def _row(each: PlacedStep) -> list[str]:
    return [
        name_of(each),
        percent(each.utilization_ratio or 0.0),
        DASH if each.percentile is None else digits(each.percentile),
        DASH if each.over_predicted_ratio is None else _time_and_interval(each),
        DASH if each.achieved_over_bound_ratio is None else percent(each.achieved_over_bound_ratio),
    ]


def _time_and_interval(each: PlacedStep) -> str:
    """measured ÷ predicted time with its interval, and whether the time lies in it."""
    predicted, low, high = each.predicted_time_s or 0.0, each.predicted_low_s or 0.0, each.predicted_high_s or 0.0
    ends = f"{si_time(low)} to {si_time(high)}{'' if each.inside_interval else ', outside'}"
    return f"{digits(each.over_predicted_ratio or 0.0)} of {si_time(predicted)} ({ends})"
