"""What `runners.reach` predicts of every cell of the suite gpu on an H200, before anyone measures it.

    python -m benchmarks.gpu.predictions [--write]

`--write` keeps the table as benchmarks/gpu/predictions.csv; without it, it is printed. Once a cell was measured, the
file is not made again: `python -m runners.report RUN --predictions FILE` says which predictions held. No device is
needed; it takes about two minutes on one core.
"""

import argparse
from argparse import Namespace
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from analysis.devices.peaks import Device, lookup
from analysis.reach.bound import IN_PARTS, step_bound, step_cost
from analysis.reach.prediction import NOMINAL
from analysis.reach.published import published_rows
from reports.shared.layout import csv_text
from results.errors import Inconsistent, Unavailable
from results.process import collector_off
from results.records.cell import Cell
from results.store.manifest import ROOT, commit_of
from runners.footprint import StepTraces
from runners.reach import NO_BOUND, operations_of, prediction_of
from runners.sweep import options, request
from runners.workers.any_model import hyper_of_cell
from runners.workers.devices import ProbeResult
from runners.workers.traced_step import StepOptions
from workloads.catalogue.suites import SUITES

SUITE, DEVICE = "gpu", "NVIDIA H200"

FILE = Path(__file__).with_suffix(".csv")

LEVEL = round(100 * NOMINAL)
"""Of the one interval that is known of a device that was not measured, %."""

COLUMNS = (
    "model", "batch_size", "precision", "layout", "compile", "device", "model_flop", "bound_time_s", "step_time_s",
    f"low_{LEVEL}_s", f"high_{LEVEL}_s", "utilization_ratio", "published", "reason", "made_on", "commit",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"keep it as {FILE.name}")
    is_kept = parser.parse_args(arguments).write
    made = {"made_on": datetime.now(UTC).date().isoformat(), "commit": commit_of(ROOT)}
    with collector_off():
        rows = [{**row, **made} for row in rows_of(suite_cells())]
    text = csv_text(COLUMNS, ([row.get(name) for name in COLUMNS] for row in rows))
    if is_kept:
        FILE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


def suite_cells() -> list[Cell]:
    """The cells of the suite, model by model in its order."""
    asked = options.parser().parse_args(["--suite", SUITE])
    first, *others = request.grids_of(asked, {}, ProbeResult(device="cuda"))
    order = SUITES[SUITE].models
    return sorted(
        request.union(first, others),
        key=lambda cell: (order.index(cell.model), cell.precision, cell.layout, cell.compile, cell.batch_size),
    )


def rows_of(cells: Sequence[Cell]) -> Iterator[dict[str, Any]]:
    """A row for each cell. Cells that follow each other in one precision and layout share what is traced."""
    device = lookup(DEVICE)
    assert device is not None
    for _, group in groupby(cells, key=lambda cell: (cell.model, cell.precision, cell.layout)):
        same = list(group)
        first = same[0]
        steps = StepTraces(StepOptions(first.model, first.precision, layout=first.layout, hyper=hyper_of_cell(first)))
        yield from (_row(cell, steps, device) for cell in same)


def _row(cell: Cell, steps: StepTraces, device: Device) -> dict[str, Any]:
    # training steps of this model on this device that others published, in any precision and batch
    rows = published_rows().query("device == @DEVICE and mode == 'train'")
    count = int(rows["counted_model"].isin([cell.model, f"timm:{cell.model}"]).sum())
    row = {name: getattr(cell, name) for name in COLUMNS[:5]} | {"device": device.name, "published": count}
    try:
        operations = operations_of(steps.options, steps.trace_of(cell.batch_size))
        bound = step_bound(step_cost(operations), device.peaks, device.bandwidth_bytes_per_s)
    except (Unavailable, Inconsistent) as fault:
        return {**row, "reason": str(fault)}
    row["model_flop"] = bound.model_flop
    is_bounded = all(operation.name != IN_PARTS for operation in operations)
    asked = Namespace(**{name: getattr(cell, name) for name in COLUMNS[:5]}, mode="train")
    prediction, reason = prediction_of(steps, operations, asked, device, bound if is_bounded else None)
    row |= {"bound_time_s": _shown(bound.bound_time_s)} if is_bounded else {}
    row["reason"] = " ".join([reason, *[NO_BOUND] * (not is_bounded)]).strip()
    if prediction is not None:
        used = bound.model_flop / bound.peak_flop_per_s / prediction.time_s
        times_s = (prediction.time_s, prediction.low_s, prediction.high_s)
        row |= zip(COLUMNS[8:12], map(_shown, (*times_s, used)), strict=True)
    return row


def _shown(value: float) -> float:
    """Six digits: more say nothing."""
    return float(f"{value:.6g}")


if __name__ == "__main__":
    main()
