"""A projection as a page, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from analysis.project.frontier import DAY_S, Accelerator, Domain, FirstOrderFit, ProjectionRange, SubBatches
from analysis.stats import amount
from reports.project import monte_carlo
from reports.project.monte_carlo import DrawnAnswers
from reports.project.shared import quantity
from reports.shared import WIDTH, Part, page, strong, table_of

MANY = 1e18
"""From here on an amount is written as a power of ten."""


LEAST, MOST = "at least", "at most"


@dataclass(frozen=True)
class ProjectionAnswer:
    """Everything there is to tell of a projection. rules: how operations were counted; limits: what gamma, lambda, mu
    and delta tend to; largest_batch: that one accelerator's memory holds; accelerators: whose memory is as large as the
    footprint. Both are None where the memory is not known. timed: of a projection by draws.
    partial_bytes: a storage of no known size is left out."""

    domain: Domain
    target: Accelerator
    rules: str
    spread: ProjectionRange
    fit: FirstOrderFit
    limits: Mapping[str, float]
    sub_batches: SubBatches
    largest_batch: int | None
    accelerators: int | None
    notes: tuple[str, ...] = ()
    timed: DrawnAnswers | None = None
    partial_bytes: bool = False


def sides(told: ProjectionAnswer) -> dict[str, str]:
    """Field of the projection → "at least" or "at most", of those that hang on bytes of which a part is not known."""
    if not told.partial_bytes:
        return {}
    measured = told.timed is not None and told.timed.reached is not None
    hanging = {} if measured else {"step_s": LEAST, "epoch_s": LEAST, "utilization_ratio": MOST}
    return {"moved_bytes": LEAST, "footprint_bytes": LEAST, "intensity": MOST, **hanging}


def quantities(told: ProjectionAnswer) -> dict[str, tuple[str, str]]:
    """Field of the projection → (what it is called, its unit)."""
    domain = told.domain
    found = {
        "data_scale": ("data, times today's", ""),
        "data": ("data", domain.data_unit),
        "parameters": ("parameters", ""),
        "grown": (domain.grows, ""),
        "flop": ("FLOP of a step", "FLOP"),
        "moved_bytes": ("bytes of a step", "B"),
        "intensity": ("operational intensity", "FLOP/B"),
        "footprint_bytes": ("footprint", "B"),
        "step_s": ("time of a step", "s"),
        **({"reduce_s": ("of it, sum of gradients", "s")} if told.timed and told.timed.devices > 1 else {}),
        "utilization_ratio": ("utilization by the roofline", ""),
        "steps": ("steps of an epoch", ""),
        "epoch_s": ("epoch", "s"),
    }
    return found | monte_carlo.quantities(told.timed) if told.timed else found


def to_text(told: ProjectionAnswer, width: int = WIDTH, colour: bool = False) -> str:
    """What the target takes in a sentence, then as a table; sub-batches, laws."""
    domain = told.domain
    grown = f"{domain.grows} {told.spread.middle.grown:,}, sub-batch {domain.sub_batch:,}"
    meant, *others = _sentences(told)
    parts: list[Part] = [
        strong(f"{domain.name}: {domain.model}, {grown}"),
        strong(meant),
        f"to an error of {domain.numbers['error_target'][0]:g} {domain.error_unit}".rstrip(),
        _on(told),
        "",
        table_of(list(_rows(told)), words=(0,), wraps=(0,)),
        "",
        table_of(list(_laws(told)), words=(0,), wraps=(0,)),
        "",
    ]
    return page([*parts, *others], width, colour)


def _on(told: ProjectionAnswer) -> str:
    """The target, with the shares that are assumed where they are."""
    peak, bandwidth = amount(told.target.peak_flop_per_s, "FLOP/s"), amount(told.target.bandwidth_bytes_per_s, "B/s")
    if told.timed is not None and told.timed.reached is not None:
        return f"on {told.target.name}: {peak}, {bandwidth}"
    shares = told.target.compute_ratio, told.target.memory_ratio
    return f"on {told.target.name}: {peak} × {shares[0]:g}, {bandwidth} × {shares[1]:g}"


def to_csv(told: ProjectionAnswer) -> str:
    """A row a quantity: name, value, low, high, unit. Unknown is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("quantity", "value", "low", "high", "unit"))
    for name, (_, unit) in quantities(told).items():
        key = f"{side.replace(' ', '_')}_{name}" if (side := sides(told).get(name)) else name
        writer.writerow((key, *(("" if value is None else value) for value in _values(told, name)), unit))
    return text.getvalue()


