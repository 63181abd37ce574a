"""Published steps with the cost of the model that they name: which model it is, how many FLOP, how fast at best.

The model is built, and has to have as many parameters as the source says, or the row is kept with the reason and
without a cost. Peaks are the datasheet's dense ones of the device that the source names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.atlas import (
    PublishedStep,
    is_dlexamples,
    is_lambda,
    is_mlperf,
    is_neusight_steps,
    is_timm,
    is_zeus,
    read_dlexamples,
    read_lambda,
    read_mlperf,
    read_neusight_steps,
    read_timm,
    read_zeus,
)
from analysis.devices import lookup
from analysis.predict import StepAmounts, StepKey
from analysis.reach import BatchCost, StepCost, step_bound
from results import Inconsistent, Unavailable
from runners.atlas import kept_amounts
from runners.atlas.costs import CostKey, ModelCost, read_cost

PARAMETERS_TOLERANCE = 0.0051e6
"""The source prints millions with two decimals."""

MAC_RATIOS = (0.8, 1.25)
"""Our multiply-adds of the forward pass ÷ the source's. Its counters leave small products out, or add other operations;
beyond these it counted another model or another image size."""

DIGITS = 6
"""Of derived numbers, significant."""

SAME_UNIT = {"amp-fp16": {"bf16": "fp16"}, "fp32": {"bf16": "fp32"}, "tf32": {"bf16": "tf32"}}
"""Precision → units of the trace, which is in amp-bf16, and those that ran instead."""


OTHER_READERS = (
    (is_lambda, read_lambda),
    (is_dlexamples, read_dlexamples),
    (is_neusight_steps, read_neusight_steps),
    (is_zeus, read_zeus),
    (is_mlperf, read_mlperf),
)
"""Of sources beside timm: whether a file is of the source, and what reads its rows."""


@dataclass(frozen=True)
class BuiltModel:
    """The model that a source's name means. name: in the words of --models; empty: there is none."""

    name: str
    family: str = ""


def read_sources(folder: Path) -> list[PublishedStep]:
    """The rows of every table below a folder. Raises ValueError where there is none, or one cannot be read."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and is_timm(path.name))
    if not files:
        raise ValueError(f"expected tables such as benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv below {folder}")
    found = [row for path in files for row in read_timm(path)]
    for belongs, read in OTHER_READERS:
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and belongs(path)):
            found += read(path)
    return found


def built_models(names: Iterable[str]) -> dict[str, BuiltModel]:
    """The model of each name that timm prints, renamed ones by timm's own table. Raises Unavailable without timm."""
    from workloads.catalogue import require

    require("timm")
    import timm
    from timm.models import _registry as registry

    found = {}
    for name in names:
        target = str(registry._deprecated_models.get(name, name))
        if not timm.is_model(target.partition(".")[0]):
            target = ""
        plain = target.partition(".")[0]
        if target != plain and _classes(target) in (None, _classes(plain)):
            target = plain  # a tag names published weights: the same model
        module = registry._model_to_module.get(target.partition(".")[0], "")
        found[name] = BuiltModel(f"timm:{target}" if target else "", module)
    return found


def _classes(name: str) -> int | None:
    """How many classes timm builds a model with; None for a tag that it no longer has."""
    import timm

    try:
        found: int | None = getattr(timm.get_pretrained_cfg(name), "num_classes", None)
    except RuntimeError:
        return None
    return found


def name_of(row: PublishedStep) -> str:
    """The name of timm that a row means: what its reader knows, else what is printed."""
    return row.counted_model.removeprefix("timm:") or row.model


TIMED = ("forward", "backward")
"""Phases of a training step of a text that a source timed: NeuSight times no loss and has no optimizer."""


def key_of(row: PublishedStep, built: BuiltModel) -> CostKey | None:
    """Which cost a row needs; None for a row without one."""
    if row.status != "ok" or not built.name:
        return None
    if row.sequence_length is not None:
        timed = TIMED if row.mode == "train" else ()
        return CostKey(built.name, None, row.mode, row.sequence_length, row.precision, timed)
    return None if row.image_size is None else CostKey(built.name, row.image_size, row.mode)


def model_of(row: PublishedStep, built: Mapping[str, BuiltModel]) -> BuiltModel:
    """What a row's name means: what its reader says where that is none of timm's, else the model that timm has."""
    if row.counted_model and not row.counted_model.startswith("timm:"):
        return BuiltModel(row.counted_model, row.family)
    return built[name_of(row)]


def with_costs(rows: Sequence[PublishedStep], built: Mapping[str, BuiltModel], folder: Path) -> Iterator[PublishedStep]:
    """The rows with what the folder of costs has for them; what cannot be used has a status and a reason."""
    costs: dict[CostKey, ModelCost | None] = {}
    at_batch: dict[tuple[CostKey, int], StepCost | str] = {}
    for row in rows:
        model = model_of(row, built)
        key = key_of(row, model)
        row = replace(row, counted_model=model.name, family=model.family)
        if key is None:
            no_model = replace(row, status="no_model", reason="the installed timm has no model of this name")
            yield row if row.status != "ok" else no_model
            continue
        if key not in costs:
            costs[key] = read_cost(key, folder)
        yield _with_cost(row, key, costs[key], at_batch)


