"""What training reached where somebody published it: `published_utilization.csv`, recomputed against our own peaks.

A row holds what its source printed (items a second and device, FLOP a second, or a ratio alone), the FLOP of one item
in our convention (a multiply-add is 2, convolutions and matrix products of forward and backward, no recomputation,
causal attention dense), and the device by its name in `analysis/devices/peaks.csv`. The ratio is computed here, over
that table's dense peak of the unit that the precision runs on; `published_ratio` is the source's own and is only
compared. A row whose numbers cannot be recomputed, or whose part has no peak in the table, says why in `why_not` and is
never used.

It is not claimed that these runs are a sample of anything: they are what was published, mostly ResNet-50 and mostly by
those who sell or rent the device. `analysis/project/compute/gpu_hours.py` says what is made of them.
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.devices import PRECISIONS, TENSOR_UNITS, Device, lookup, spelling

TABLE = Path(__file__).with_name("published_utilization.csv")

CLASS_OF_UNIT: Mapping[str, str] = {"fp64": "fp64", "fp32": "fp32", "tf32": "tf32", "fp16": "half", "bf16": "half"}
"""Units whose dense peak is the same on every device that has both are one class."""

FAMILIES: Mapping[str, str] = {
    "alexnet": "cnn",
    "vgg": "cnn",
    "resnet": "cnn",
    "wide_resnet": "cnn",
    "densenet": "cnn",
    "inception": "cnn",
    "googlenet": "cnn",
    "squeezenet": "cnn",
    "mobilenet": "depthwise-cnn",
    "efficientnet": "depthwise-cnn",
    "convnext": "depthwise-cnn",
    "mnasnet": "depthwise-cnn",
    "shufflenet": "depthwise-cnn",
    "vit_": "vision-transformer",
    "swin": "vision-transformer",
    "gpt": "language-model",
    "llama": "language-model",
}
"""How the names of models of our own runs begin → their family."""

SAME_RATIO = 1e-6
"""Relative difference up to which a fraction is that of its row's own numbers."""

RECOMPUTED, RATE_AS_PRINTED, RATIO_AS_PRINTED, MEASURED = "recomputed", "rate as printed", "ratio as printed", "ours"
"""Where a ratio is from: items a second × FLOP an item, FLOP a second, a ratio alone, or a run of our own."""


@dataclass(frozen=True)
class Observation:
    """One training run. generation: see `generation`; stack: who ran which software, as one; kind: see RECOMPUTED.

    published_ratio, hardware_ratio: as its source prints them (the second with recomputation), for comparison alone.
    """

    family: str
    model: str
    device: str
    generation: str
    precision: str
    precision_class: str
    stack: str
    ratio: float
    kind: str
    devices: int | None = None
    batch_size: int | None = None
    published_ratio: float | None = None
    hardware_ratio: float | None = None
    source: str = ""
    detail: str = ""
    note: str = ""


@dataclass(frozen=True)
class LeftOut:
    """A row of the table that is not used. printed_device: as the source has it."""

    source: str
    model: str
    printed_device: str
    why: str


@functools.cache
def observations() -> tuple[Observation, ...]:
    """Every usable row, in the order of the table. Raises ValueError for a row that cannot be right."""
    return tuple(_observation(row) for row in _rows() if not row["why_not"])


@functools.cache
def excluded_runs() -> tuple[LeftOut, ...]:
    """Every row that is not used, with its reason."""
    rows = [row for row in _rows() if row["why_not"]]
    return tuple(LeftOut(row["source"], row["model"], row["printed_device"], row["why_not"]) for row in rows)


def generation(device: Device) -> str:
    """Compute capability, and whether it is a GeForce: its tensor units have half the rate of their generation's."""
    return f"{device.compute_capability} GeForce" if "GeForce" in device.name else device.compute_capability


def families(runs: Iterable[Observation] | None = None) -> list[str]:
    """The families that have an observation."""
    return sorted({each.family for each in (observations() if runs is None else runs)})


