"""Writes the answers of `runners.project`: what training to a target error costs, and the FLOP of given GPU-hours.

`to_text`, `to_csv` and `document` take a `ProjectionAnswer`: the predicted data, parameters, FLOP, memory and time of a
training. `compute_parts`, `compute_csv` and `compute_document` take a `GpuHoursAnswer`, which converts GPU-hours to
FLOP or back. They return a page, CSV and JSON. `quantity` and `ends` write numbers and intervals. This file predicts
nothing itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.project.accelerator import Accelerator, SubBatches
from analysis.project.domain import Domain
from analysis.project.frontier import DAY_S, FirstOrderFit, amount
from analysis.stats.intervals import Estimate, Uncertain
from reports.shared.layout import WIDTH, Part, TableColumn, TextTable, csv_text, page, strong, table_of
from reports.shared.numbers import digits, si

CONVENTION = (
    "model FLOP: a multiply-add is 2; convolutions and matrix products of forward and backward, nothing recomputed"
)


@dataclass(frozen=True)
class ReachedUtilization:
    """A device, its peak, and the utilization that a training reaches on it. unit: the arithmetic unit whose peak it
    is."""

    device: str
    precision: str
    unit: str
    peak_flop_per_s: float
    peak_source: str
    utilization: Uncertain


def quantity(value: float, unit: str = "") -> str:
    """Write three significant digits: "6.78e19 FLOP", "1,234 kWh", "0.201"."""
    small = f"{value:.2e}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{small} {unit}".rstrip()
    whole, dot, rest = digits(value).partition(".")
    return f"{int(whole):,}{dot}{rest} {unit}".rstrip()


def ends(low: float, high: float) -> str:
    """Write the two ends of an interval."""
    return "exact" if low == high else f"{quantity(low)} to {quantity(high)}"


def reached_document(reached: ReachedUtilization, confidence: float) -> dict[str, Any]:
    """Return device, peak and utilization as a JSON document."""
    low, high = reached.utilization.interval(confidence)
    ratio = {"ratio": reached.utilization.median, "low_ratio": low, "high_ratio": high}
    return {
        "device": reached.device,
        "precision": reached.precision,
        "unit": reached.unit,
        "peak_flop_per_s": reached.peak_flop_per_s,
        "peak_source": reached.peak_source,
        "utilization": {**ratio, "scale": reached.utilization.scale},
        "flop_convention": CONVENTION,
    }


MANY = 1e18
"""Amount from which a number is written as a power of ten."""


LEAST, MOST = "at least", "at most"


@dataclass(frozen=True)
class Draws:
    """The inputs of a projection by draws. inputs: those with an interval. reached: the utilization, None where the
    roofline's shares are assumed; link: name of the link between the devices, "" for one device."""

    inputs: Sequence[str]
    confidence: float
    reached: ReachedUtilization | None
    devices: int
    link: str


@dataclass(frozen=True)
class ProjectionAnswer:
    """The whole answer of a projection. middle: by the roofline, without intervals; estimates: its numbers with
    intervals; rules: how operations were counted; limits: of gamma, lambda, mu and delta; largest_batch: that fits into
    one accelerator's memory; accelerators: how many have a memory as large as the footprint. Both are None where the
    memory is unknown. partial_bytes: whether a storage of unknown size is left out."""

    domain: Domain
    target: Accelerator
    rules: str
    middle: Mapping[str, Any]
    estimates: Mapping[str, Estimate]
    fit: FirstOrderFit
    limits: Mapping[str, float]
    sub_batches: SubBatches
    largest_batch: int | None
    accelerators: int | None
    notes: tuple[str, ...] = ()
    draws: Draws | None = None
    partial_bytes: bool = False

    @property
    def measured(self) -> ReachedUtilization | None:
        """The utilization that replaces the roofline's shares."""
        return self.draws.reached if self.draws else None


def bound_sides(answer: ProjectionAnswer) -> dict[str, str]:
    """Return field of the projection → "at least" or "at most", for those that depend on bytes of which a part is
    unknown."""
    if not answer.partial_bytes:
        return {}
    hanging = {} if answer.measured else {"step_s": LEAST, "epoch_s": LEAST, "utilization_ratio": MOST}
    return {"moved_bytes": LEAST, "footprint_bytes": LEAST, "intensity": MOST, **hanging}