def _with_cost(
    row: PublishedStep, key: CostKey, found: ModelCost | None, at_batch: dict[tuple[CostKey, int], StepCost | str]
) -> PublishedStep:
    if found is None:
        return replace(row, status="not_counted", reason="the model was not counted")
    row = replace(row, parameters=found.parameters)
    if found.cost is None:
        return replace(row, status="not_counted", reason=found.reason)
    if reason := _other_model(row):
        return replace(row, status="other_model", reason=reason)
    if row.batch_size is None:
        return _by_rate(row, found.cost)
    place = (key, row.batch_size)
    if place not in at_batch:
        at_batch[place] = _cost_at(found.cost, row.batch_size)
    cost = at_batch[place]
    if isinstance(cost, str):
        return replace(row, status="not_counted", reason=cost)
    if reason := _other_count(row, cost.model_flop):
        return replace(row, status="other_model", reason=reason)
    row = replace(row, model_flop=cost.model_flop)
    return _bounded(row, cost, found.is_bounded) if row.precision else row


def _by_rate(row: PublishedStep, cost: BatchCost) -> PublishedStep:
    """The utilization of a row without a batch, where the FLOP of a step are proportional to it."""
    device, per_item = lookup(row.device), cost.low.model_flop / cost.low_batch
    if cost.high.model_flop != per_item * cost.high_batch:
        return replace(row, status="not_counted", reason="its FLOP are not proportional to the batch, which is unknown")
    if device is None:
        return replace(row, reason="no datasheet peak of this device")
    if _may_be_tf32(row, device.peaks):
        return replace(row, reason=TF32_OR_NOT)
    try:
        peak = step_bound(_in_units(cost.low, row), device.peaks, device.bandwidth_bytes_per_s).peak_flop_per_s
    except Unavailable as fault:
        return replace(row, reason=str(fault))
    assert row.items_per_s is not None
    used = rounded(per_item * row.items_per_s / peak)
    return replace(row, peak_flop_per_s=rounded(peak), utilization_ratio=used)


TF32_OR_NOT = "the source does not say whether TF32 was on: no peak"

SAYS_TF32 = frozenset({"NVIDIA examples", "NeuSight"})
"""Sources whose fp32 is none of TF32."""


def _may_be_tf32(row: PublishedStep, peaks: Mapping[str, float]) -> bool:
    return row.precision == "fp32" and "tf32" in peaks and row.source not in SAYS_TF32


def _in_units(cost: StepCost, row: PublishedStep) -> StepCost:
    """The cost with the units that ran, instead of those of the trace."""
    instead = SAME_UNIT.get(row.precision, {})
    return replace(cost, units=tuple(instead.get(unit, unit) for unit in cost.units))


def _cost_at(cost: BatchCost, batch_size: int) -> StepCost | str:
    try:
        return cost.at(batch_size)
    except Inconsistent as fault:
        return str(fault)


def _other_model(row: PublishedStep) -> str:
    """Why the model that was built is not the one that was measured; empty where it is, as far as parameters tell."""
    if row.published_parameters is None or row.parameters is None:
        return ""
    if abs(row.parameters - row.published_parameters) <= PARAMETERS_TOLERANCE:
        return ""
    return (
        f"{row.published_parameters / 1e6:.2f} M parameters were published; "
        f"{row.counted_model} has {row.parameters / 1e6:.2f} M"
    )


def _other_count(row: PublishedStep, model_flop: int) -> str:
    """The same by the multiply-adds of an inference step."""
    if row.published_mac is None or row.mode != "infer" or row.batch_size is None:
        return ""
    ratio = model_flop / 2 / row.batch_size / row.published_mac
    low, high = MAC_RATIOS
    if low <= ratio <= high or row.published_mac < 0.1e9:  # printed in thousand millions with two decimals
        return ""
    return f"the source counted {row.published_mac / 1e9:g} G multiply-adds an image, we {ratio:.3g} times as many"


def _bounded(row: PublishedStep, cost: StepCost, is_bounded: bool) -> PublishedStep:
    """The row with utilization and bound; a device or precision without them leaves them empty, with the reason."""
    device = lookup(row.device)
    if device is None:
        return replace(row, reason="no datasheet peak of this device")
    try:
        bound = step_bound(_in_units(cost, row), device.peaks, device.bandwidth_bytes_per_s)
    except Unavailable as fault:
        return replace(row, reason=str(fault))
    step_s = row.step_time_s
    assert step_s is not None
    if _may_be_tf32(row, device.peaks):
        return replace(row, reason=TF32_OR_NOT)
    row = replace(
        row,
        peak_flop_per_s=rounded(bound.peak_flop_per_s),
        utilization_ratio=rounded(bound.model_flop / bound.peak_flop_per_s / step_s),
    )
    if not row.precision.startswith("amp-") and row.sequence_length is None:
        return replace(row, reason=f"no bound of a model in {row.precision} throughout: its bytes were not counted")
    if row.sequence_length is not None and row.compiled:
        return replace(row, reason="no bound: torch.compile may run the parts of attention as one kernel")
    if not is_bounded:
        return replace(row, reason="no bound: attention in parts, which CUDA may run as one kernel")
    return replace(
        row,
        bound_time_s=rounded(bound.bound_time_s),
        attainable_ratio=rounded(bound.attainable_ratio),
        unfused_time_s=rounded(bound.unfused_time_s),
        achieved_over_bound_ratio=rounded(bound.bound_time_s / step_s),
    )


def with_amounts(keys: Iterable[CostKey], folder: Path) -> Iterator[tuple[StepKey, Mapping[str, StepAmounts]]]:
    """The amounts of each step that the folder has and that is the same at both batches."""
    for key in sorted(set(keys), key=lambda key: (key.model, key.image_size or 0, key.mode)):
        if not kept_amounts.are_kept(key, folder):
            kept_amounts.keep(key, folder)
        if (found := kept_amounts.read(key, folder)) is not None:
            yield StepKey(key.model, key.image_size or 0, key.mode), found


def rounded(number: float) -> float:
    """A derived number as it is kept."""
    return float(f"{number:.{DIGITS}g}")