def to_json(told: ProjectionAnswer) -> str:
    """One document."""
    projection: dict[str, Any] = {}
    for name, (_, unit) in quantities(told).items():
        values = dict(zip(("value", "low", "high"), _values(told, name), strict=True))
        if side := sides(told).get(name):
            values = dict.fromkeys(values) | {side.replace(" ", "_"): values["value"]}
        projection[name] = values | {"unit": unit}
    laws, measured = told.fit.laws, told.timed is not None and told.timed.reached is not None
    document = {
        "domain": told.domain.name,
        "model": told.domain.model,
        "grows": told.domain.grows,
        "sizes": told.domain.sizes_at(told.spread.middle.grown),
        "sub_batch": told.domain.sub_batch,
        "rules": told.rules,
        "target": {name: getattr(told.target, name) for name in told.target.__dataclass_fields__},
        "projection": projection | {"bound": None if measured else told.spread.middle.bound},
        "time": monte_carlo.document(told.timed, told.spread.middle.step_s) if told.timed else None,
        "laws": {
            "fit": {"gamma": laws.gamma, "lambda": laws.lambda_, "mu": laws.mu, "delta": laws.delta},
            "worst_ratio": told.fit.worst_ratio,
            "points": told.fit.points,
            "limits": dict(told.limits),
        },
        "sub_batches": {name: getattr(told.sub_batches, name) for name in SubBatches.__dataclass_fields__}
        | {"largest": told.largest_batch},
        "accelerators_for_memory": told.accelerators,
        "notes": list(told.notes),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _values(told: ProjectionAnswer, name: str) -> tuple[float | None, float | None, float | None]:
    """value, low, high; without an interval the ends are the value."""
    if told.timed:
        found = told.timed.answers.get(name)
        return (found.value, found.low, found.high) if found else (None, None, None)
    value: float | None = getattr(told.spread.middle, name)
    return value, told.spread.low.get(name, value), told.spread.high.get(name, value)


def _rows(told: ProjectionAnswer) -> Iterator[tuple[str, ...]]:
    wide = bool(told.domain.uncertain()) if told.timed is None else monte_carlo.wide(told.timed)
    yield ("", "value", *(("low", "high") if wide else ()))
    for name, (words, unit) in quantities(told).items():
        values = _values(told, name)
        if values[0] is not None:
            side = sides(told).get(name)
            yield (
                f"{words}, {side}" if side else words,
                *(_amount(value, unit) for value in (values if wide else values[:1])),
            )


def _amount(value: float | None, unit: str) -> str:
    if unit == "s" and value is not None and value >= DAY_S:
        return _amount(value / DAY_S, "days")
    if value is not None and value >= MANY:
        return quantity(value, unit)
    return amount(value, unit)


def _laws(told: ProjectionAnswer) -> Iterator[tuple[str, ...]]:
    laws, worst = told.fit.laws, told.fit.worst_ratio
    yield ("first-order law", "fit", "limit", "farthest point")
    for words, value, limit, of in (
        ("gamma: FLOP ÷ (parameters · sub-batch)", laws.gamma, "gamma", "flop"),
        ("lambda: bytes ÷ parameters, and", laws.lambda_, "lambda", "bytes"),
        ("mu: bytes ÷ (sub-batch · √parameters)", laws.mu, "mu", "bytes"),
        ("delta: footprint ÷ parameters", laws.delta, "delta", "footprint"),
    ):
        if value is not None:
            yield words, amount(value), amount(told.limits[limit]), f"{100 * worst[of]:.1f} %"


def _sentences(told: ProjectionAnswer) -> Iterator[str]:
    batches, middle = told.sub_batches, told.spread.middle
    yield _meaning(told)
    yield (
        f"Sub-batches: the ridge ({told.target.ridge:.1f} FLOP/B) is reached at "
        f"{_batch(batches.ridge)}, the time a sample is least from {_batch(batches.fastest)}, the intensity is "
        f"saturated at {_batch(batches.saturated)}."
    )
    if told.accelerators is not None:
        yield _memory(told)
    if told.timed is not None:
        yield from monte_carlo.sentences(told.timed, middle.step_s)
    elif told.domain.uncertain():
        yield (
            f"Low and high are over every combination of the ends of {', '.join(told.domain.uncertain())}: no "
            "confidence interval."
        )
    yield from told.notes


def _meaning(told: ProjectionAnswer) -> str:
    """What reaching the target takes, in one sentence."""
    held = told.timed is not None and told.timed.reached is not None
    bound = "" if held else f", bound by {told.spread.middle.bound}"
    (epoch_s, low_s, high_s), (step_s, *_) = _values(told, "epoch_s"), _values(told, "step_s")
    if epoch_s is None:
        return f"A step takes {_amount(step_s, 's')}{bound}."
    ends = "" if low_s == high_s else f" ({_amount(low_s, 's')} to {_amount(high_s, 's')})"
    return f"An epoch takes {_amount(epoch_s, 's')}{ends} in steps of {_amount(step_s, 's')}{bound}."


def _memory(told: ProjectionAnswer) -> str:
    """What one accelerator holds, and that it does not hold the sub-batch where that is so."""
    largest, batch = told.largest_batch or 0, told.domain.sub_batch
    fits = f"it holds a sub-batch of up to {largest:,}"
    if largest < batch:
        up_to = f", at most one of {largest:,}" if largest else ", nor one of 1"
        fits = f"it does not hold the sub-batch of {batch:,}{up_to}"
    memory = amount(told.target.memory_bytes, "B")
    return f"One accelerator has {memory}: {fits}; the footprint is the memory of {told.accelerators:,}."


def _batch(batch: int | None) -> str:
    return f"{batch:,}" if batch else "none"