def quantities(answer: ProjectionAnswer) -> dict[str, tuple[str, str]]:
    """Return field of the projection → (label, unit)."""
    draws = answer.draws
    return {
        "data_scale": ("data, times today's", ""),
        "data": ("data", answer.domain.data_unit),
        "parameters": ("parameters", ""),
        "grown": (answer.domain.grows, ""),
        "flop": ("FLOP of a step", "FLOP"),
        "moved_bytes": ("bytes of a step", "B"),
        "intensity": ("operational intensity", "FLOP/B"),
        "footprint_bytes": ("footprint", "B"),
        "step_s": ("time of a step", "s"),
        **({"reduce_s": ("of it, sum of gradients", "s")} if draws and draws.devices > 1 else {}),
        "utilization_ratio": ("utilization" if answer.measured else "utilization by the roofline", ""),
        "steps": ("steps of an epoch", ""),
        "epoch_s": ("epoch", "s"),
        **({"flop_trained": ("training compute", "FLOP"), "gpu_hours": ("GPU-hours", "h")} if draws else {}),
    }


def to_text(answer: ProjectionAnswer, width: int = WIDTH, colour: bool = False) -> str:
    """Return the sentence on the target, a table, sub-batches and laws."""
    domain = answer.domain
    grown = f"{domain.grows} {answer.middle['grown']:,}, sub-batch {domain.sub_batch:,}"
    meant, *others = _sentences(answer)
    target, shares = answer.target, ("", "")
    if not answer.measured:  # assumed
        shares = f" × {target.compute_ratio:g}", f" × {target.memory_ratio:g}"
    peak, bandwidth = amount(target.peak_flop_per_s, "FLOP/s"), amount(target.bandwidth_bytes_per_s, "B/s")
    parts: list[Part] = [
        strong(f"{domain.name}: {domain.model}, {grown}"),
        strong(meant),
        f"to an error of {domain.numbers['error_target'][0]:g} {domain.error_unit}".rstrip(),
        f"on {target.name}: {peak}{shares[0]}, {bandwidth}{shares[1]}",
        "",
        table_of(list(_rows(answer)), text_columns=(0,), wraps=(0,)),
        "",
        table_of(list(_laws(answer)), text_columns=(0,), wraps=(0,)),
        "",
    ]
    return page([*parts, *others], width, colour)


def to_csv(answer: ProjectionAnswer) -> str:
    """Return a row for each quantity: name, value, low, high, unit. Unknown is empty."""
    rows = [
        (f"{side.replace(' ', '_')}_{name}" if side else name, *values, unit)
        for name, _, unit, side, values in _numbers(answer)
    ]
    return csv_text(("quantity", "value", "low", "high", "unit"), rows)


def document(answer: ProjectionAnswer) -> dict[str, Any]:
    """Return the projection as a JSON document."""
    projection: dict[str, Any] = {}
    for name, _, unit, side, values in _numbers(answer):
        ends_of = dict(zip(("value", "low", "high"), values, strict=True))
        known = dict.fromkeys(ends_of) | {side.replace(" ", "_"): values[0]} if side else ends_of
        projection[name] = known | {"unit": unit}
    laws, draws, measured = answer.fit.laws, answer.draws, answer.measured
    return {
        "domain": answer.domain.name,
        "model": answer.domain.model,
        "grows": answer.domain.grows,
        "sizes": answer.domain.sizes_at(answer.middle["grown"]),
        "sub_batch": answer.domain.sub_batch,
        "rules": answer.rules,
        "target": {name: getattr(answer.target, name) for name in answer.target.__dataclass_fields__},
        "projection": projection | {"bound": None if measured else answer.middle["bound"]},
        "time": {
            "by": "utilization" if measured else "roofline",
            "confidence": draws.confidence,
            "drawn": list(draws.inputs),
            "roofline_step_s": answer.middle["step_s"],
            "devices": draws.devices,
            "link": draws.link or None,
            "reached": reached_document(measured, draws.confidence) if measured else None,
        }
        if draws
        else None,
        "laws": {
            "fit": {"gamma": laws.gamma, "lambda": laws.lambda_, "mu": laws.mu, "delta": laws.delta},
            "worst_ratio": answer.fit.worst_ratio,
            "points": answer.fit.points,
            "limits": dict(answer.limits),
        },
        "sub_batches": {name: getattr(answer.sub_batches, name) for name in SubBatches.__dataclass_fields__}
        | {"largest": answer.largest_batch},
        "accelerators_for_memory": answer.accelerators,
        "notes": list(answer.notes),
    }


