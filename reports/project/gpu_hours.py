"""Training compute and GPU-hours: as a table a person reads, as CSV and as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.stats.intervals import Estimate
from reports.project.text import CONVENTION, ReachedUtilization, ends, quantity, reached_document
from reports.shared.layout import Column, Part, TextTable, csv_text, strong
from reports.shared.numbers import si

LABELS: Mapping[str, tuple[str, str]] = {"flop": ("training compute", "FLOP"), "gpu_hours": ("GPU-hours", "h")}
"""Answer → (what it is called, its unit)."""


@dataclass(frozen=True)
class GpuHoursAnswer:
    """All that a question about compute has for an answer. asked: what was given; answer: the name of the main one."""

    asked: Mapping[str, float]
    answer: str
    answers: Mapping[str, Estimate]
    reached: ReachedUtilization
    confidence: float


def document(answer: GpuHoursAnswer) -> dict[str, Any]:
    """The answer as JSON has it."""
    return {
        "question": "compute",
        "asked": dict(answer.asked),
        "answer": answer.answer,
        "confidence": answer.confidence,
        "answers": {name: vars(each) for name, each in answer.answers.items()},
        **reached_document(answer.reached, answer.confidence),
    }


def to_csv(answer: GpuHoursAnswer) -> str:
    """A row a quantity."""
    reached = answer.reached
    numbers = {name: (each.value, each.low, each.high, LABELS[name][1]) for name, each in answer.answers.items()}
    low, high = reached.utilization.interval(answer.confidence)
    numbers["utilization_ratio"] = (reached.utilization.median, low, high, "")
    numbers["peak_flop_per_s"] = (reached.peak_flop_per_s,) * 3 + ("FLOP/s",)
    rows = [(name, *map(float, values), answer.confidence, unit) for name, (*values, unit) in numbers.items()]
    return csv_text(("quantity", "value", "low", "high", "confidence", "unit"), rows)


def parts(answer: GpuHoursAnswer) -> list[Part]:
    """The page."""
    reached, asked, found = answer.reached, next(iter(answer.asked.values())), answer.answers[answer.answer]
    what, unit = LABELS[answer.answer]
    given = quantity(asked, "FLOP" if answer.answer == "gpu_hours" else "GPU-hours")
    interval = "" if found.low == found.high else f" ({ends(found.low, found.high)})"
    low, high = reached.utilization.interval(answer.confidence)
    rows = [
        [what, quantity(found.value, unit), ends(found.low, found.high)],
        ["utilization", quantity(reached.utilization.median), ends(low, high)],
        ["peak", si(reached.peak_flop_per_s, "FLOP/s"), f"{reached.unit}, dense"],
    ]
    interval_column = Column(f"{100 * answer.confidence:g} % interval", right=False, wraps=True)
    return [
        strong(f"{given} on {reached.device}, {reached.precision}"),
        strong(f"in short: {what} {quantity(found.value, unit)}{interval}"),
        "",
        TextTable((Column(""), Column("", right=True), interval_column), rows, rule=False),
        "",
        f"peak: {reached.peak_source}",
        "utilization: given",
        CONVENTION,
    ]
