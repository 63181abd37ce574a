"""Predicts the probable time of a training step on a device, with an interval, from factors fitted on published steps.

`predict` takes a step's amounts (FLOP, bytes, launches), a setting and a device's rates, and returns a `Prediction`. It
raises Unavailable where nothing similar was measured. For a device that was not measured, the interval comes from
devices that were left out of the fit. Not claimed: that published rows are a fair sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.devices.peaks import Device
from analysis.reach.step_time import (
    COMPILED,
    EAGER,
    GROUPED,
    TRANSPOSED,
    DatasheetRates,
    Setting,
    StepAmounts,
    TimeModel,
    TimePart,
    parts_of,
)
from results.errors import Unavailable

MEASURED, OTHER_DEVICE = "measured", "not measured"

NOMINAL = 0.9
"""Nominal coverage of an interval: the share of its group's rows that should lie in it."""

WIDELY, THINLY = "measured widely", "measured thinly"

THIN_KINDS = (GROUPED, TRANSPOSED, "recurrent", "attention backward")
"""Kinds of operations that dominate few model families, so that they are measured thinly."""


@dataclass(frozen=True)
class Prediction:
    """A step's predicted time, s. The measured time should lie from low_s to high_s in NOMINAL of the cases.

    device: MEASURED or OTHER_DEVICE. fitted_on: the setting or pool whose factors were used. ground: WIDELY or THINLY.
    scores: number of rows that calibrated the interval. coverage: share of rows left out of the fit that lay in their
    interval, with its 95 % interval; None where it was not counted. is_raised: the sum of the parts was below the
    bound, which replaces it. is_widened: the upper end was raised for inference at a small batch on an unmeasured
    device, as far as other devices needed.
    """

    time_s: float
    low_s: float
    high_s: float
    parts: tuple[TimePart, ...]
    device: str
    fitted_on: str
    ground: str
    scores: int
    coverage: Sequence[float] | None
    is_raised: bool
    is_widened: bool


def predict(
    model: TimeModel, steps: Mapping[str, StepAmounts], batch_size: int, setting: Setting, machine: DatasheetRates,
    bound_s: float | None = None,
) -> Prediction:  # fmt: skip
    """Predict the time of a step whose amounts are known. bound_s: its least time, below which no end of the interval
    lies.

    Raises Unavailable where nothing similar was measured.
    """
    fitted = model.factors_of(setting)
    if fitted is None:
        raise Unavailable(f"no published step was fitted in this setting: {setting.pool.text.replace(' | ', ', ')}")
    precisions = sorted({text.split(" | ")[4] for text in model.newest})
    if setting.precision not in precisions:
        raise Unavailable(f"no published step in {setting.precision} was fitted, only in {', '.join(precisions)}")
    text, factors = fitted
    run = COMPILED if setting.compiled else EAGER
    terms, step = model.terms[run], steps[run]
    _expect_known(terms.unknown_classes(step), step, batch_size)
    parts = parts_of(terms, factors, terms.row(step, batch_size, machine))
    ground = ground_of(parts)
    device = OTHER_DEVICE if text == setting.pool.text else MEASURED
    low, high, scores, coverage = interval_of(model, setting, device, ground)
    is_widened = device == OTHER_DEVICE and setting.mode == "infer" and batch_size < model.small["below"]
    if is_widened:
        high, coverage = max(high, model.small["high"][setting.layout]), None
    total_s, least_s = sum(part.time_s for part in parts), bound_s or 0.0
    return Prediction(
        time_s=max(total_s, least_s),
        low_s=max(total_s * low, least_s),
        high_s=max(total_s * high, least_s),
        parts=tuple(parts),
        device=device,
        fitted_on=text,
        ground=ground,
        scores=scores,
        coverage=coverage,
        is_raised=total_s < least_s,
        is_widened=is_widened,
    )


def _expect_known(unknown: Sequence[str], step: StepAmounts, batch_size: int) -> None:
    """Raise Unavailable where more than 5 % of a step's bytes are in kinds of operations that no fitted model had."""
    nbytes = {name: amounts.for_batch(batch_size)[2] for name, amounts in step.items()}
    share = sum(nbytes[name] for name in unknown) / max(sum(nbytes.values()), 1.0)
    if share > 0.05:
        raise Unavailable(f"no published model has operations like its {', '.join(unknown[:3])}")


def ground_of(parts: Sequence[TimePart]) -> str:
    """Return THINLY where more than a tenth of a prediction's time is in THIN_KINDS, else WIDELY."""
    total_s = sum(part.time_s for part in parts)
    thin_s = sum(part.time_s for part in parts if part.name.startswith(THIN_KINDS))
    return THINLY if total_s and thin_s / total_s > 0.1 else WIDELY


def interval_of(
    model: TimeModel, setting: Setting, device: str, ground: str
) -> tuple[float, float, int, Sequence[float] | None]:
    """Return (low, high, scores, coverage) of a group: low ≤ measured ÷ predicted ≤ high in NOMINAL of its rows. An
    unmeasured device gets the wider interval."""
    kind = "families" if device == MEASURED else "devices"
    group = f"{setting.pool.text} | {ground}"
    group = group if group in model.intervals[kind] else ""
    low, high, scores = model.intervals[kind][group]
    return low, high, int(scores), model.coverage[kind].get(group)


def is_power_limited(device: Device) -> bool:
    """Return whether a card's clock falls under load: a Max-Q, one of POWER_LIMITED, or one whose note in the table of
    peaks says so."""
    return "Max-Q" in device.name or device.name in POWER_LIMITED or "clock falls" in device.note


POWER_LIMITED = frozenset({"Tesla T4", "NVIDIA L4", "NVIDIA A10", "NVIDIA A10G", "Tesla P4"})
"""Cards whose power limit is far below what their units draw at the boost clock."""
