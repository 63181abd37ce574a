"""Estimates a step's time on a device: the least one (`step_bound`), the probable one with an interval (`predict`), and
those of the nearest published steps (`nearest_steps`).

The least time is a sum over the groups of ideal fusion (`analysis.operators.fusion`) of max(Σ model FLOP ÷ peak, bytes
÷ bandwidth); products by a faster algorithm (Winograd) and cached tensors may beat it. A prediction is refused where
nothing similar was measured; for a device that was not measured, the interval is that of devices left out of the fit.
Not claimed: that a device reaches the bound, or that published rows are a fair sample.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.devices.peaks import Device, lookup
from analysis.reach.step_time import (
    COMPILED,
    EAGER,
    GROUPED,
    TRANSPOSED,
    DatasheetRates,
    Setting,
    StepAmounts,
    TimeModel,
    TimePart,
    parts_of,
)
from analysis.roofline import RECOMPUTE, groups, moved_bytes
from results.errors import Unavailable
from results.records.answers import StepOperation

MEASURED, OTHER_DEVICE = "measured", "not measured"

NOMINAL = 0.9
"""Nominal coverage of an interval: the share of its group's rows that should lie in it."""

WIDELY, THINLY = "measured widely", "measured thinly"

THIN_KINDS = (GROUPED, TRANSPOSED, "recurrent", "attention backward")
"""Kinds of operations that dominate few model families, so that they are measured thinly."""


@dataclass(frozen=True)
class Prediction:
    """A step's predicted time, s: low_s and high_s hold the measured time in NOMINAL of the cases.

    device: MEASURED or OTHER_DEVICE; fitted_on: the setting or pool whose factors were used; ground: of the model.
    scores: number of rows that calibrated the interval. coverage: counted on rows left out, with its 95 % interval;
    None where it was not counted. is_raised: the sum of the parts was below the bound, which is taken instead.
    is_widened: for inference at a small batch on an unmeasured device, the upper end reaches as far as others needed.
    """

    time_s: float
    low_s: float
    high_s: float
    parts: tuple[TimePart, ...]
    device: str
    fitted_on: str
    ground: str
    scores: int
    coverage: Sequence[float] | None
    is_raised: bool
    is_widened: bool


def predict(
    model: TimeModel, steps: Mapping[str, StepAmounts], batch_size: int, setting: Setting, machine: DatasheetRates,
    bound_s: float | None = None,
) -> Prediction:  # fmt: skip
    """Predict the time of a step whose amounts are known. bound_s: its least time, below which no end of the interval
    lies.

    Raises Unavailable where nothing similar was measured.
    """
    fitted = model.factors_of(setting)
    if fitted is None:
        raise Unavailable(f"no one published {setting.pool.text.replace(' | ', ', ')} steps that this was fitted on")
    precisions = sorted({text.split(" | ")[4] for text in model.newest})
    if setting.precision not in precisions:
        raise Unavailable(f"no published step in {setting.precision} was fitted, only in {', '.join(precisions)}")
    text, factors = fitted
    run = COMPILED if setting.compiled else EAGER
    terms, step = model.terms[run], steps[run]
    _expect_known(terms.unknown_classes(step), step, batch_size)
    parts = parts_of(terms, factors, terms.row(step, batch_size, machine))
    ground = ground_of(parts)
    device = OTHER_DEVICE if text == setting.pool.text else MEASURED
    low, high, scores, coverage = interval_of(model, setting, device, ground)
    is_widened = device == OTHER_DEVICE and setting.mode == "infer" and batch_size < model.small["below"]
    if is_widened:
        high, coverage = max(high, model.small["high"][setting.layout]), None
    total_s, least_s = sum(part.time_s for part in parts), bound_s or 0.0
    return Prediction(
        time_s=max(total_s, least_s),
        low_s=max(total_s * low, least_s),
        high_s=max(total_s * high, least_s),
        parts=tuple(parts),
        device=device,
        fitted_on=text,
        ground=ground,
        scores=scores,
        coverage=coverage,
        is_raised=total_s < least_s,
        is_widened=is_widened,
    )


def _expect_known(unknown: Sequence[str], step: StepAmounts, batch_size: int) -> None:
    """Raise Unavailable where more than 5 % of a step's bytes are in kinds of operations that no fitted model had."""
    nbytes = {name: amounts.for_batch(batch_size)[2] for name, amounts in step.items()}
    share = sum(nbytes[name] for name in unknown) / max(sum(nbytes.values()), 1.0)
    if share > 0.05:
        raise Unavailable(f"no published model has operations like its {', '.join(unknown[:3])}")


def ground_of(parts: Sequence[TimePart]) -> str:
    """Return how well a prediction is grounded: thin where a tenth of its time is in kinds that few families have."""
    total_s = sum(part.time_s for part in parts)
    thin_s = sum(part.time_s for part in parts if part.name.startswith(THIN_KINDS))
    return THINLY if total_s and thin_s / total_s > 0.1 else WIDELY


