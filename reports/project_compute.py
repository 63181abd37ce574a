"""Training compute, GPU-hours and what they cost: as a table a person reads, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.compute import RULES_OF_THUMB, Predicted
from analysis.published import Observation
from analysis.uncertain import Answer, Swing, Uncertain
from reports.words import digits, si

WIDTH = 100

LABELS: Mapping[str, tuple[str, str]] = {
    "flop": ("training compute", "FLOP"),
    "gpu_hours": ("GPU-hours", "h"),
    "cost": ("cost", ""),
    "energy_kwh": ("energy", "kWh"),
    "co2_kg": ("CO2e", "kg"),
}
"""Answer → (what it is called, its unit)."""

CONVENTION = (
    "model FLOP: a multiply-add is 2; convolutions and matrix products of forward and backward, nothing recomputed"
)

ROW_FIELDS = (
    *("family", "model", "device", "generation", "precision", "stack", "ratio", "published_ratio", "hardware_ratio"),
    *("kind", "devices", "batch_size", "source", "detail", "note"),
)


@dataclass(frozen=True)
class Told:
    """All that a question about compute has for an answer. asked: what was given; answer: the name of the main one.

    given: price and so on → (median, low, high). own_left_out: reason → rows of our own runs that are not used.
    """

    asked: Mapping[str, float]
    answer: str
    answers: Mapping[str, Answer]
    swings: Mapping[str, Sequence[Swing]]
    device: str
    precision: str
    unit: str
    peak_flop_per_s: float
    peak_source: str
    family: str
    utilization: Uncertain
    predicted: Predicted | None
    own_left_out: Mapping[str, int]
    confidence: float
    given: Mapping[str, tuple[float, float, float]]


def to_text(told: Told, form: str, rows: bool = False) -> str:
    """The answer in a format: table, csv or json. rows: a table lists the runs that it is from."""
    if form == "json":
        return json.dumps(document(told), indent=2, ensure_ascii=False) + "\n"
    return _csv(told) if form == "csv" else _table(told, rows)


def amount(value: float, unit: str = "") -> str:
    """Three significant digits: "6.78e19 FLOP", "1,234 kWh", "0.201"."""
    small = f"{value:.2e}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{small} {unit}".rstrip()
    return f"{_grouped(digits(value))} {unit}".rstrip()


def _grouped(text: str) -> str:
    whole, dot, rest = text.partition(".")
    return f"{int(whole):,}{dot}{rest}" if whole.isdigit() else text


def document(told: Told) -> dict[str, Any]:
    """The answer as JSON has it; unknown is null."""
    low, high = told.utilization.interval(told.confidence)
    found = told.predicted
    return {
        "question": "compute",
        "asked": dict(told.asked),
        "answer": told.answer,
        "confidence": told.confidence,
        "answers": {name: vars(each) for name, each in told.answers.items()},
        "device": told.device,
        "precision": told.precision,
        "unit": told.unit,
        "peak_flop_per_s": told.peak_flop_per_s,
        "peak_source": told.peak_source,
        "family": told.family or None,
        "utilization": {
            "ratio": told.utilization.median,
            "low_ratio": low,
            "high_ratio": high,
            "scale": told.utilization.scale,
            "given": found is None,
            "group": found.group if found else None,
            "fallback": (found.fallback or None) if found else None,
            "runs": len(found.near) if found else None,
            "stacks": found.stacks if found else None,
            "runs_of_spread": len(found.rows) if found else None,
            "degrees_of_freedom": found.degrees if found else None,
        },
        "rule_of_thumb_ratio": rule_of_thumb(told.family),
        "flop_convention": CONVENTION,
        "given": {name: dict(zip(("value", "low", "high"), ends, strict=True)) for name, ends in told.given.items()},
        "hangs_on": {name: [vars(swing) for swing in swings] for name, swings in told.swings.items()},
        "runs": [_row(row) for row in found.near] if found else [],
        "own_runs_left_out": dict(told.own_left_out),
    }


def rule_of_thumb(family: str) -> float:
    """What estimators assume of a family without any data."""
    return RULES_OF_THUMB.get(family, RULES_OF_THUMB[""])


def _row(row: Observation) -> dict[str, Any]:
    return {field: getattr(row, field) if getattr(row, field) != "" else None for field in ROW_FIELDS}


def _csv(told: Told) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["quantity", "value", "low", "high", "confidence", "unit"])
    low, high = told.utilization.interval(told.confidence)
    for name, each in told.answers.items():
        writer.writerow([name, repr(each.value), repr(each.low), repr(each.high), told.confidence, LABELS[name][1]])
    writer.writerow(["utilization_ratio", repr(told.utilization.median), repr(low), repr(high), told.confidence, ""])
    peak = repr(told.peak_flop_per_s)
    writer.writerow(["peak_flop_per_s", peak, peak, peak, told.confidence, "FLOP/s"])
    return out.getvalue()


def _table(told: Told, rows: bool) -> str:
    sure = f"{100 * told.confidence:g} %"
    low, high = told.utilization.interval(told.confidence)
    lines = [_title(told), "", f"{'':<18}{'':>16}   {sure} interval"]
    order = [told.answer, *[name for name in told.answers if name != told.answer and name not in told.asked]]
    for name in order:
        label, unit = LABELS[name]
        each = told.answers[name]
        lines.append(f"{label:<18}{amount(each.value, unit):>16}   {_ends(each.low, each.high)}")
    lines.append(f"{'utilization':<18}{amount(told.utilization.median):>16}   {_ends(low, high)}")
    lines.append(f"{'peak':<18}{si(told.peak_flop_per_s, 'FLOP/s'):>16}   {told.unit}, dense; {told.peak_source}")
    lines += ["", *_why(told), *_wrapped(CONVENTION)]
    if rows and told.predicted is not None:
        lines += ["", *_runs(told.predicted.near)]
    return "\n".join(lines) + "\n"


def _title(told: Told) -> str:
    (name, value), family = next(iter(told.asked.items())), f", {told.family}" if told.family else ""
    what = f"{amount(value)} GPU-hours" if name == "gpu_hours" else amount(value, "FLOP")
    return f"{what} on {told.device}, {told.precision}{family}"


def _ends(low: float, high: float) -> str:
    return "exact" if low == high else f"{amount(low)} to {amount(high)}"


def _why(told: Told) -> list[str]:
    """Where the utilization is from, and what else would be assumed."""
    found = told.predicted
    if found is None:
        return _wrapped("utilization: given")
    ratios = [row.ratio for row in found.near]
    words = (
        f"utilization: of one new run, predicted from {len(found.near)} published runs of {found.stacks} stacks "
        f"({found.group}: {min(ratios):.3f} to {max(ratios):.3f}); how runs differ from {len(found.rows)} runs"
    )
    lines = _wrapped(words)
    if found.fallback:
        lines += _wrapped(f"fallback: {found.fallback}")
    if told.own_left_out:
        total = sum(told.own_left_out.values())
        lines += _wrapped(f"not used: {total} rows of our own runs ({'; '.join(sorted(told.own_left_out))})")
    rule = rule_of_thumb(told.family)
    return [*lines, *_wrapped(f"a rule of thumb assumes {rule:.2f} whatever the device (Epoch AI, 2022)")]


def _runs(rows: Sequence[Observation]) -> list[str]:
    head = f"{'ratio':>6}  {'model':<16} {'device':<24} {'precision':<9} {'devices':>7} {'batch':>6}  stack"
    lines = [
        f"{row.ratio:>6.3f}  {row.model[:16]:<16} {row.device.removeprefix('NVIDIA ')[:24]:<24} {row.precision:<9} "
        f"{row.devices or '':>7} {row.batch_size or '':>6}  {row.stack}"
        for row in sorted(rows, key=lambda row: -row.ratio)
    ]
    return [head, *lines]


def _wrapped(words: str) -> list[str]:
    return textwrap.wrap(words, WIDTH, subsequent_indent="  ")
