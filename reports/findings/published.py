"""Findings beside what others published: our numbers next to theirs, and what to assume where nobody measured."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.predict import (
    AMOUNTS,
    EAGER,
    NOMINAL,
    Setting,
    StepKey,
    fitted_model,
    kept_amounts,
    machine_of,
    predict,
)
from analysis.project.compute import Observation, gpu_hours, published_runs
from reports.findings.data import Published
from reports.findings.shared import IN_PART, OPEN, Section, cells, link, table
from reports.shared import fitting, percent
from results.records import Run

MODEL = "resnet50"
"""The model of which most is published."""

GENERATIONS = {"7.0": "V100", "8.0": "A100", "8.9": "L40S, L4", "9.0": "H100, H200"}
"""Compute capability → what a person calls it."""

ASSUMED = (
    ("cnn", "half", ("7.0", "8.0", "8.9", "9.0")),
    ("cnn", "tf32", ("8.0", "8.9", "9.0")),
    ("cnn", "fp32", ("7.0",)),
    ("depthwise-cnn", "half", ("7.0", "8.0", "8.9", "9.0")),
    ("depthwise-cnn", "tf32", ("8.0", "8.9", "9.0")),
)
"""Families, classes of precision, and the generations that have its unit, for which an interval is asked."""

LETTERS = 60
"""Of the conditions of a published run."""

CONFIDENCE = 0.8

PREDICTED_MODELS = (
    "vgg16",
    "resnet101",
    "resnet50",
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "mobilenetv3_large_100",
)
"""Of timm, all of which were published in training."""

PREDICTED_DEVICES = (
    "NVIDIA GeForce RTX 3090",
    "Tesla V100-SXM2-16GB",
    "NVIDIA A100-SXM4-80GB",
    "NVIDIA L40S",
    "NVIDIA H100 80GB HBM3",
)

PREDICTED_BATCH, PREDICTED_SIZE = 128, 224


def beside_published(runs: Sequence[Published], folder: str) -> Section:
    """Our images a second and theirs, each over its own device's dense peak, with its conditions."""
    title = "Our numbers beside published ones"
    theirs = [each for each in published_runs.observations() if each.model == MODEL]
    rows = [
        (
            each.device,
            each.precision,
            "" if each.batch_size is None else str(each.batch_size),
            each.stack,
            fitting(each.detail or each.source, LETTERS),
            f"{100 * each.ratio:.3g}",
            each.kind,
        )
        for each in sorted(theirs, key=lambda each: (each.device, -each.ratio))
    ]
    mine = [_mine(run, cell) for run in runs for cell in run.measured_cells if cell.model == MODEL]
    gpu = any(run.on_gpu for run in runs)
    low, high = min(each.ratio for each in theirs), max(each.ratio for each in theirs)
    answer = (
        f"{len(theirs)} published trainings of {MODEL}: {100 * low:.2g} to {100 * high:.2g} % of their devices' "
        "dense peaks. "
        + ("" if gpu else "Ours on a GPU is open; those on a CPU are over a measured ceiling, no datasheet's peak.")
    )
    heads = ("device", "precision", "batch", "who, with what", "conditions", "used %", "from")
    return Section(title, IN_PART, answer, (table(heads, [*filter(None, mine), *rows]),))


def _mine(run: Published, cell: Run) -> tuple[str, ...]:
    """A cell of ours in the columns of the others; empty without a fraction."""
    row = run.headline(cell)
    if row is None or row.utilization_ratio is None:
        return ()
    who, what = f"flopledger {cells([cell.cell_id])}", f"{run.name}, {row.variant}"
    used = (f"{100 * row.utilization_ratio:.3g}", f"ours, over the {row.denominator}")
    return (run.device_name, cell.precision, str(cell.batch_size), who, what, *used)


def to_assume(runs: Sequence[Published], folder: str) -> Section:
    """The utilization of a new training run by somebody else, with an interval, from published and our own runs."""
    title = "What utilization to assume for a CNN on a modern GPU"
    found = [*published_runs.observations(), *_ours(runs)]
    rows = [_row(found, name, unit, each) for name, unit, generations in ASSUMED for each in generations]
    example = next((row for row in rows if row[:3] == ("cnn", "half", GENERATIONS["9.0"])), rows[0])
    answer = (
        f"For a CNN in 16 bit on an H100 or H200: {example[3]} %, {example[4]} with 80 % confidence, of the dense peak."
    )
    note = (
        "The outcome of one new run by somebody else (`analysis/project/compute/gpu_hours.py`), a random effect of who ran which "  # noqa: E501
        "software; from published runs"
        + (" and ours." if any(run.on_gpu for run in runs) else "; none of ours, as no run on a GPU is published.")
    )
    heads = ("family", "precision", "GPU", "used %", "80 % interval", "runs", "from")
    return Section(title, IN_PART, answer, (note, table(heads, rows), *_predicted_by_model()))


def _predicted_by_model() -> list[str]:
    """Of named models: what is predicted from the published steps (`runners.predict`); empty without them (a wheel)."""
    if not AMOUNTS.is_file():
        return []
    rows = [(name, *(_predicted_share(name, device) for device in PREDICTED_DEVICES)) for name in PREDICTED_MODELS]
    words = (
        f"By model: predicted utilization with its interval of {percent(NOMINAL)} ({link('predict', 'predict.md')}), "
        f"training in eager mode at a batch of {PREDICTED_BATCH}, {PREDICTED_SIZE} × {PREDICTED_SIZE} images, AMP in "
        "fp16, channels_last, without a limit of memory. Of these cards only the RTX 3090 was in the fit."
    )
    return [words, table(("of timm", *(name.removeprefix("NVIDIA ") for name in PREDICTED_DEVICES)), rows)]


def _predicted_share(model: str, device: str) -> str:
    """ "21 % (11 to 42 %)" of the dense peak; no end lies above it."""
    step = kept_amounts()[StepKey(f"timm:{model}", PREDICTED_SIZE, "train")]
    machine, setting = machine_of(device, "amp-fp16"), Setting("train", "channels_last", False, device, "amp-fp16")
    at_peak_s = sum(each.at(PREDICTED_BATCH)[1] for each in step[EAGER].values()) / machine.peak_flop_per_s
    found = predict(fitted_model(), step, PREDICTED_BATCH, setting, machine, bound_s=at_peak_s)
    used, low, high = (percent(at_peak_s / time_s) for time_s in (found.time_s, found.high_s, found.low_s))
    return f"{used} ({low.removesuffix(' %')} to {high})"


def _ours(runs: Sequence[Published]) -> list[Observation]:
    """Our own fractions of a datasheet's peak, as observations."""
    found = []
    for run in runs:
        for cell in run.measured_cells:
            row = run.headline(cell)
            if row is not None and row.denominator == "datasheet":
                found.append(published_runs.ours(row.to_row(), run.device_name, run.name))
    return [each for each in found if not isinstance(each, str)]


def _row(observations: Sequence[Observation], family: str, precision: str, generation: str) -> tuple[str, ...]:
    place = (family, precision, GENERATIONS[generation])
    try:
        where = gpu_hours.predicted_utilization(observations, family, generation, precision)
    except gpu_hours.TooFew as fault:
        return (*place, OPEN, "–", "–", str(fault))
    low, high = where.utilization.interval(CONFIDENCE)
    middle = sum(where.utilization.interval(0.01)) / 2
    return (*place, f"{100 * middle:.2g}", f"{100 * low:.2g} to {100 * high:.2g} %", str(len(where.near)), where.group)