def interval_of(
    model: TimeModel, setting: Setting, device: str, ground: str
) -> tuple[float, float, int, Sequence[float] | None]:
    """Return (low, high, scores, coverage) of a group: low ≤ measured ÷ predicted ≤ high in NOMINAL of its rows. An
    unmeasured device gets the wider interval."""
    kind = "families" if device == MEASURED else "devices"
    group = f"{setting.pool.text} | {ground}"
    group = group if group in model.intervals[kind] else ""
    low, high, scores = model.intervals[kind][group]
    return low, high, int(scores), model.coverage[kind].get(group)


def is_power_limited(device: Device) -> bool:
    """Return whether a card's clock falls under load: a Max-Q, or one whose note in the table says so."""
    return "Max-Q" in device.name or device.name in POWER_LIMITED or "clock falls" in device.note


POWER_LIMITED = frozenset({"Tesla T4", "NVIDIA L4", "NVIDIA A10", "NVIDIA A10G", "Tesla P4"})
"""Cards of at most 150 W, far below what their units draw at the boost clock."""


ARITHMETIC, MEMORY = "arithmetic", "memory"

IN_PARTS = "aten._safe_softmax"
"""Operation of a CPU trace in which attention runs in parts. CUDA may fuse them into a kernel that keeps the scores of
every pair of tokens to itself, so that the sum over the parts is not a least time."""

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StepCost:
    """Costs of a step's fusion groups and of its single operations.

    units: arithmetic units that the step uses. group_flop, operation_flop: model FLOP by group (or operation) and unit,
    int64 of shape (n, units). group_bytes, operation_bytes: bytes moved, int64 of shape (n,). recomputed_flop: the part
    recomputed in the backward pass, by unit, shape (units,).
    """

    units: tuple[str, ...]
    group_flop: Counts
    group_bytes: Counts
    operation_flop: Counts
    operation_bytes: Counts
    recomputed_flop: Counts

    @property
    def model_flop(self) -> int:
        """FLOP of convolutions and matrix products, without recomputation; a multiply-add is 2."""
        return int(self.operation_flop.sum() - self.recomputed_flop.sum())


@dataclass(frozen=True, kw_only=True)
class StepBound:
    """The least time of a step, in seconds.

    peak_flop_per_s: of the units that run the products, weighted by their FLOP. attainable_ratio: utilization of that
    peak if the step took bound_time_s; unfused_ratio: if it took unfused_time_s. bound_by: "arithmetic" and "memory" →
    share of bound_time_s in groups bound by it.
    """

    model_flop: int
    peak_flop_per_s: float
    bound_time_s: float
    attainable_ratio: float
    unfused_time_s: float
    unfused_ratio: float
    bound_by: Mapping[str, float]


def step_cost(operations: Sequence[StepOperation]) -> StepCost:
    """Compute the cost of a step whose operations are in groups. Raises Unavailable where an operation's cost is
    unknown."""
    if unknown := sorted({operation.name for operation in operations if not operation.understood}):
        raise Unavailable(f"no rule for {', '.join(unknown[:3])}: the FLOP of the step are not known")
    units = tuple(sorted({operation.unit for operation in operations if operation.model_flop}))
    if "" in units:
        raise Unavailable("a product has a dtype without an arithmetic unit")
    column = {unit: index for index, unit in enumerate(units)}
    flop = np.zeros((len(operations), len(units)), np.int64)
    again = np.zeros(len(units), np.int64)
    for row, operation in enumerate(operations):
        if operation.model_flop:
            flop[row, column[operation.unit]] = operation.model_flop
            again[column[operation.unit]] += operation.model_flop * (operation.phase == RECOMPUTE)
    row_of = {operation.index: row for row, operation in enumerate(operations)}
    fused = groups(operations)
    return StepCost(
        units,
        np.array([flop[[row_of[index] for index in members]].sum(axis=0) for members, _ in fused], np.int64).reshape(
            len(fused), len(units)
        ),
        np.array([nbytes for _, nbytes in fused], np.int64),
        flop,
        np.array([moved_bytes(operation) for operation in operations], np.int64),
        again,
    )


