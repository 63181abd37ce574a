"""A step's predicted time, with its interval, its parts and the ground it stands on.

A prediction is refused where nothing like it was measured: no training step of a compiled model, no step in this
precision, a kind of operation that no fitted model had and that weighs. On a device that was not measured itself the
interval is the one that the measured devices had when each was left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from analysis.devices import lookup
from analysis.predict.intervals import NOMINAL, Interval, ground_of
from analysis.predict.operation_amounts import COMPILED, EAGER, StepAmounts
from analysis.predict.step_time import Machine, Setting, TimeModel, TimePart, parts_of
from results import Unavailable

MEASURED, OTHER_DEVICE = "measured", "not measured"

MOST_UNKNOWN = 0.05
"""Of the bytes of a step, in kinds of operations that no fitted model had."""


@dataclass(frozen=True)
class Prediction:
    """A step's predicted time, s: low_s and high_s hold the measured time in NOMINAL of the cases.

    device: MEASURED or OTHER_DEVICE; fitted_on: the setting, or pool, whose factors were used; ground: of the model.
    scores: how many rows the interval was calibrated on. coverage: counted on rows left out, with its 95 % interval;
    None where it was not counted. is_raised: the sum of the parts was under the bound, which is taken instead.
    is_widened: inference at a small batch on a device that was not measured: its upper end is as far as others needed.
    """

    time_s: float
    low_s: float
    high_s: float
    parts: tuple[TimePart, ...]
    device: str
    fitted_on: str
    ground: str
    scores: int
    coverage: tuple[float, float, float] | None
    is_raised: bool = False
    is_widened: bool = False
    nominal: float = NOMINAL


def predict(
    model: TimeModel, steps: Mapping[str, StepAmounts], batch_size: int, setting: Setting, machine: Machine,
    bound_s: float | None = None,
) -> Prediction:  # fmt: skip
    """The time of a step whose amounts are known. bound_s: its least time, under which no end of the interval lies.

    Raises Unavailable where nothing like the step was measured.
    """
    run = COMPILED if setting.compiled else EAGER
    found = model.factors_of(setting)
    if found is None:
        raise Unavailable(f"no one published {setting.pool.text.replace(' | ', ', ')} steps that this was fitted on")
    precisions = sorted({_words(text)[4] for text in model.factors if len(_words(text)) > 4})
    if setting.precision not in precisions:
        raise Unavailable(f"no published step in {setting.precision} was fitted, only in {', '.join(precisions)}")
    text, factors = found
    terms, step = model.terms[run], steps[run]
    _expect_known(terms.unknown_classes(step), step, batch_size)
    parts = parts_of(terms, factors, terms.row(step, batch_size, machine))
    ground = ground_of(parts)
    device = MEASURED if _words(text)[3:] else OTHER_DEVICE
    interval, coverage = _interval(model, setting, device, ground)
    is_widened = device == OTHER_DEVICE and setting.mode == "infer" and batch_size < model.details["small"]["below"]
    if is_widened:
        interval = replace(interval, high=max(interval.high, model.details["small"]["high"][setting.layout]))
        coverage = None
    total_s = sum(part.time_s for part in parts)
    least_s = bound_s or 0.0
    return Prediction(
        max(total_s, least_s),
        max(total_s * interval.low, least_s),
        max(total_s * interval.high, least_s),
        tuple(parts),
        device,
        text,
        ground,
        interval.scores,
        coverage,
        total_s < least_s,
        is_widened=is_widened,
    )


def _words(text: str) -> list[str]:
    return text.split(" | ")


def _expect_known(unknown: list[str], step: StepAmounts, batch_size: int) -> None:
    nbytes = {name: each.at(batch_size)[2] for name, each in step.items()}
    weight = sum(nbytes[name] for name in unknown) / max(sum(nbytes.values()), 1.0)
    if weight > MOST_UNKNOWN:
        raise Unavailable(f"no published model has operations like its {', '.join(unknown[:3])}")


def _interval(
    model: TimeModel, setting: Setting, device: str, ground: str
) -> tuple[Interval, tuple[float, float, float] | None]:
    """The interval of a group, the wider one on a device that was not measured; and what it covered."""
    kind = "families" if device == MEASURED else "devices"
    group = f"{setting.pool.text} | {ground}"
    found = model.details["intervals"][kind]
    chosen = group if group in found else ""
    low, high, scores = found[chosen]
    counted = model.details["coverage"][kind].get(chosen)
    return Interval(low, high, scores), None if counted is None else (counted[0], counted[1], counted[2])


def is_power_limited(device_name: str) -> bool:
    """Whether a card's sheet says that its clock falls under load: a Max-Q, or a note of the table that says so."""
    device = lookup(device_name)
    return device is not None and (
        "Max-Q" in device.name or device.name in POWER_LIMITED or "clock falls" in device.note
    )


POWER_LIMITED = frozenset({"Tesla T4", "NVIDIA L4", "NVIDIA A10", "NVIDIA A10G", "Tesla P4"})
"""Cards of at most 150 W, far under what their units draw at the boost clock."""
