"""Computes how fast the products of a recorded profile ran, a step's utilization, and where its kernels' time goes.

`rates` takes products, kernels and a device, and returns a `Rate` per arithmetic unit. A rate is repaired FLOP, with
recomputation, ÷ the time of the same products' kernels, against the datasheet's dense peak. It excludes idle time and
other kernels. A ratio above 1 on tensor units shows a wrong count, time or peak. On IEEE fp32 a fast algorithm
(Winograd, FFT) needs fewer multiplications. `utilization` divides the model FLOP of the shown step by its whole time
under the profiler and its devices' peak. `time_shares` adds up times by kernel, module or phase, over streams. It has
no rates, since an operation's FLOP belong to all of its kernels. The device's clock may have differed from the peak's.
Kernel names may not tell which unit ran an fp32 product.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.devices.peaks import Device
from analysis.devices.precisions import PRECISIONS, TENSOR_UNITS, unit_of
from analysis.trace.calls import named
from analysis.trace.kernel_names import makes_products
from analysis.trace.operations import is_product, torch_dtype
from reports.trace.timeline import NO_STEP_TIME, Timeline, TraceView

if TYPE_CHECKING:
    from cleaning.trace.clean import CleanedTrace
    from results.records.counts import OperationInstance


MODEL = ("forward", "loss", "backward")
"""Phases whose products are model FLOP."""

_TF32 = re.compile(r"tf32|s1688|s16816|xf32", re.IGNORECASE)
"""Matches names of kernels that round fp32 inputs to TF32."""

RESOLUTION_S = 1e-6
"""A kernel may have run longer than recorded by this time: until torch 2.3 times were whole microseconds."""

FAST_ALGORITHM = "fast_algorithm"
IMPOSSIBLE = "above_one"


@dataclass(frozen=True)
class Rate:
    """The products of one unit: their FLOP, and the time of their kernels. above: how many products were faster than
    the unit's peak."""

    unit: str
    flop: int
    time_s: float
    peak_flop_per_s: float
    above: int
    indices: tuple[int, ...]  # of its operations

    @property
    def ratio(self) -> float:
        """FLOP ÷ (time of the kernels × peak)."""
        return self.flop / (self.time_s * self.peak_flop_per_s)

    @property
    def mark(self) -> str:
        """FAST_ALGORITHM or IMPOSSIBLE if a product was faster than the peak, else ""."""
        if not self.above:
            return ""
        return IMPOSSIBLE if self.unit in TENSOR_UNITS else FAST_ALGORITHM


def rates(instances: Sequence[OperationInstance], kernels: pd.DataFrame, device: Device) -> tuple[Rate, ...]:
    """Return one rate a unit, the most FLOP first. Products without a count, kernels' time or a known peak are left
    out."""
    rounded = _rounded(kernels) if "tf32" in device.peaks else set()
    products_of: dict[str, list[OperationInstance]] = {}
    for instance in instances:
        unit = _unit(instance, rounded)
        if unit in device.peaks and instance.repaired_flop and instance.kernel_time_s:
            products_of.setdefault(unit, []).append(instance)
    of_units = []
    for unit, products in products_of.items():
        flop_of = [(i.repaired_flop or 0, i.kernel_time_s or 0.0, i.kernels) for i in products]
        peak = device.peaks[unit]
        above = sum(flop > peak * (time_s + count * RESOLUTION_S) for flop, time_s, count in flop_of)
        flop, time_s = sum(flop for flop, _, _ in flop_of), sum(time_s for _, time_s, _ in flop_of)
        of_units.append(Rate(unit, flop, time_s, peak, above, tuple(i.index for i in products)))
    return tuple(sorted(of_units, key=lambda rate: -rate.flop))


def overall_ratio(rates: Sequence[Rate]) -> float | None:
    """Return Σ FLOP ÷ peak over all units, ÷ the time of the kernels of the same products; None without any."""
    time_s = sum(rate.time_s for rate in rates)
    ideal_s = sum(rate.flop / rate.peak_flop_per_s for rate in rates)
    return ideal_s / time_s if ideal_s and time_s > 0 else None


def time_ratios(rates: Sequence[Rate], cleaned: CleanedTrace) -> tuple[float | None, float | None]:
    """Return the share of the time that the rates cover: of kernels that make products, and of all kernels; None
    where there is no such time.

    A call's kernels that make products are those whose names say so; if no name does, all of them. Where calls take the
    place of kernels, they are the calls of products.
    """
    kernels = cleaned.kernels
    indices = {index for rate in rates for index in rate.indices}
    rows = kernels[kernels["instance"].isin(indices) & (kernels["fault"] != "duplicate_launch")]
    is_kernel, is_call = (rows["what"] == what for what in ("kernel", "call"))
    makes = is_kernel & named(rows["name"], makes_products)
    counted = makes | (is_kernel & ~rows["instance"].isin(rows.loc[makes, "instance"]))
    counted |= is_call & named(rows["name"], is_product)
    products_s, whole_s = (int(ns) * 1e-9 for ns in (rows.loc[counted, "time_ns"].sum(), kernels["time_ns"].sum()))
    return (
        products_s / cleaned.product_time_s if cleaned.product_time_s else None,
        sum(rate.time_s for rate in rates) / whole_s if whole_s else None,
    )