def step_bound(cost: StepCost, peak_by_unit: Mapping[str, float], bytes_per_s: float | None) -> StepBound:
    """Compute the least time of a step.

    peak_by_unit: unit → FLOP/s; bytes_per_s: bandwidth of memory. Raises Unavailable for a unit without a peak, without
    a bandwidth, and for a step without model FLOP.
    """
    if not cost.model_flop:
        raise Unavailable("the step has no convolution or matrix product: there is no utilization of it")
    if missing := [unit for unit in cost.units if not peak_by_unit.get(unit)]:
        raise Unavailable(f"no datasheet peak of {', '.join(missing)}")
    if not bytes_per_s:
        raise Unavailable("no datasheet bandwidth of memory")
    s_per_flop = np.array([1 / peak_by_unit[unit] for unit in cost.units])
    arithmetic_s, memory_s = cost.group_flop @ s_per_flop, cost.group_bytes / bytes_per_s
    taken_s = np.maximum(arithmetic_s, memory_s)
    bound_s = float(taken_s.sum())
    unfused_s = float(np.maximum(cost.operation_flop @ s_per_flop, cost.operation_bytes / bytes_per_s).sum())
    model_s = float((cost.operation_flop.sum(axis=0) - cost.recomputed_flop) @ s_per_flop)
    by_arithmetic = float(taken_s[arithmetic_s >= memory_s].sum()) / bound_s
    return StepBound(
        model_flop=cost.model_flop,
        peak_flop_per_s=cost.model_flop / model_s,
        bound_time_s=bound_s,
        attainable_ratio=model_s / bound_s,
        unfused_time_s=unfused_s,
        unfused_ratio=model_s / unfused_s,
        bound_by={ARITHMETIC: by_arithmetic, MEMORY: 1 - by_arithmetic},
    )


TABLE = Path(__file__).with_name("published_steps.csv.gz")
"""The published rows, written by `python -m benchmarks.reach import`."""

MOST = 5
"""Maximum number of rows that `nearest_steps` returns."""

OWN, FAMILY, ELSEWHERE, OTHERS = "this model", "models of its family", "this model on other devices", "other models"

OTHER_NAMES: Mapping[str, str] = {
    "vit": "vision_transformer",
    "swin": "swin_transformer",
    "maxvit": "maxxvit",
    "mobilenetv2": "efficientnet",
    "mnasnet": "efficientnet",
    "wideresnet": "resnet",
    "resnext": "resnet",
    "inceptionv3": "inception_v3",
}
"""Prefix of a model's name, in lower case without underscores → the module of timm that builds such models."""


@functools.cache
def published_rows() -> pd.DataFrame:
    """Return every row of TABLE, in SI units. Unknown texts are empty, unknown numbers NaN."""
    rows = pd.read_csv(
        TABLE,
        keep_default_na=False,
        na_values={name: [""] for name in ("batch_size", "image_size", "step_time_s", "model_flop", "bound_time_s")},
    )
    source = rows["source"] + ": " + rows["file"] + ", row " + rows["row"].astype(str)
    return rows.assign(source_name=rows["source"], source=source)


def nearest_steps(model: str, device: Device, mode: str, only_compiled: bool = False) -> tuple[str, pd.DataFrame]:
    """Return (relation, best row of each model, device, precision and layout, at most MOST). The relation is the first
    of OWN, FAMILY, ELSEWHERE and OTHERS that has rows in this mode; all but ELSEWHERE are of this device."""
    rows = published_rows()
    family, own = family_of(rows, model), _same_model(rows, model)
    rows = rows[(rows["mode"] == mode) & (rows["compiled"] | (not only_compiled))]
    own, of_family = own[rows.index], (rows["family"] == family) & (family != "")
    here = rows["device"].isin([name for name in rows["device"].unique() if lookup(name) == device])
    for what, chosen in ((OWN, own & here), (FAMILY, of_family & here), (ELSEWHERE, own), (OTHERS, here)):
        if chosen.any():
            best = rows[chosen].sort_values("utilization_ratio", ascending=False, kind="stable")
            return what, best.drop_duplicates(["counted_model", "device", "precision", "layout"]).head(MOST)
    return "", rows.head(0)


def family_of(rows: pd.DataFrame, model: str) -> str:
    """Return the family of a model: that of its rows, else the one that its name begins with; empty where there is
    none."""
    if len(own := rows["family"][_same_model(rows, model) & (rows["family"] != "")]):
        return str(own.iloc[0])
    families = set(rows["family"]) - {""}
    names = {_plain(family): family for family in families}
    names |= {start: family for start, family in OTHER_NAMES.items() if family in families}
    best = max((start for start in names if _plain(model).startswith(start)), key=len, default="")
    return str(names.get(best, ""))


def _same_model(rows: pd.DataFrame, model: str) -> pd.Series[bool]:
    """Select the rows of this model, by the counted or the printed name, in any spelling."""
    wanted = _plain(model)
    names = {name for column in ("counted_model", "model") for name in rows[column].unique() if _plain(name) == wanted}
    return rows["counted_model"].isin(names) | rows["model"].isin(names)


def _plain(model: str) -> str:
    """Strip a model's name of its source ("timm:"), its weights' tag (".a1_in1k") and separators."""
    return re.sub(r"[\W_]", "", re.split(r"[:/]", model)[-1].partition(".")[0].lower())