def _numbers(answer: ProjectionAnswer) -> Iterator[tuple[str, str, str, str, Sequence[float | None]]]:
    """Yield (name, label, unit, at least or at most, (value, low, high)) of each quantity."""
    for name, (label, unit) in quantities(answer).items():
        estimate = answer.estimates.get(name)
        values = (estimate.value, estimate.low, estimate.high) if estimate else (None,) * 3
        yield name, label, unit, bound_sides(answer).get(name, ""), values


def _rows(answer: ProjectionAnswer) -> Iterator[tuple[str, ...]]:
    wide = bool(answer.draws.inputs if answer.draws else answer.domain.uncertain())
    yield ("", "value", *(("low", "high") if wide else ()))
    for _, label, unit, side, values in _numbers(answer):
        if values[0] is not None:
            shown = (_amount(value, unit) for value in (values if wide else values[:1]))
            yield (f"{label}, {side}" if side else label, *shown)


def _amount(value: float | None, unit: str) -> str:
    if unit == "s" and value is not None and value >= DAY_S:
        return _amount(value / DAY_S, "days")
    if value is not None and value >= MANY:
        return quantity(value, unit)
    return amount(value, unit)


def _laws(answer: ProjectionAnswer) -> Iterator[tuple[str, ...]]:
    laws, worst = answer.fit.laws, answer.fit.worst_ratio
    yield ("first-order law", "fit", "limit", "farthest point")
    for label, value, limit, of in (
        ("gamma: FLOP ÷ (parameters · sub-batch)", laws.gamma, "gamma", "flop"),
        ("lambda: bytes ÷ parameters, and", laws.lambda_, "lambda", "bytes"),
        ("mu: bytes ÷ (sub-batch · √parameters)", laws.mu, "mu", "bytes"),
        ("delta: footprint ÷ parameters", laws.delta, "delta", "footprint"),
    ):
        if value is not None:
            yield label, amount(value), amount(answer.limits[limit]), f"{100 * worst[of]:.1f} %"


def _sentences(answer: ProjectionAnswer) -> Iterator[str]:
    batches = answer.sub_batches
    yield _meaning(answer)
    yield (
        f"Sub-batches: the ridge ({answer.target.ridge:.1f} FLOP/B) is reached at "
        f"{_batch(batches.ridge)}, the time per sample is least from {_batch(batches.fastest)} on, the intensity is "
        f"saturated at {_batch(batches.saturated)}."
    )
    if answer.accelerators is not None:
        yield _memory(answer)
    if answer.draws is not None:
        yield from _drawn_sentences(answer.draws, answer.middle["step_s"])
    elif answer.domain.uncertain():
        yield (
            f"Low and high are over every combination of the ends of {', '.join(answer.domain.uncertain())}: no "
            "confidence interval."
        )
    yield from answer.notes


def _drawn_sentences(timed: Draws, roofline_s: float) -> Iterator[str]:
    """Yield the source of the time, and the sources of the interval. roofline_s: a step's time by the assumed
    shares."""
    if timed.reached is not None:
        used = timed.reached.utilization
        yield (
            "A step takes model FLOP ÷ (utilization · peak), with a utilization of "
            f"{quantity(used.median)} ({ends(*used.interval(timed.confidence))}); "
            f"by the roofline and the assumed shares it would be {amount(roofline_s, 's')}."
        )
    if timed.inputs:
        drawn = (
            ""
            if set(timed.inputs) == {"utilization"}
            else ("; a number of the file is as likely below its value as above, and never beyond its ends")
        )
        independent = ", independent of each other" if len(timed.inputs) > 1 else ""
        yield f"Low and high: {100 * timed.confidence:g} % of draws of {', '.join(timed.inputs)}{independent}{drawn}."
    if timed.devices > 1:
        yield (
            f"{timed.devices:,} devices, each with the sub-batch, add up their gradients over {timed.link} after each "
            "step, by the fastest of rings, trees and layers. Nothing of it is hidden, and an embedding's gradient is "
            "as large as the embedding. What so large a batch does to the error is not in it."
        )
    yield "Training compute and hours are of one epoch, without what evaluation and failed runs take."


