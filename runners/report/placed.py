"""`python -m runners.report RUN --atlas`: each cell of a run among steps that others published (docs/reach.md).

A cell's model is built again and traced on fake tensors, which gives its bound and its prediction. Only models by name
are built so: a run's rows are not allowed to name code of a file. The step that is traced has to have as many FLOP as
the cell's; without torch, or where that fails, the reason stands in place of bound and prediction.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from results import Inconsistent, Unavailable, one_line
from runners.cli import Mistake, passing, show_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.atlas import ExpectedStep, PlacedStep
    from analysis.devices import Device
    from cleaning.reconcile import Built
    from results.records import Headline, Run
    from runners.footprint.step import StepOptions
    from runners.predict import TracedStep

FILE = "atlas.csv"

LETTERS = 160
"""Of a reason."""

BY_NAME = ("catalogue", "timm", "hf")
"""Forms of models that are built without code or data of a file (docs/models.md)."""


def placed_cells(built: Built) -> list[PlacedStep]:
    """Every cell of a run among the published steps. Raises Mistake where their table is not installed."""
    from analysis.atlas import TABLE, ExpectedStep, place, published_steps, refusal
    from reports.sweep.answer import headline_rows

    if not TABLE.is_file():
        raise Mistake(f"--atlas: expected the table of published steps, which a checkout has, got no {TABLE.name}")
    runs = {(view.run.cell_id, view.run.attempt): view.run for view in built.views}
    traced: dict[str, TracedStep | str] = {}
    found = []
    for cell in headline_rows(built):
        expected = ExpectedStep()
        if not refusal(cell):
            passing(f"{cell.model}: batch {cell.batch_size}")
            expected = _expected(cell, runs[cell.cell_id, cell.attempt], traced)
        found.append(place(cell, published_steps(), expected))
    passing("")
    return found


def _expected(cell: Headline, run: Run, traced: dict[str, TracedStep | str]) -> ExpectedStep:
    """Bound and prediction of a cell's step, each or the reason why there is none."""
    from analysis.atlas import ExpectedStep
    from analysis.devices import lookup

    device = lookup(cell.device_name)
    assert device is not None
    step = _step_of(run, traced)
    reason = step if isinstance(step, str) else _other_step(step, cell, run)
    if isinstance(step, str) or reason:
        return ExpectedStep(no_prediction=reason, no_bound=reason)
    return _bounded_and_predicted(step, run, device)


def _bounded_and_predicted(step: TracedStep, run: Run, device: Device) -> ExpectedStep:
    from analysis.atlas import ExpectedStep
    from analysis.predict import MEASURED, Setting
    from runners.predict import prediction_of
    from runners.reach import NO_BOUND

    bound_s, no_bound = None, "" if step.is_bounded else NO_BOUND
    try:
        bound_s = step.bound(run.batch_size, device).bound_time_s if step.is_bounded else None
    except (Unavailable, Inconsistent) as fault:
        no_bound = str(fault)
    setting = Setting("train", run.layout, run.compile, device.name, run.precision)
    try:
        found = prediction_of(step, run.batch_size, setting, device)
    except (Unavailable, Inconsistent) as fault:
        return ExpectedStep(bound_s=bound_s, no_bound=no_bound, no_prediction=str(fault))
    return ExpectedStep(
        predicted_s=found.time_s,
        low_s=found.low_s,
        high_s=found.high_s,
        is_measured=found.device == MEASURED,
        bound_s=bound_s,
        no_bound=no_bound,
    )


def _step_of(run: Run, known: dict[str, TracedStep | str]) -> TracedStep | str:
    """The step of a cell at any batch, or why there is none; each model once."""
    reason = not_by_name(run)
    if reason:
        return reason
    try:
        from runners.footprint.step import StepOptions
        from runners.workers import hyper_of_cell

        asked = StepOptions(run.model, run.precision, run.optimizer, layout=run.layout, hyper=hyper_of_cell(run.cell))
    except (ValueError, ImportError) as fault:
        return one_line(str(fault), LETTERS)
    if (key := repr(asked)) not in known:
        known[key] = _trace(asked)
    return known[key]


def _trace(asked: StepOptions) -> TracedStep | str:
    from runners.predict import traced_step

    try:
        return traced_step(asked, "train")
    except (ValueError, Unavailable, Inconsistent) as fault:
        return one_line(str(fault), LETTERS)
    except ImportError as fault:
        return one_line(f"its step cannot be traced here: {fault}", LETTERS)
    except Exception as fault:  # noqa: BLE001  the edge: a model's own code may raise anything
        return one_line(f"{type(fault).__name__}: {fault}", LETTERS)


def not_by_name(run: Run) -> str:
    """Why the model of a run's rows is not built: it is one of files or of code; empty for one by name."""
    from workloads.catalogue import is_file_of_others, parse

    try:
        spec = parse(run.model)
    except ValueError as fault:
        return one_line(str(fault), LETTERS)
    if spec.form not in BY_NAME or is_file_of_others(spec) or run.model_digest or run.batch_maker:
        return "its model is of code or of a file, which is not run for a report"
    return ""


def _other_step(step: TracedStep, cell: Headline, run: Run) -> str:
    """Why the traced step is not the one that was measured, by its FLOP; empty where it is."""
    counted = cell.model_flop if cell.method == "exact" else sum(run.executed.values()) or None
    if counted is None:
        return "no exact count of its step to compare the traced one with"
    try:
        traced = step.cost.at(run.batch_size).model_flop
    except Inconsistent as fault:
        return str(fault)
    return "" if traced == counted else f"the step traced here has {traced:,} model FLOP, the cell's {counted:,}"


def table_of(placed: Sequence[PlacedStep]) -> str:
    """atlas.csv."""
    from analysis.atlas import PlacedStep
    from reports.sweep.answer import to_csv

    return to_csv(placed, PlacedStep)


def show_cells(placed: Sequence[PlacedStep], form: str) -> None:
    """The cells on stdout."""
    from reports.atlas import placed_document, placed_text

    if form == "csv":
        print(table_of(placed), end="")
    elif form == "json":
        print(json.dumps(placed_document(placed), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        show_page(lambda width, colour: placed_text(placed, width, colour))
