"""The answer of `runners.predict`: how long a step would take, as text, as one row and as one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.predict import ARITHMETIC, LAUNCH_S, LAUNCHES, MEASURED, MEMORY, Prediction, Setting, TimePart
from analysis.reach import StepBound
from reports.shared import (
    WIDTH,
    Hanging,
    Part,
    TextTable,
    csv_text,
    digits,
    page,
    percent,
    si,
    si_time,
    strong,
    table_of,
)

LABEL = 17
"""Where a value begins."""

SHOWN = 10
"""Parts of the step that the text shows; the document has all."""

NO_ENERGY = (
    "joules are not predicted: the power that was published (Zeus) is of epochs, with data loading in them, in a "
    "precision that is not stated"
)
"""Why an answer has no energy."""

SMALL_BATCH = (
    "At batches this small the host takes a part of inference that is not in the fit: the upper end is as far as "
    "published rows of other devices needed; what it covers was not counted."
)

RATES = {ARITHMETIC: "of the peak", MEMORY: "of the bandwidth", LAUNCHES: "a launch"}


@dataclass(frozen=True, kw_only=True)
class PredictAnswer:
    """What `runners.predict` says of one step.

    is_bounded: False where the sum over the operations is no least time; the notes say why. eager_peak_bytes: memory of
    a training step, None where not known.
    """

    model: str
    device_name: str
    setting: Setting
    batch_size: int
    bound: StepBound
    prediction: Prediction
    is_bounded: bool = True
    eager_peak_bytes: int | None = None
    notes: Sequence[str] = ()

    def utilization(self, time_s: float) -> float:
        """Of the peak, if a step took so long."""
        return self.bound.model_flop / self.bound.peak_flop_per_s / time_s


def document(answer: PredictAnswer) -> dict[str, Any]:
    """The answer as a JSON document: SI units, unknown is None."""
    found, setting = answer.prediction, answer.setting
    coverage = found.coverage or (None, None, None)
    return {
        "model": answer.model,
        "device": answer.device_name,
        "precision": setting.precision,
        "layout": setting.layout,
        "mode": setting.mode,
        "compiled": setting.compiled,
        "batch_size": answer.batch_size,
        "step_time_s": found.time_s,
        "low_step_time_s": found.low_s,
        "high_step_time_s": found.high_s,
        "nominal_ratio": found.nominal,
        "items_per_s": answer.batch_size / found.time_s,
        "utilization_ratio": answer.utilization(found.time_s),
        "low_utilization_ratio": answer.utilization(found.high_s),
        "high_utilization_ratio": answer.utilization(found.low_s),
        "model_flop": answer.bound.model_flop,
        "peak_flop_per_s": answer.bound.peak_flop_per_s,
        "bound_time_s": answer.bound.bound_time_s if answer.is_bounded else None,
        "attainable_ratio": answer.bound.attainable_ratio if answer.is_bounded else None,
        "eager_peak_bytes": answer.eager_peak_bytes,
        "step_energy_j": None,
        "no_step_energy": NO_ENERGY,
        "device_status": found.device,
        "ground": found.ground,
        "fitted_on": found.fitted_on,
        "scores": found.scores,
        "coverage_ratio": coverage[0],
        "low_coverage_ratio": coverage[1],
        "high_coverage_ratio": coverage[2],
        "raised_to_bound": found.is_raised,
        "widened_for_small_batch": found.is_widened,
        "parts": [
            {"what": part.what, "name": part.name, "time_s": part.time_s, "factor": part.factor} for part in found.parts
        ],
        "notes": list(answer.notes),
    }


def to_csv(answer: PredictAnswer) -> str:
    """The numbers of the document as one row, without the parts."""
    row = {name: value for name, value in document(answer).items() if not isinstance(value, list | dict)}
    return csv_text(list(row), [row.values()])


def to_text(answer: PredictAnswer, width: int = WIDTH, colour: bool = False) -> str:
    """The answer as a page: the time first, then what it is made of and what it stands on."""
    found, setting = answer.prediction, answer.setting
    run = "compiled" if setting.compiled else "eager"
    title = (
        f"{answer.model}, batch {answer.batch_size}, {setting.precision}, {setting.layout}, {setting.mode}, {run}, "
        f"on {answer.device_name}"
    )
    used, low, high = (percent(answer.utilization(time_s)) for time_s in (found.time_s, found.high_s, found.low_s))
    rows = {
        "step time": f"{_times(found)}, {digits(answer.batch_size / found.time_s)} items/s",
        "utilization": f"{used} ({low} to {high}) of {si(answer.bound.peak_flop_per_s, 'FLOP/s')}",
    }
    if answer.is_bounded:
        rows["at best"] = f"{si_time(answer.bound.bound_time_s)} a step, {percent(answer.bound.attainable_ratio)}"
    if answer.eager_peak_bytes is not None:
        rows["memory"] = f"{si(answer.eager_peak_bytes, 'B')} at the peak of an eager step, counted"
    lines: list[Part] = [strong(title), strong(f"A step takes about {_times(found)}."), ""]
    lines += [Hanging(f"  {label}", words, LABEL) for label, words in rows.items()]
    lines += ["", "what the time is made of:", "", _parts(found.parts), ""]
    return page([*lines, *_ground(answer), *answer.notes], width, colour)


def _times(prediction: Prediction) -> str:
    ends = f"{si_time(prediction.low_s)} to {si_time(prediction.high_s)}"
    return f"{si_time(prediction.time_s)} ({ends} in {percent(prediction.nominal)})"


def _parts(parts: Sequence[TimePart]) -> TextTable:
    total_s = sum(part.time_s for part in parts)
    rows = [
        [si_time(part.time_s), percent(part.time_s / total_s), part.name or "all launches", part.what, _rate(part)]
        for part in parts[:SHOWN]
    ]
    left_s = sum(part.time_s for part in parts[SHOWN:])
    if left_s:
        rows.append([si_time(left_s), percent(left_s / total_s), f"{len(parts) - SHOWN} other parts", "", ""])
    return table_of([["time", "share", "operations", "bound by", "rate"], *rows], words=(2, 3, 4), wraps=(2,))


def _rate(part: TimePart) -> str:
    """What the factor says: a share of the datasheet's rate, or s a launch."""
    if part.what == LAUNCHES:
        return f"{si_time(part.factor * LAUNCH_S)} {RATES[part.what]}"
    return f"{percent(1 / part.factor)} {RATES[part.what]}"


def _ground(answer: PredictAnswer) -> list[str]:
    found = answer.prediction
    lines = [f"fitted on: {found.fitted_on.replace(' | ', ', ')} ({found.ground})."]
    if found.device != MEASURED:
        lines.append("This device was not measured: rates are those of other devices, times its datasheet's.")
    if found.coverage is not None:
        rate, low, high = (percent(each) for each in found.coverage)
        what = "families" if found.device == MEASURED else "devices"
        lines.append(
            f"The interval held {rate} ({low} to {high}) of the rows of {what} left out; it was calibrated on "
            f"{found.scores:,} rows."
        )
    if found.is_widened:
        lines.append(SMALL_BATCH)
    if found.is_raised:
        lines.append("The parts add up to less than the least time: that is shown instead.")
    return lines
