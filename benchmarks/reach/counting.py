"""Published steps with the cost of the model that they name: how many FLOP, how fast at best, and amounts by class.

Each model is built and traced on fake tensors at two batches, from which its cost at any batch follows. It has to have
as many parameters as the source prints, and multiply-adds as the source counts, or its rows are left out. Peaks are the
datasheet's dense ones of the device that the source names.
"""

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from analysis.devices.peaks import lookup
from analysis.footprint.largest_batch import SMALL_BATCHES
from analysis.reach.bound import IN_PARTS, StepCost, step_bound, step_cost
from analysis.reach.step_time import Amounts, StepAmounts, amounts
from benchmarks.reach.sources import Row
from results.errors import Inconsistent, Unavailable, one_line
from results.process import collector_off
from runners.reach import operations_of, trace_forward
from runners.workers.traced_step import StepOptions, trace_batch

TRACED = "amp-bf16"
"""The precision of every trace: amp-fp16 has the same sizes, and the measurements had no scaler."""

SAME_UNIT = {"amp-fp16": {"bf16": "fp16"}, "fp32": {"bf16": "fp32"}, "tf32": {"bf16": "tf32"}}
"""Precision → units of the trace, and those that ran instead."""

PARAMETERS_TOLERANCE = 0.0051e6
"""The source prints millions with two decimals."""

MAC_RATIOS = (0.8, 1.25)
"""Our multiply-adds of the forward pass ÷ the source's. Its counters leave small products out, or add other operations;
beyond these it counted another model or another image size."""

FEWEST_MAC = 0.1e9
"""Below it the source's count, thousand millions with two decimals, says too little."""

AMOUNTS = ("group_flop", "group_bytes", "operation_flop", "operation_bytes", "recomputed_flop")


class StepKey(NamedTuple):
    """Which step: a model in the words of --models, square images of this size, "train" or "infer"."""

    model: str
    image_size: int
    mode: str


@dataclass(frozen=True, eq=False)
class BatchCost:
    """The cost of a step at any batch, from two batches at which the model runs the same operations.

    FLOP and bytes of each group are constant + slope × batch, which is exact where the sizes of all tensors are.
    """

    low: StepCost
    high: StepCost

    def __post_init__(self) -> None:
        shapes = [(cost.units, cost.group_flop.shape, cost.operation_flop.shape) for cost in (self.low, self.high)]
        if shapes[0] != shapes[1]:
            raise Inconsistent(
                f"expected the same operations at batches {SMALL_BATCHES[0]} and {SMALL_BATCHES[1]}, in the same groups"
            )

    def at(self, batch_size: int) -> StepCost:
        """The cost at a batch. Raises Inconsistent where it would not be a whole number, or less than nothing."""
        return StepCost(self.low.units, *(self._line(name, batch_size) for name in AMOUNTS))

    def _line(self, name: str, batch_size: int) -> Any:
        low, high = getattr(self.low, name), getattr(self.high, name)
        slope, rest = np.divmod(high - low, SMALL_BATCHES[1] - SMALL_BATCHES[0])
        line = low + slope * (batch_size - SMALL_BATCHES[0])
        if rest.any() or (line < 0).any():
            raise Inconsistent(f"{name} of the step is not proportional to the batch")
        return line


def with_costs(
    rows: Sequence[Row], processes: int
) -> tuple[list[Row], dict[StepKey, Mapping[str, StepAmounts]], Counter[str]]:
    """The rows that have a utilization, in their order; the amounts of their steps by way of running; and why rows were
    left out. Prints how many steps are counted."""
    models = built_models({row["counted_model"] for row in rows})
    by_key: dict[StepKey, list[tuple[int, Row]]] = defaultdict(list)
    for index, row in enumerate(rows):
        model, family = models[row["counted_model"]]
        row |= {"counted_model": model, "family": family}
        by_key[StepKey(model, row["image_size"], row["mode"])].append((index, row))
    counted: dict[int, Row] = {}
    steps: dict[StepKey, Mapping[str, StepAmounts]] = {}
    reasons: Counter[str] = Counter()
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        running = {pool.submit(count, key, [row for _, row in of_key]): key for key, of_key in by_key.items()}
        for done, future in enumerate(as_completed(running), 1):
            key = running[future]
            answers, step = future.result()
            for (index, row), answer in zip(by_key[key], answers, strict=True):
                if isinstance(answer, str):
                    reasons[answer] += 1
                else:
                    counted[index] = row | answer
                    steps |= {key: step} if step else {}
            print(f"\r{done} of {len(running)} steps counted", end="", flush=True)
    return [counted[index] for index in sorted(counted)], dict(sorted(steps.items())), reasons


