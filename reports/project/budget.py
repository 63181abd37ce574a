"""What a budget buys, or what a loss takes: as a table a person reads, as CSV and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.project.parallelism import ParallelStep, Plan, Transformer
from analysis.stats import Estimate, Swing
from reports.project import shared as project_shared
from reports.shared import WIDTH, Part, TextTable, page, strong, table_of


@dataclass(frozen=True)
class DevicePlan:
    """How the model is trained on so many devices. batch: sequences a step; plan, step: None where nothing fits.

    least_devices: the smallest power of two of devices on which a plan fits; None: none up to the limit looked at.
    """

    model: Transformer
    devices: int
    batch: int
    memory_bytes: float
    plan: Plan | None
    step: ParallelStep | None
    least_devices: int | None


@dataclass(frozen=True)
class BudgetAnswer:
    """title: the question in words; asked: name → what was given. contrast: law → its own answers; error_unit: of
    "error", else ""."""

    title: str
    asked: Mapping[str, float | str]
    domain: str
    law: str
    answers: Mapping[str, Estimate]
    swings: Mapping[str, Sequence[Swing]]
    contrast: Mapping[str, Mapping[str, float]]
    fit: DevicePlan | None
    notes: Sequence[str]
    reached: project_shared.ReachedUtilization
    confidence: float
    given: Mapping[str, tuple[float, float, float]]
    units: Mapping[str, str]


def to_text(answer: BudgetAnswer, form: str, rows: bool = False, width: int = WIDTH, colour: bool = False) -> str:
    """The answer in a format: table, csv or json. rows: a table lists the runs of the utilization. width, colour: of
    the table."""
    if form == "json":
        return json.dumps(document(answer), indent=2, ensure_ascii=False) + "\n"
    if form == "csv":
        return project_shared.answers_csv(answer.answers, answer.reached, answer.confidence)
    return page(_parts(answer, rows), width, colour)


def document(answer: BudgetAnswer) -> dict[str, Any]:
    """The answer as JSON has it; unknown is null."""
    return {
        "question": "budget",
        "asked": dict(answer.asked),
        "domain": answer.domain,
        "law": answer.law or None,
        "confidence": answer.confidence,
        "answers": {name: project_shared.answer_document(each) for name, each in answer.answers.items()},
        "units": dict(answer.units),
        "contrast": {name: dict(each) for name, each in answer.contrast.items()},
        "fit": _fit(answer.fit) if answer.fit else None,
        "notes": list(answer.notes),
        "given": {name: dict(zip(("value", "low", "high"), ends, strict=True)) for name, ends in answer.given.items()},
        "hangs_on": project_shared.swings_document(answer.swings),
        **project_shared.reached_document(answer.reached, answer.confidence),
    }


def _fit(fit: DevicePlan) -> dict[str, Any]:
    return {
        "shape": vars(fit.model),
        "devices": fit.devices,
        "batch_sequences": fit.batch,
        "batch_tokens": fit.batch * fit.model.sequence,
        "memory_bytes": fit.memory_bytes,
        "plan": vars(fit.plan) if fit.plan else None,
        "held_bytes": {**vars(fit.step.held), "total": fit.step.held.total} if fit.step else None,
        "floor_step_s": fit.step.step_s if fit.step else None,
        "floor_model_ratio": fit.step.model_ratio if fit.step else None,
        "least_devices": fit.least_devices,
    }


def _parts(answer: BudgetAnswer, rows: bool) -> list[Part]:
    main = "gpu_hours" if "loss" in answer.asked else next(iter(answer.answers))  # what was asked is no answer
    parts: list[Part] = [strong(answer.title), strong(project_shared.meaning(main, answer.answers[main])), ""]
    parts += [project_shared.answers_table(answer.answers, answer.reached, answer.confidence, answer.units), ""]
    if answer.contrast:
        parts += [_contrast(answer), ""]
    if answer.fit is not None:
        parts += [*fit_lines(answer.fit), ""]
    parts += [*answer.notes, *project_shared.why_sentences(answer.reached), project_shared.CONVENTION]
    if rows and answer.reached.predicted is not None:
        parts += ["", project_shared.runs_table(answer.reached.predicted.near)]
    return parts


def _contrast(answer: BudgetAnswer) -> TextTable:
    names = list(next(iter(answer.contrast.values())))
    rows = [["other laws", *(project_shared.LABELS[name][0] for name in names)]]
    rows += [[law, *(project_shared.quantity(each[name]) for name in names)] for law, each in answer.contrast.items()]
    return table_of(rows, words=(0,), wraps=(0,))


def fit_lines(fit: DevicePlan) -> list[str]:
    """Shape, batch and the fastest plan that fits, a sentence each."""
    model = fit.model
    shape = f"{model.layers} layers × {model.width}, {model.heads} heads, sequence {model.sequence}"
    batch = f"{fit.batch} sequences ({project_shared.quantity(fit.batch * model.sequence)} tokens) a step"
    lines = [f"as a transformer: {shape}; {batch} on {fit.devices} devices"]
    if fit.plan is None or fit.step is None:
        least = f"{fit.least_devices} devices" if fit.least_devices else "no number of devices that was looked at"
        return [*lines, f"does not fit into {fit.memory_bytes / 1e9:g} GB a device: {least} would do"]
    return [
        *lines,
        f"fastest that fits: {plan_words(fit.plan)}; {fit.step.held.total / 1e9:.1f} of {fit.memory_bytes / 1e9:g} GB; "
        f"a step takes {project_shared.quantity(fit.step.step_s)} s or more "
        f"(at most {fit.step.model_ratio:.2f} of the peak)",
    ]


def plan_words(plan: Plan) -> str:
    """A plan in words."""
    zero = f", ZeRO {plan.zero}" if plan.zero else ""
    again = {"none": "", "selective": ", scores recomputed", "full": ", blocks recomputed"}[plan.recompute]
    return f"data {plan.data} × tensor {plan.tensor} × pipeline {plan.pipeline}, {plan.micro} at once{zero}{again}"
