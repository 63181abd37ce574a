"""Training compute, GPU-hours and what they cost: as a table a person reads, as CSV and as JSON."""

from __future__ import annotations

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


def to_text(answer: GpuHoursAnswer, form: str, rows: bool = False, width: int = WIDTH, colour: bool = False) -> str:
    """The answer in a format: table, csv or json. rows: a table lists the runs that it is from. width, colour: of the
    table."""
    if form == "json":
        return json.dumps(document(answer), indent=2, ensure_ascii=False) + "\n"
    return _csv(answer) if form == "csv" else page(_parts(answer, rows), width, colour)


def document(answer: GpuHoursAnswer) -> dict[str, Any]:
    """The answer as JSON has it; unknown is null."""
    return {
        "question": "compute",
        "asked": dict(answer.asked),
        "answer": answer.answer,
        "confidence": answer.confidence,
        "answers": {name: project_shared.answer_document(each) for name, each in answer.answers.items()},
        "given": {name: dict(zip(("value", "low", "high"), ends, strict=True)) for name, ends in answer.given.items()},
        "hangs_on": project_shared.swings_document(answer.swings),
        **project_shared.reached_document(answer.reached, answer.confidence),
    }


def _csv(answer: GpuHoursAnswer) -> str:
    return project_shared.answers_csv(answer.answers, answer.reached, answer.confidence)


def _parts(answer: GpuHoursAnswer, rows: bool) -> list[Part]:
    order = [answer.answer, *[name for name in answer.answers if name != answer.answer and name not in answer.asked]]
    shown = {name: answer.answers[name] for name in order}
    parts: list[Part] = [
        strong(_title(answer)),
        strong(project_shared.meaning(answer.answer, answer.answers[answer.answer])),
    ]
    parts += ["", project_shared.answers_table(shown, answer.reached, answer.confidence), ""]
    parts += [*project_shared.why_sentences(answer.reached), project_shared.CONVENTION]
    if rows and answer.reached.predicted is not None:
        parts += ["", project_shared.runs_table(answer.reached.predicted.near)]
    return parts


def _title(answer: GpuHoursAnswer) -> str:
    (name, value), family = next(iter(answer.asked.items())), answer.reached.family
    what = (
        f"{project_shared.quantity(value)} GPU-hours" if name == "gpu_hours" else project_shared.quantity(value, "FLOP")
    )
    return f"{what} on {answer.reached.device}, {answer.reached.precision}{f', {family}' if family else ''}"
