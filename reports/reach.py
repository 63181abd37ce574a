"""Writes the answer of `runners.reach`: the least time of a step on a device, its prediction, and others' measurements.

The answer is about a device that the user need not have. `to_text`, `to_csv` and `document` take a `ReachAnswer`, and
return a page, one row and one JSON document. A number is shown as a bound if a part of it has an unknown size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.devices.peaks import Device
from analysis.reach.bound import StepBound
from analysis.reach.prediction import MEASURED, NOMINAL, Prediction
from analysis.reach.step_time import ARITHMETIC, LAUNCH_S, LAUNCHES, MEMORY, TimePart
from reports.shared.layout import WIDTH, HangingIndent, Part, TextTable, csv_text, page, strong, table_of
from reports.shared.numbers import digits, percent, si, si_time

SHOWN = 10
"""Maximum number of parts of the step in the text; the document has all parts."""

PARTIAL = (
    "What oneDNN's LSTM keeps for its backward pass has no known size: bytes are without it; the least time and the "
    "utilization at best remain bounds."
)

NO_ENERGY = (
    "joules are not predicted: the power that was published (Zeus) is of epochs, with data loading in them, in a "
    "precision that is not stated"
)
"""Why an answer has no energy."""

SMALL_BATCH = (
    "At batches this small, the host takes a part of inference time that is not in the fit: the upper end is as high "
    "as published rows of other devices needed; its coverage was not measured."
)

RATES = {ARITHMETIC: "of the peak", MEMORY: "of the bandwidth", LAUNCHES: "a launch"}


@dataclass(frozen=True, kw_only=True)
class ReachAnswer:
    """The answer of `runners.reach` for one step.

    eager_peak_bytes: memory of the step without fusion. largest_batch: the largest that fits into the device, by the
    allocator's segments; at_most_batch: by live bytes only. Where they are None, notes say why. is_partial: whether a
    storage of the step has no known size; memory is then a lower bound, and no batch is known to fit. is_bounded: False
    where the sum over the operations is not a least time; notes say why. prediction: None where nothing similar was
    measured; no_prediction says why. published: others' measurements, one per row of the page; published_are: which
    measurements they are.
    """

    model: str
    device: Device
    precision: str
    layout: str
    mode: str
    compiled: bool
    batch_size: int
    bound: StepBound
    prediction: Prediction | None
    no_prediction: str
    published: Sequence[Mapping[str, Any]]
    published_are: str
    eager_peak_bytes: int | None = None
    memory_bytes: int | None = None
    largest_batch: int | None = None
    at_most_batch: int | None = None
    is_partial: bool = False
    is_bounded: bool = True
    notes: Sequence[str] = ()

    def utilization(self, time_s: float) -> float:
        """Return the share of the peak that a step of this time uses."""
        return self.bound.model_flop / self.bound.peak_flop_per_s / time_s

    @property
    def all_notes(self) -> list[str]:
        missing = [f"No predicted time: {self.no_prediction}."] * bool(self.no_prediction)
        return [*self.notes, *missing, *[PARTIAL] * self.is_partial]


def document(answer: ReachAnswer) -> dict[str, Any]:
    """Return the answer as a JSON document: SI units, unknown is None."""
    bound, partial, bounded = answer.bound, answer.is_partial, answer.is_bounded
    return {
        "model": answer.model,
        "device": answer.device.name,
        "precision": answer.precision,
        "layout": answer.layout,
        "mode": answer.mode,
        "compiled": answer.compiled,
        "batch_size": answer.batch_size,
        "model_flop": bound.model_flop,
        "peak_flop_per_s": bound.peak_flop_per_s,
        "bound_time_s": bound.bound_time_s if bounded else None,
        "attainable_ratio": bound.attainable_ratio if bounded else None,
        "unfused_time_s": None if partial else bound.unfused_time_s,
        "unfused_ratio": None if partial else bound.unfused_ratio,
        "bound_by": dict(bound.bound_by) if bounded else {},
        **_prediction(answer),
        "eager_peak_bytes": None if partial else answer.eager_peak_bytes,
        "at_least_eager_peak_bytes": answer.eager_peak_bytes if partial else None,
        "memory_bytes": answer.memory_bytes,
        "largest_batch": None if partial else answer.largest_batch,
        "at_most_largest_batch": answer.at_most_batch,
        "published": [dict(row) for row in answer.published],
        "published_are": answer.published_are,
        "relatives": [dict(row) for row in answer.published if row["device"] == answer.device.name],
        "source": answer.device.source,
        "notes": answer.all_notes,
    }


def _prediction(answer: ReachAnswer) -> dict[str, Any]:
    """Return the keys of the prediction: all None without one."""
    prediction = answer.prediction
    energy = {"step_energy_j": None, "no_step_energy": NO_ENERGY}
    if prediction is None:
        return dict.fromkeys(PREDICTED) | energy | {"parts": []}
    times_s = (prediction.time_s, prediction.low_s, prediction.high_s)
    used, high_used, low_used = map(answer.utilization, times_s)
    values = (
        *times_s, NOMINAL, answer.batch_size / prediction.time_s, used, low_used, high_used, prediction.device,
        prediction.ground, prediction.fitted_on, prediction.scores, *(prediction.coverage or (None, None, None)),
        prediction.is_raised, prediction.is_widened,
    )  # fmt: skip
    parts = [
        {"what": part.what, "name": part.name, "time_s": part.time_s, "factor": part.factor}
        for part in prediction.parts
    ]
    return dict(zip(PREDICTED, values, strict=True)) | energy | {"parts": parts}


PREDICTED = (
    "step_time_s", "low_step_time_s", "high_step_time_s", "nominal_ratio", "items_per_s", "utilization_ratio",
    "low_utilization_ratio", "high_utilization_ratio", "device_status", "ground", "fitted_on", "scores",
    "coverage_ratio", "low_coverage_ratio", "high_coverage_ratio", "raised_to_bound", "widened_for_small_batch",
)  # fmt: skip


def to_csv(answer: ReachAnswer) -> str:
    """Return the numbers of the document as one row: shares of the bound in columns of their own, no lists."""
    values = document(answer)
    row = {name: value for name, value in values.items() if not isinstance(value, list | dict)}
    row |= {f"bound_by_{what}_ratio": values["bound_by"].get(what) for what in answer.bound.bound_by}
    return csv_text(list(row), [row.values()])


def to_text(answer: ReachAnswer, width: int = WIDTH, colour: bool = False) -> str:
    """Return the answer as a page: first what bounds the step, and its predicted time."""
    run = "compiled" if answer.compiled else "eager"
    title = (
        f"{answer.model}, batch {answer.batch_size}, {answer.precision}, {answer.layout}, {answer.mode}, {run}, "
        f"on {answer.device.name}"
    )
    parts: list[Part] = [strong(title), strong(_sentence(answer)), ""]
    parts += [HangingIndent(f"  {label}", text, 17) for label, text in _rows(answer).items()]
    if answer.prediction:
        parts += ["", "what the predicted time is made of:", "", _parts(answer.prediction.parts)]
    if answer.published:
        columns = ("model", "device", "precision", "batch_size", "layout", "framework")
        rows = [["used", "model", "device", "precision", "batch", "layout", "framework"]]
        for row in answer.published:
            rows.append([percent(row["utilization_ratio"]), *(str(row[column] or "–") for column in columns)])
        table = table_of(rows, text_columns=(1, 2, 3, 5, 6), wraps=(1, 2, 6))
        parts += ["", f"measured by others, {answer.published_are}:", "", table]
    return page([*parts, "", f"peak: {answer.device.source}", *_ground(answer), *answer.all_notes], width, colour)


def _rows(answer: ReachAnswer) -> dict[str, str]:
    """Return the bound, the prediction and memory by their labels."""
    bound, prediction, least = answer.bound, answer.prediction, "at least " if answer.is_partial else ""
    peak, rows = si(bound.peak_flop_per_s, "FLOP/s"), dict[str, str]()
    if answer.is_bounded:
        shares = (f"{what} {percent(share)} of the least time" for what, share in bound.bound_by.items() if share)
        rate = digits(answer.batch_size / bound.bound_time_s)
        rows["at best"] = f"{percent(bound.attainable_ratio)} of {peak}"
        rows["bound by"] = ", ".join(shares)
        rows["least time"] = f"{si_time(bound.bound_time_s)} a step, {rate} items/s at most"
    rows["unfused"] = f"{least}{si_time(bound.unfused_time_s)} a step: an estimate, no bound"
    rows["model FLOP"] = f"{bound.model_flop:,} a step"
    if prediction is not None:
        times_s = (prediction.time_s, prediction.high_s, prediction.low_s)
        used, low, high = (percent(answer.utilization(time_s)) for time_s in times_s)
        rows["step time"] = f"{_times(prediction)}, {digits(answer.batch_size / prediction.time_s)} items/s"
        rows["utilization"] = f"{used} ({low} to {high}) of {peak}"
    if answer.eager_peak_bytes is not None:
        rows["memory"] = f"{least}{si(answer.eager_peak_bytes, 'B')} at the peak of an eager step"
    if answer.at_most_batch is not None and answer.memory_bytes is not None:
        fits = "" if answer.is_partial else f"fits: {answer.largest_batch:,}; "
        rows["largest batch"] = f"{fits}at most {answer.at_most_batch:,} in {si(answer.memory_bytes, 'B')}"
    return rows


def _times(prediction: Prediction) -> str:
    ends = f"{si_time(prediction.low_s)} to {si_time(prediction.high_s)}"
    return f"{si_time(prediction.time_s)} ({ends} in {percent(NOMINAL)})"


def _sentence(answer: ReachAnswer) -> str:
    bound, prediction = answer.bound, answer.prediction
    probably = "" if prediction is None else f" A step takes about {_times(prediction)}."
    if not answer.is_bounded:
        return f"The least time of a step is not known.{probably}"
    main = max(bound.bound_by, key=lambda what: bound.bound_by[what])
    because = {
        MEMORY: "reading and writing memory takes longer than the arithmetic",
        ARITHMETIC: "the arithmetic takes longer than reading and writing memory",
    }[main]
    return (
        f"No step of it can use more than {percent(bound.attainable_ratio)} of this peak, even if everything that can "
        f"be fused is: in {percent(bound.bound_by[main])} of the least time {because}.{probably}"
    )


def _parts(parts: Sequence[TimePart]) -> TextTable:
    total_s = sum(part.time_s for part in parts)
    rows = []
    for part in parts[:SHOWN]:  # what its factor means: a share of the datasheet's rate, or seconds per launch
        rate = si_time(part.factor * LAUNCH_S) if part.what == LAUNCHES else percent(1 / part.factor)
        name = part.name or "all launches"
        rows.append(
            [si_time(part.time_s), percent(part.time_s / total_s), name, part.what, f"{rate} {RATES[part.what]}"]
        )
    if rest_s := sum(part.time_s for part in parts[SHOWN:]):
        rows.append([si_time(rest_s), percent(rest_s / total_s), f"{len(parts) - SHOWN} other parts", "", ""])
    return table_of([["time", "share", "operations", "bound by", "rate"], *rows], text_columns=(2, 3, 4), wraps=(2,))


def _ground(answer: ReachAnswer) -> list[str]:
    """Return on which data the prediction rests."""
    if (prediction := answer.prediction) is None:
        return []
    lines = [f"fitted on: {prediction.fitted_on.replace(' | ', ', ')} ({prediction.ground})."]
    if prediction.device != MEASURED:
        lines.append("This device was not measured: rates are those of other devices, times its datasheet's.")
    if prediction.coverage is not None:
        rate, low, high = map(percent, prediction.coverage)
        what = "families" if prediction.device == MEASURED else "devices"
        lines.append(
            f"The interval held {rate} ({low} to {high}) of the rows of {what} left out; it was calibrated on "
            f"{prediction.scores:,} rows."
        )
    if prediction.is_widened:
        lines.append(SMALL_BATCH)
    if prediction.is_raised:
        lines.append("The parts add up to less than the least time, which is shown instead.")
    return lines