def _meaning(answer: ProjectionAnswer) -> str:
    """Return one sentence on what reaching the target takes."""
    bound = "" if answer.measured else f", bound by {answer.middle['bound']}"
    epoch, step = answer.estimates["epoch_s"], answer.estimates["step_s"]
    ends = "" if epoch.low == epoch.high else f" ({_amount(epoch.low, 's')} to {_amount(epoch.high, 's')})"
    return f"An epoch takes {_amount(epoch.value, 's')}{ends} in steps of {_amount(step.value, 's')}{bound}."


def _memory(answer: ProjectionAnswer) -> str:
    """Return what fits into one accelerator's memory, and whether the sub-batch does."""
    largest, batch = answer.largest_batch or 0, answer.domain.sub_batch
    fits = f"it holds a sub-batch of up to {largest:,}"
    if largest < batch:
        up_to = f", at most one of {largest:,}" if largest else ", nor one of 1"
        fits = f"it does not hold the sub-batch of {batch:,}{up_to}"
    memory = amount(answer.target.memory_bytes, "B")
    return f"One accelerator has {memory}: {fits}; the footprint needs {answer.accelerators:,}."


def _batch(batch: int | None) -> str:
    return f"{batch:,}" if batch else "none"


# --- training compute and GPU-hours -----------------------------------------------------------------------------------


LABELS: Mapping[str, tuple[str, str]] = {"flop": ("training compute", "FLOP"), "gpu_hours": ("GPU-hours", "h")}
"""Answer → (label, unit)."""


@dataclass(frozen=True)
class GpuHoursAnswer:
    """The answer to a question about compute. given: its numbers; answer: name of the main result."""

    given: Mapping[str, float]
    answer: str
    answers: Mapping[str, Estimate]
    reached: ReachedUtilization
    confidence: float


def compute_document(answer: GpuHoursAnswer) -> dict[str, Any]:
    """Return the answer as a JSON document."""
    return {
        "question": "compute",
        "asked": dict(answer.given),
        "answer": answer.answer,
        "confidence": answer.confidence,
        "answers": {name: vars(estimate) for name, estimate in answer.answers.items()},
        **reached_document(answer.reached, answer.confidence),
    }


def compute_csv(answer: GpuHoursAnswer) -> str:
    """Return a row for each quantity."""
    reached = answer.reached
    numbers = {name: (e.value, e.low, e.high, LABELS[name][1]) for name, e in answer.answers.items()}
    low, high = reached.utilization.interval(answer.confidence)
    numbers["utilization_ratio"] = (reached.utilization.median, low, high, "")
    numbers["peak_flop_per_s"] = (reached.peak_flop_per_s,) * 3 + ("FLOP/s",)
    rows = [(name, *map(float, values), answer.confidence, unit) for name, (*values, unit) in numbers.items()]
    return csv_text(("quantity", "value", "low", "high", "confidence", "unit"), rows)


def compute_parts(answer: GpuHoursAnswer) -> list[Part]:
    """Return the page of training compute."""
    reached, amount_given, estimate = answer.reached, next(iter(answer.given.values())), answer.answers[answer.answer]
    what, unit = LABELS[answer.answer]
    amount = quantity(amount_given, "FLOP" if answer.answer == "gpu_hours" else "GPU-hours")
    interval = "" if estimate.low == estimate.high else f" ({ends(estimate.low, estimate.high)})"
    low, high = reached.utilization.interval(answer.confidence)
    rows = [
        [what, quantity(estimate.value, unit), ends(estimate.low, estimate.high)],
        ["utilization", quantity(reached.utilization.median), ends(low, high)],
        ["peak", si(reached.peak_flop_per_s, "FLOP/s"), f"{reached.unit}, dense"],
    ]
    interval_column = TableColumn(f"{100 * answer.confidence:g} % interval", right=False, wraps=True)
    return [
        strong(f"{amount} on {reached.device}, {reached.precision}"),
        strong(f"in short: {what} {quantity(estimate.value, unit)}{interval}"),
        "",
        TextTable((TableColumn(""), TableColumn("", right=True), interval_column), rows, rule=False),
        "",
        f"peak: {reached.peak_source}",
        "utilization: given",
        CONVENTION,
    ]