@dataclass(frozen=True)
class TraceUtilization:
    """Utilization of the step that is shown, or of the recording where no step is marked.

    reason: why there is no ratio. peak_flop_per_s: of all devices; of products of several units Σ FLOP ÷ Σ (FLOP ÷ peak
    of the unit).
    """

    reason: str = ""
    flop: int | None = None
    time_s: float | None = None
    peak_flop_per_s: float | None = None

    @property
    def flop_per_s(self) -> float | None:
        """What was achieved, idle time included."""
        return self.flop / self.time_s if self.flop and self.time_s else None

    @property
    def ratio(self) -> float | None:
        """Rate ÷ peak."""
        return self.flop_per_s / self.peak_flop_per_s if self.flop_per_s and self.peak_flop_per_s else None


def utilization(trace: TraceView, device: Device | None, shown: Timeline | None) -> TraceUtilization:
    """Return the utilization of the step that is shown, or as much as is known, with the reason."""
    cleaned, kernels = trace.cleaned, trace.cleaned.kernels
    if shown is None or not shown.length_ns:
        return TraceUtilization("no step has a known time")
    time_s = shown.length_ns * 1e-9
    totals = [cleaned.phase_totals["repaired"][f"{phase}_flop"] for phase in ("forward", "backward")]
    if cleaned.missing or any(total.unknown_calls for total in totals):
        return TraceUtilization("the FLOP of a step are not all known", None, time_s)
    within = kernels["start_ns"].between(shown.begin_ns, shown.end_ns, inclusive="left") & (kernels["what"] == "kernel")
    if any(map(makes_products, kernels.loc[within & (kernels["call"] < 0) & (kernels["instance"] < 0), "name"])):
        return TraceUtilization("kernels that make products found no call", None, time_s)
    products = [
        instance
        for instance in cleaned.instances
        if instance.repaired_flop and instance.phase in MODEL and shown.step in (None, instance.step)
    ]
    flop = sum(instance.repaired_flop or 0 for instance in products)
    if not flop:
        return TraceUtilization("no product was recorded", None, time_s)
    if device is None:
        lacks = f"analysis/devices/peaks.csv has no {trace.device_name}" if trace.device_name else "no device is named"
        return TraceUtilization(f"{lacks}; --device NAME or --peak-tflops N gives a peak", flop, time_s)
    rounded = _rounded(kernels) if "tf32" in device.peaks else set()
    units = [_unit(instance, rounded) for instance in products]
    if unknown := [unit or "a dtype that is not known" for unit in units if unit not in device.peaks]:
        return TraceUtilization(f"{device.name} has no peak of {unknown[0]}", flop, time_s)
    ideal_s = sum((i.repaired_flop or 0) / device.peaks[unit] for i, unit in zip(products, units, strict=True))
    peak = device.peaks[units[0]] if len({*units}) == 1 else flop / ideal_s
    return TraceUtilization("", flop, time_s, peak * (1 + sum(map(bool, shown.others.values()))))


def _unit(instance: OperationInstance, rounded: set[int]) -> str:
    """Return the unit that ran a product; "" where its dtypes are not known."""
    dtype = next((word for word in map(torch_dtype, instance.input_dtypes) if word), "")
    try:
        return unit_of(dtype, PRECISIONS["tf32" if instance.index in rounded else "fp32"], "cuda")
    except ValueError:
        return ""


def _rounded(kernels: pd.DataFrame) -> set[int]:
    """Return indices of instances that have a kernel whose name says that it rounds to TF32."""
    return set(kernels["instance"][named(kernels["name"], _TF32.search)].tolist())


GROUPS = {"kernels_by_time": ("name", "phase"), "modules_by_time": ("module", "phase"), "phases_by_time": ("phase",)}
"""Key of the JSON document → what its rows are grouped by."""


def time_shares(kernels: pd.DataFrame, columns: Sequence[str]) -> list[dict[Any, Any]]:
    """Return a row for each group, the longest first: name, phase, kernels (how many), time_s (of all of them in the
    recording), time_ratio (of all kernels' time); [] where no times were recorded.

    kernels: the table of a cleaned recording. columns: "phase" alone, or a column of names and "phase". Rows that are
    not part of a step (`duplicate_launch`, `autotune`) are left out.
    """
    rows = kernels[~kernels["fault"].isin(NO_STEP_TIME)]
    whole_ns = int(rows["time_ns"].sum())
    if whole_ns <= 0:
        return []
    names = rows[columns[0]].fillna("").astype(str) if len(columns) > 1 else ""
    rows = pd.DataFrame({"name": names, "phase": rows["phase"].fillna("").astype(str), "time_ns": rows["time_ns"]})
    groups = rows.groupby(["name", "phase"])["time_ns"].agg(kernels="size", time_ns="sum").reset_index()
    groups = groups.sort_values(["time_ns", "name", "phase"], ascending=[False, True, True])
    times_ns = groups.pop("time_ns")
    return groups.assign(time_s=times_ns / 1e9, time_ratio=times_ns / whole_ns).to_dict("records")
