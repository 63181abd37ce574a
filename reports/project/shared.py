"""Words and JSON that the answers of `runners.project --compute`, `--budget` and `--parallel` share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.project.compute import RULES_OF_THUMB, Observation, PredictedUtilization
from analysis.stats import Estimate, Swing, Uncertain
from reports.shared import Column, TextTable, csv_text, digits, si, table_of

LABELS: Mapping[str, tuple[str, str]] = {
    "flop": ("training compute", "FLOP"),
    "gpu_hours": ("GPU-hours", "h"),
    "days": ("days", ""),
    "parameters": ("parameters", ""),
    "tokens": ("tokens", ""),
    "data": ("data", ""),
    "loss": ("loss", "nat"),
    "perplexity": ("perplexity", ""),
    "error": ("error", ""),
    "critical_batch_tokens": ("critical batch", "tokens"),
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
class ReachedUtilization:
    """A device and what of its peak a training reaches. predicted: None where the utilization was given.

    own_left_out: reason → rows of our own runs that are not used. step: where the utilization is that of a predicted
    step, of which.
    """

    device: str
    precision: str
    unit: str
    peak_flop_per_s: float
    peak_source: str
    family: str
    utilization: Uncertain
    predicted: PredictedUtilization | None
    own_left_out: Mapping[str, int]
    step: str = ""


def quantity(value: float, unit: str = "") -> str:
    """Three significant digits: "6.78e19 FLOP", "1,234 kWh", "0.201"."""
    if math.isinf(value):
        return "no end"
    small = f"{value:.2e}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{small} {unit}".rstrip()
    return f"{_grouped(digits(value))} {unit}".rstrip()


def _grouped(text: str) -> str:
    whole, dot, rest = text.partition(".")
    return f"{int(whole):,}{dot}{rest}" if whole.isdigit() else text


def ends(low: float, high: float) -> str:
    """An interval."""
    return "exact" if low == high else f"{quantity(low)} to {quantity(high)}"


def answers_table(
    answers: Mapping[str, Estimate],
    reached: ReachedUtilization,
    confidence: float,
    units: Mapping[str, str] | None = None,
) -> TextTable:
    """The answers with their intervals, then utilization and peak in the same columns. units: answer → its own."""
    rows = []
    for name, answer in answers.items():
        label, unit = LABELS[name]
        own = (units or {}).get(name, "")
        rows.append(
            [label, quantity(answer.value, unit), f"{ends(answer.low, answer.high)}{f'   {own}' if own else ''}"]
        )
    low, high = reached.utilization.interval(confidence)
    rows.append(["utilization", quantity(reached.utilization.median), ends(low, high)])
    rows.append(["peak", si(reached.peak_flop_per_s, "FLOP/s"), f"{reached.unit}, dense"])
    interval = Column(f"{100 * confidence:g} % interval", right=False, wraps=True)
    return TextTable((Column(""), Column("", right=True), interval), rows, rule=False)


def meaning(name: str, answer: Estimate) -> str:
    """The main answer as a sentence."""
    label, unit = LABELS[name]
    interval = "" if answer.low == answer.high else f" ({ends(answer.low, answer.high)})"
    return f"in short: {label} {quantity(answer.value, unit)}{interval}"


def why_sentences(reached: ReachedUtilization) -> list[str]:
    """Where the utilization is from, and what else would be assumed, a sentence each."""
    found, peak = reached.predicted, f"peak: {reached.peak_source}"
    if found is None:
        return [peak, f"utilization: {reached.step or 'given'}"]
    ratios = [row.ratio for row in found.near]
    lines = [
        f"utilization: of one new run, predicted from {len(found.near)} published runs of {found.stacks} stacks "
        f"({found.group}: {min(ratios):.3f} to {max(ratios):.3f}); how runs differ from {len(found.rows)} runs"
    ]
    if found.fallback:
        lines.append(f"fallback: {found.fallback}")
    if reached.own_left_out:
        total = sum(reached.own_left_out.values())
        lines.append(f"not used: {total} rows of our own runs ({'; '.join(sorted(reached.own_left_out))})")
    rule = rule_of_thumb(reached.family)
    return [peak, *lines, f"a rule of thumb assumes {rule:.2f} whatever the device (Epoch AI, 2022)"]


def rule_of_thumb(family: str) -> float:
    """What estimators assume of a family without any data."""
    return RULES_OF_THUMB.get(family, RULES_OF_THUMB[""])


def reached_document(reached: ReachedUtilization, confidence: float) -> dict[str, Any]:
    """Device, peak and utilization as JSON has them."""
    low, high = reached.utilization.interval(confidence)
    found = reached.predicted
    return {
        "device": reached.device,
        "precision": reached.precision,
        "unit": reached.unit,
        "peak_flop_per_s": reached.peak_flop_per_s,
        "peak_source": reached.peak_source,
        "family": reached.family or None,
        "utilization": {
            "ratio": reached.utilization.median,
            "low_ratio": low,
            "high_ratio": high,
            "scale": reached.utilization.scale,
            "given": found is None and not reached.step,
            "step": reached.step or None,
            "group": found.group if found else None,
            "fallback": (found.fallback or None) if found else None,
            "runs": len(found.near) if found else None,
            "stacks": found.stacks if found else None,
            "runs_of_spread": len(found.rows) if found else None,
            "degrees_of_freedom": found.degrees if found else None,
        },
        "rule_of_thumb_ratio": rule_of_thumb(reached.family),
        "flop_convention": CONVENTION,
        "runs": [row_document(row) for row in found.near] if found else [],
        "own_runs_left_out": dict(reached.own_left_out),
    }


def row_document(row: Observation) -> dict[str, Any]:
    """A published run as JSON has it."""
    return {field: getattr(row, field) if getattr(row, field) != "" else None for field in ROW_FIELDS}


def answer_document(answer: Estimate) -> dict[str, float | None]:
    """An answer as JSON has it; an end that is not there is null."""
    return {name: value if math.isfinite(value) else None for name, value in vars(answer).items()}


def swings_document(swings: Mapping[str, Sequence[Swing]]) -> dict[str, list[dict[str, Any]]]:
    """What each answer hangs on, as JSON has it."""
    return {
        name: [{"input": swing.input, "low": _finite(swing.low), "high": _finite(swing.high)} for swing in of_answer]
        for name, of_answer in swings.items()
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def runs_table(rows: Sequence[Observation]) -> TextTable:
    """The published runs, the highest first."""
    rows_of_runs = [
        [f"{row.ratio:.3f}", row.model, row.device.removeprefix("NVIDIA "), row.precision, str(row.devices or ""),
         str(row.batch_size or ""), row.stack]
        for row in sorted(rows, key=lambda row: -row.ratio)
    ]  # fmt: skip
    heads = ["ratio", "model", "device", "precision", "devices", "batch", "stack"]
    return table_of([heads, *rows_of_runs], words=(1, 2, 3, 6), wraps=(1, 2, 6), keep=3)


def answers_csv(answers: Mapping[str, Estimate], reached: ReachedUtilization, confidence: float) -> str:
    """The CSV of answers; an end that is not there is empty."""
    low, high = reached.utilization.interval(confidence)
    peak = reached.peak_flop_per_s
    numbers = {name: (each.value, each.low, each.high, LABELS[name][1]) for name, each in answers.items()}
    numbers["utilization_ratio"] = (reached.utilization.median, low, high, "")
    numbers["peak_flop_per_s"] = (peak, peak, peak, "FLOP/s")
    rows = [
        (name, *(float(end) if math.isfinite(end) else None for end in ends), confidence, unit)
        for name, (*ends, unit) in numbers.items()
    ]
    return csv_text(("quantity", "value", "low", "high", "confidence", "unit"), rows)