def family_of(model: str) -> str | None:
    """The family of a model of ours by how its name begins, None for another."""
    return next((FAMILIES[start] for start in FAMILIES if model.startswith(start)), None)


def ours(row: Mapping[str, str], device_name: str, run: str) -> Observation | str:
    """A row of the utilization.csv of a run of our own as an observation, or why it is none.

    row: column → text; the exact count over the datasheet's peak. device_name: as its driver prints it. Used are
    fractions on a device that is in `analysis/devices/peaks.csv`, of cells that converged, which follow from the row's
    own FLOP, time and peak. Raises KeyError or ValueError for what is no such row.
    """
    if row["device"].startswith("cpu"):
        return "of a CPU, which says nothing of a GPU"
    if not row["utilization_ratio"]:
        return "without a fraction of a datasheet's peak"
    if row["status"] != "ok":
        return "of a cell that did not converge"
    ratio = _float_or_nan(row["utilization_ratio"])
    if not 0 < ratio < (1 if PRECISIONS[row["precision"]].matmul_unit in TENSOR_UNITS else math.inf):
        return "with a fraction that its unit cannot have"
    if not _follows(row, ratio):
        return "with a fraction that is not its own FLOP ÷ (time × peak)"
    device = lookup(device_name)
    family = family_of(row["model"])
    if device is None or family is None:
        return "of a model of no family here" if device else "of a device that is not in peaks.csv"
    return Observation(
        family=family,
        model=row["model"],
        device=spelling(device, device_name),
        generation=generation(device),
        precision=row["precision"],
        precision_class=precision_class(row["precision"]),
        stack=f"flopledger, {run}",
        ratio=ratio,
        kind=MEASURED,
        devices=1,
        batch_size=int(row["batch_size"]),
        source=f"flopledger run {run}",
        detail=row.get("variant", ""),
    )


def _follows(row: Mapping[str, str], ratio: float) -> bool:
    """Whether a row's fraction is its FLOP ÷ (time × peak)."""
    flop, time_s, peak = (_float_or_nan(row[name]) for name in ("model_flop", "time_s", "peak_flop_per_s"))
    return time_s > 0 and peak > 0 and math.isclose(ratio, flop / (time_s * peak), rel_tol=SAME_RATIO)


def _float_or_nan(text: str) -> float:
    """The number of a cell; nan for a text that is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def precision_class(precision: str) -> str:
    """The class of a precision's unit. Raises KeyError for no precision of ours."""
    return CLASS_OF_UNIT[PRECISIONS[precision].matmul_unit]


def _rows() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _observation(row: Mapping[str, str]) -> Observation:
    device = lookup(row["device"])
    unit = PRECISIONS[row["precision"]].matmul_unit
    if device is None or unit not in device.peaks:
        raise ValueError(f"{row['source']}: no {unit} peak of {row['device']!r} in peaks.csv")
    ratio, kind = _ratio(row, device.peaks[unit])
    return Observation(
        family=row["family"],
        model=row["model"],
        device=spelling(device, row["device"]),
        generation=generation(device),
        precision=row["precision"],
        precision_class=CLASS_OF_UNIT[unit],
        stack=row["stack"],
        ratio=ratio,
        kind=kind,
        devices=_int(row["devices"]),
        batch_size=_int(row["batch_size"]),
        published_ratio=_float(row["published_ratio"]),
        hardware_ratio=_float(row["published_hardware_ratio"]),
        source=row["source"],
        detail=row["detail"],
        note=row["note"],
    )


def _ratio(row: Mapping[str, str], peak_flop_per_s: float) -> tuple[float, str]:
    """Utilization and where it is from."""
    if row["items_per_s"]:
        return float(row["items_per_s"]) * float(row["flop_per_item"]) / peak_flop_per_s, RECOMPUTED
    if row["achieved_flop_per_s"]:
        return float(row["achieved_flop_per_s"]) / peak_flop_per_s, RATE_AS_PRINTED
    return float(row["published_ratio"]), RATIO_AS_PRINTED


def _int(text: str) -> int | None:
    return int(text) if text else None


def _float(text: str) -> float | None:
    return float(text) if text else None
