"""Where a step of one's own lies among published ones: its percentile, against a prediction and against its bound.

Compared are rows of the same family of models, mode and arithmetic (16 bit, TF32 or fp32), of systems of one device:
those on the same device, and where there are too few of them those on all devices. The percentile is over rows, of
which a model may have several (versions of PyTorch, layouts, batches).

Not claimed: that the published rows are a fair sample of what a device can do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.atlas.published_step import PublishedStep
from analysis.atlas.related_steps import family_of, on_device
from analysis.devices import PRECISIONS, is_stand_in, lookup, nearest
from results.records import MEASURED, Headline, OfCell

FEWEST = 10
"""Rows among which a percentile is given."""

LOW_PERCENTILE = 10.0
"""A cell below it is named first."""

THIS_DEVICE, ALL_DEVICES = "this device", "all devices"

PLACED, REFUSED = "placed", "refused"

DATASHEET = "datasheet"

SIXTEEN_BIT = "16 bit"

ARITHMETIC = {"fp16": SIXTEEN_BIT, "bf16": SIXTEEN_BIT, "tf32": "TF32", "fp32": "fp32"}
"""Unit of matrix products → what is compared with what: utilizations are of the peak of the unit that ran."""


@dataclass(frozen=True, kw_only=True)
class ExpectedStep:
    """What is known of a step without measuring it, s; None with a reason where it is not known.

    low_s, high_s: the calibrated interval of the prediction. is_measured: whether published rows of the same device are
    in the fit.
    """

    predicted_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    is_measured: bool | None = None
    no_prediction: str = ""
    bound_s: float | None = None
    no_bound: str = ""


@dataclass(frozen=True, kw_only=True)
class PlacedStep(OfCell):
    """atlas.csv: a cell among published steps. status: "placed", or "refused" with the reason and nothing else.

    rows_of: "this device" or "all devices"; rows, models, sources: what the percentile is among. percentile: the share
    of them, in percent, that use less of their datasheet peak, rows with the same value half.
    """

    variant: str = ""
    repeat: int = 0
    device_name: str = ""
    stand_in: bool = False  # no hardware: a check of this program alone
    status: str = PLACED
    reason: str = ""
    step_time_s: float | None = None
    utilization_ratio: float | None = None
    family: str = ""
    rows_of: str = ""
    rows: int = 0
    models: int = 0
    sources: tuple[str, ...] = ()
    percentile: float | None = None
    median_ratio: float | None = None  # utilization of those rows
    no_percentile: str = ""
    predicted_time_s: float | None = None
    predicted_low_s: float | None = None
    predicted_high_s: float | None = None
    over_predicted_ratio: float | None = None  # measured ÷ predicted time
    inside_interval: bool | None = None
    device_in_fit: bool | None = None
    no_prediction: str = ""
    bound_time_s: float | None = None
    achieved_over_bound_ratio: float | None = None  # least ÷ measured time
    no_bound: str = ""
    surprises: tuple[str, ...] = ()


def refusal(cell: Headline) -> str:
    """Why a cell has no place among published steps; empty where it has one."""
    if cell.status not in MEASURED:
        return f"not measured ({cell.status})"
    if cell.device.partition(":")[0] == "cpu":
        return "measured on a CPU; the rows that can be compared are of GPUs"
    if lookup(cell.device_name) is None:
        near = nearest(cell.device_name)
        like = f", nearest {' or '.join(near)}" if near else ""
        return f"the table of peaks has no {cell.device_name or 'device without a name'}{like}"
    if cell.utilization_ratio is None or cell.step_time_s is None:
        return f"no utilization: {cell.reason}"
    if cell.denominator != DATASHEET:
        return f"its utilization is of the peak by {cell.denominator}, those of the rows are of the datasheet's"
    return ""


def peers_of(rows: Iterable[PublishedStep], family: str, mode: str, precision: str) -> list[PublishedStep]:
    """Rows with a utilization that a step can be compared with, on any device."""
    wanted = arithmetic(precision)
    return [
        row
        for row in rows
        if row.family == family
        and row.mode == mode
        and row.devices == 1
        and row.utilization_ratio is not None
        and arithmetic(row.precision) == wanted
    ]


def arithmetic(precision: str) -> str:
    """Of a precision of the project, its arithmetic as rows are compared by it."""
    return ARITHMETIC[PRECISIONS[precision].matmul_unit]


def percentile_of(value: float, others: Sequence[float]) -> float:
    """The share of the others below a value, in percent; those equal to it count half. Raises ValueError for none."""
    if not len(others):
        raise ValueError("expected at least one value to compare with")
    below, equal = (
        sum(compared) for compared in ((each < value for each in others), (each == value for each in others))
    )
    return 100.0 * (below + equal / 2) / len(others)


def place(cell: Headline, rows: Sequence[PublishedStep], expected: ExpectedStep, mode: str = "train") -> PlacedStep:
    """A cell among the published rows. expected: of its step, not used for a cell that is refused."""
    common = {name: getattr(cell, name) for name in _COMMON}
    placed = PlacedStep(**common, stand_in=is_stand_in(cell.device_name))
    if reason := refusal(cell):
        return replace(placed, status=REFUSED, reason=reason)
    assert cell.step_time_s is not None
    placed = replace(placed, step_time_s=cell.step_time_s, utilization_ratio=cell.utilization_ratio)
    placed = _against_expected(_among(placed, rows, mode), cell.step_time_s, expected)
    return replace(placed, surprises=tuple(surprises_of(placed)))


_COMMON = ("cell_id", "attempt", "model", "batch_size", "precision", "device", "variant", "repeat", "device_name")


def _among(placed: PlacedStep, rows: Sequence[PublishedStep], mode: str) -> PlacedStep:
    """The cell with its percentile, or with the reason why it has none."""
    family = family_of(rows, placed.model)
    if not family:
        return replace(placed, no_percentile=f"no published step is of a family like {placed.model}")
    everywhere = peers_of(rows, family, mode, placed.precision)
    here = on_device(everywhere, placed.device_name)
    rows_of, peers = (THIS_DEVICE, here) if len(here) >= FEWEST else (ALL_DEVICES, everywhere)
    placed = replace(
        placed,
        family=family,
        rows_of=rows_of,
        rows=len(peers),
        models=len({row.counted_model for row in peers}),
        sources=tuple(sorted({row.source for row in peers})),
    )
    if len(peers) < FEWEST:
        few = f"{len(peers)} published rows of {family}, {mode}, {arithmetic(placed.precision)}"
        return replace(placed, no_percentile=f"{few}: expected at least {FEWEST}")
    used = [row.utilization_ratio or 0.0 for row in peers]
    return replace(
        placed, percentile=percentile_of(placed.utilization_ratio or 0.0, used), median_ratio=float(np.median(used))
    )


def _against_expected(placed: PlacedStep, step_s: float, expected: ExpectedStep) -> PlacedStep:
    """The cell against its prediction and its bound."""
    predicted, low, high, bound = expected.predicted_s, expected.low_s, expected.high_s, expected.bound_s
    return replace(
        placed,
        predicted_time_s=predicted,
        predicted_low_s=low,
        predicted_high_s=high,
        over_predicted_ratio=None if predicted is None else step_s / predicted,
        inside_interval=None if low is None or high is None else low <= step_s <= high,
        device_in_fit=expected.is_measured,
        no_prediction=expected.no_prediction,
        bound_time_s=bound,
        achieved_over_bound_ratio=None if bound is None else bound / step_s,
        no_bound=expected.no_bound,
    )


def surprises_of(placed: PlacedStep) -> list[str]:
    """What of a cell is named first: faster than its bound, outside of the interval, among the lowest of its family."""
    found = []
    step_s, ratio = placed.step_time_s or 0.0, placed.achieved_over_bound_ratio
    if ratio is not None and ratio > 1:
        found.append(f"faster than its least time, {ratio:.3g} × of the bound: a fault of clock, count, bound or peak")
    low, high = placed.predicted_low_s, placed.predicted_high_s
    if placed.inside_interval is False and low is not None and high is not None and placed.predicted_time_s:
        ends = f"{low / placed.predicted_time_s:.2f} to {high / placed.predicted_time_s:.2f}"
        which = "faster" if step_s < low else "slower"
        found.append(f"{which} than predicted: {placed.over_predicted_ratio:.2f} × the time, interval {ends}")
    if placed.percentile is not None and placed.percentile < LOW_PERCENTILE:
        found.append(f"percentile {placed.percentile:.1f} of the utilization of {placed.family}, {placed.rows:,} rows")
    return found
