"""Training compute, GPU-hours and what they cost: as a table a person reads, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.stats import Estimate, Swing
from reports.project import shared as project_shared
from reports.shared import WIDTH, Part, page, strong


@dataclass(frozen=True)
class GpuHoursAnswer:
    """All that a question about compute has for an answer. asked: what was given; answer: the name of the main one.

    given: price and so on → (median, low, high).
    """

    asked: Mapping[str, float]
    answer: str
    answers: Mapping[str, Estimate]
    swings: Mapping[str, Sequence[Swing]]
    reached: project_shared.ReachedUtilization
    confidence: float
    given: Mapping[str, tuple[float, float, float]]


def to_text(told: GpuHoursAnswer, form: str, rows: bool = False, width: int = WIDTH, colour: bool = False) -> str:
    """The answer in a format: table, csv or json. rows: a table lists the runs that it is from. width, colour: of the
    table."""
    if form == "json":
        return json.dumps(document(told), indent=2, ensure_ascii=False) + "\n"
    return _csv(told) if form == "csv" else page(_parts(told, rows), width, colour)


def document(told: GpuHoursAnswer) -> dict[str, Any]:
    """The answer as JSON has it; unknown is null."""
    return {
        "question": "compute",
        "asked": dict(told.asked),
        "answer": told.answer,
        "confidence": told.confidence,
        "answers": {name: project_shared.answer_document(each) for name, each in told.answers.items()},
        "given": {name: dict(zip(("value", "low", "high"), ends, strict=True)) for name, ends in told.given.items()},
        "hangs_on": project_shared.swings_document(told.swings),
        **project_shared.reached_document(told.reached, told.confidence),
    }


def _csv(told: GpuHoursAnswer) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(
        project_shared.answers_csv(told.answers, told.reached, told.confidence)
    )
    return out.getvalue()


def _parts(told: GpuHoursAnswer, rows: bool) -> list[Part]:
    order = [told.answer, *[name for name in told.answers if name != told.answer and name not in told.asked]]
    shown = {name: told.answers[name] for name in order}
    parts: list[Part] = [strong(_title(told)), strong(project_shared.meaning(told.answer, told.answers[told.answer]))]
    parts += ["", project_shared.answers_table(shown, told.reached, told.confidence), ""]
    parts += [*project_shared.why_sentences(told.reached), project_shared.CONVENTION]
    if rows and told.reached.predicted is not None:
        parts += ["", project_shared.runs_table(told.reached.predicted.near)]
    return parts


def _title(told: GpuHoursAnswer) -> str:
    (name, value), family = next(iter(told.asked.items())), told.reached.family
    what = (
        f"{project_shared.quantity(value)} GPU-hours" if name == "gpu_hours" else project_shared.quantity(value, "FLOP")
    )
    return f"{what} on {told.reached.device}, {told.reached.precision}{f', {family}' if family else ''}"