def built_models(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """(model in the words of --models, family) of each name that timm prints, renamed ones by timm's own table; empty
    where the installed timm has none."""
    import timm
    from timm.models import _registry as registry

    models = {}
    for name in names:
        target = str(registry._deprecated_models.get(name, name))
        plain = target.partition(".")[0]
        if not timm.is_model(plain):
            models[name] = ("", "")
            continue
        if target != plain and _classes(target) in (None, _classes(plain)):
            target = plain  # a tag names published weights: the same model
        models[name] = (f"timm:{target}", registry._model_to_module.get(plain, ""))
    return models


def _classes(name: str) -> int | None:
    """How many classes timm builds a model with; None for a tag that it no longer has."""
    import timm

    try:
        return getattr(timm.get_pretrained_cfg(name), "num_classes", None)
    except RuntimeError:
        return None


def count(key: StepKey, rows: Sequence[Row]) -> tuple[list[Row | str], Mapping[str, StepAmounts] | None]:
    """A worker's task: what is known of each row of a step, or why it is left out; and the step's amounts."""
    import torch

    if not key.model:
        return ["the installed timm has no model of this name"] * len(rows), None
    torch.set_num_threads(1)
    asked = StepOptions(key.model, TRACED, hyper={"image_size": key.image_size})
    try:
        with warnings.catch_warnings(), collector_off():
            warnings.simplefilter("ignore")  # names that timm has renamed
            parameters = _parameters(asked)
            trace = trace_batch if key.mode == "train" else trace_forward
            low, high = (operations_of(asked, trace(asked, batch)) for batch in SMALL_BATCHES)
        cost = BatchCost(step_cost(low), step_cost(high))
        is_bounded = all(operation.name != IN_PARTS for operation in low)
        answers = [_derived(row, parameters, cost, is_bounded) for row in rows]
    except Exception as fault:  # noqa: BLE001  the edge: a model's own code may raise anything
        return [one_line(f"{type(fault).__name__}: {fault}", 80)] * len(rows), None
    try:
        return answers, amounts(low, SMALL_BATCHES[0], high, SMALL_BATCHES[1])
    except Inconsistent:
        return answers, None


def _parameters(asked: StepOptions) -> int:
    import torch

    from runners.workers.any_model import get

    workload = get(asked.model, **asked.hyper)
    with torch.device("meta"):
        model = workload.build(**workload.hyper)
    return sum(parameter.numel() for parameter in model.parameters())


def _derived(row: Row, parameters: int, batch_cost: BatchCost, is_bounded: bool) -> Row | str:
    """Counts, utilization and bound of a row, or why it is left out."""
    published, device, batch_size = row.get("published_parameters"), lookup(row["device"]), row["batch_size"]
    if published and abs(parameters - published) > PARAMETERS_TOLERANCE:
        return "another model, by its parameters"
    if device is None:
        return "no datasheet peak of its device"
    if row["source"] == "Lambda" and row["precision"] == "fp32" and "tf32" in device.peaks:
        return "the source does not say whether TF32 was on"
    try:
        traced = batch_cost.at(batch_size or SMALL_BATCHES[0])
        instead = SAME_UNIT.get(row["precision"], {})
        cost = replace(traced, units=tuple(instead.get(unit, unit) for unit in traced.units))
        bound = step_bound(cost, device.peaks, device.bandwidth_bytes_per_s)
    except (Unavailable, Inconsistent) as fault:
        return str(fault)
    mac = row.get("published_mac") if row["mode"] == "infer" else None
    if mac and mac >= FEWEST_MAC and not (MAC_RATIOS[0] <= bound.model_flop / 2 / batch_size / mac <= MAC_RATIOS[1]):
        return "another model, by its multiply-adds"
    step_time_s = row["step_time_s"] or SMALL_BATCHES[0] / row["items_per_s"]
    has_bound = batch_size and is_bounded and row["precision"].startswith("amp-")
    return {
        "model_flop": bound.model_flop if batch_size else None,
        "peak_flop_per_s": rounded(bound.peak_flop_per_s),
        "utilization_ratio": rounded(bound.model_flop / bound.peak_flop_per_s / step_time_s),
        "bound_time_s": rounded(bound.bound_time_s) if has_bound else None,
    }


def rounded(number: float) -> float:
    """A derived number as it is kept."""
    return float(f"{number:.6g}")


def packed(steps: Mapping[StepKey, Mapping[str, StepAmounts]]) -> list[tuple[Any, ...]]:
    """The rows of the table of amounts, below STEP_COLUMNS."""
    return [
        (*key, run, name, each.launches, *(f"{number:.15g}" for number in (*each.flop, *each.nbytes)))
        for key, runs in steps.items()
        for run, step in sorted(runs.items())
        for name, each in sorted(step.items())
    ]


STEP_COLUMNS = (
    "model", "image_size", "mode", "run", "class", "launches", "flop", "flop_per_item", "bytes", "bytes_per_item",
)  # fmt: skip


def unpacked(rows: Iterable[Sequence[str]]) -> dict[StepKey, dict[str, dict[str, Amounts]]]:
    """Step → run → class → amounts, of the rows of the table of amounts."""
    steps: dict[StepKey, dict[str, dict[str, Amounts]]] = {}
    for model, size, mode, run, name, launches, *numbers in rows:
        flop, flop_per_item, nbytes, bytes_per_item = map(float, numbers)
        step = steps.setdefault(StepKey(model, int(size), mode), {}).setdefault(run, {})
        step[name] = Amounts(int(launches), (flop, flop_per_item), (nbytes, bytes_per_item))
    return steps
