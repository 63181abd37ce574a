"""Models a step's time as a sum over classes of operations, with the fitted factors of factors.json.

    step time = Σ class  factor × FLOP ÷ peak  +  Σ kind  factor × bytes ÷ bandwidth  +  cost of a launch × launches

`amounts` takes a step's operations at two batch sizes and returns FLOP, bytes (constant + slope × batch) and launches
by class. `parts_of` takes terms, their factors and their times at datasheet rates, and returns the parts of the sum.
Products are classed by type, pass and the smallest matrix dimension that is independent of batch size, others by kind
and pass. In eager mode each operation is a launch. Compiled, each product is a launch, and so is the rest of each group
of an ideal fusion. The factors of a measured setting are shrunk towards those of its *pool* (mode, layout, eager or
compiled). An unmeasured device gets the pool's factors.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.devices.peaks import Device
from analysis.devices.precisions import PRECISIONS
from analysis.operators.registry import PRODUCTS
from analysis.roofline import groups
from results.errors import Inconsistent, Unavailable
from results.records.answers import StepOperation

COSTLY = frozenset({"batch normalization", "layer normalization", "softmax", "reduction", "pooling", "copy"})
"""Classes that cost more than moving their bytes. A fused pass that contains one of these classes is named after it."""

EAGER, COMPILED = "eager", "compiled"

WIDTHS = (16, 32, 64, 128, 256)
"""Upper ends of the classes of a product's smallest matrix dimension. One more class lies above the last."""

DENSE, GROUPED, DEPTHWISE, TRANSPOSED = "convolution", "grouped convolution", "depthwise convolution", "deconvolution"

POINTWISE = ("elementwise", "random", "loss")
"""Kinds that form one class: a pass over memory."""

RECTIFIERS = ("relu", "threshold", "hardtanh")
"""Name parts of activations that only compare; other activations compute exponentials."""

OPTIMIZER, CAST, FUSED = "optimizer", "cast", "fused"

BACKWARD = " backward"


@dataclass(frozen=True)
class Amounts:
    """Amounts of one class: launches, and FLOP and bytes as (constant, slope per item of the batch)."""

    launches: int
    flop: tuple[float, float]
    nbytes: tuple[float, float]

    def for_batch(self, batch_size: float) -> tuple[int, float, float]:
        """Return (launches, FLOP, bytes) at a batch size."""
        flop, nbytes = self.flop, self.nbytes
        return self.launches, flop[0] + flop[1] * batch_size, nbytes[0] + nbytes[1] * batch_size


StepAmounts = Mapping[str, Amounts]
"""Class → amounts of a step."""

Step = Sequence[StepOperation]


def amounts(low: Step, low_batch: int, high: Step, high_batch: int) -> dict[str, StepAmounts]:
    """Return EAGER and COMPILED → class → amounts, from a step's operations at two batch sizes.

    Raises Inconsistent where the operations or their groups differ between the batch sizes.
    """
    if [operation.name for operation in low] != [operation.name for operation in high]:
        raise Inconsistent(f"expected the same operations at batches {low_batch} and {high_batch}")
    classes = [class_of(*pair) for pair in zip(low, high, strict=True)]
    by_run: dict[str, StepAmounts] = {}
    for how, parts in ((EAGER, _eager), (COMPILED, _compiled)):
        low_parts, high_parts = list(parts(low, classes)), list(parts(high, classes))
        if [name for name, _, _ in low_parts] != [name for name, _, _ in high_parts]:
            raise Inconsistent(f"expected the same groups at batches {low_batch} and {high_batch}")
        by_run[how] = _lines(low_parts, low_batch, high_parts, high_batch)
    return by_run


Part = tuple[str, float, float]
"""One launch: its class, FLOP and bytes."""


def _eager(step: Step, classes: Sequence[str]) -> Iterator[Part]:
    for operation, name in zip(step, classes, strict=True):
        if name:
            yield name, float(operation.model_flop or 0), float(operation.read_bytes + operation.written_bytes)


def _compiled(step: Step, classes: Sequence[str]) -> Iterator[Part]:
    """Yield a compiled step's launches. A product is a library's kernel, with all its bytes. The operations fused after
    it are one more launch."""
    row_of = {operation.index: row for row, operation in enumerate(step)}
    for members, nbytes in groups(step):
        rows = [row_of[index] for index in members if classes[row_of[index]]]
        if not rows:
            continue
        products = [row for row in rows if step[row].kind in PRODUCTS]
        rest = [row for row in rows if step[row].kind not in PRODUCTS]
        left = float(nbytes)
        for row in products:
            own = step[row]
            yield classes[row], float(own.model_flop or 0), float(own.read_bytes + own.written_bytes)
            left += own.written_bytes - own.read_bytes
        if rest:
            names = {classes[row] for row in rest}  # one that costs more than its bytes names the launch
            heaviest = min(names & COSTLY, default=OPTIMIZER if OPTIMIZER in names else "pass")
            yield f"{FUSED} {heaviest}", 0.0, max(left, 0.0)


def _lines(low: Sequence[Part], low_batch: int, high: Sequence[Part], high_batch: int) -> dict[str, Amounts]:
    sums: dict[str, Any] = {}
    for (name, *low_values), (_, *high_values) in zip(low, high, strict=True):
        slope = (np.array(high_values) - low_values) / (high_batch - low_batch)
        sums_of = sums.setdefault(name, [0, np.zeros(2), np.zeros(2)])
        sums_of[0] += 1
        sums_of[1] += np.array(low_values) - slope * low_batch
        sums_of[2] += slope
    return {
        name: Amounts(count, (float(constant[0]), float(slope[0])), (float(constant[1]), float(slope[1])))
        for name, (count, constant, slope) in sums.items()
    }


def class_of(low: StepOperation, high: StepOperation) -> str:
    """Return the class of an operation, given at two batch sizes; empty for one that launches nothing."""
    if low.kind == "view" or not (low.read_bytes or low.written_bytes):
        return ""
    if low.kind == "convolution":
        return _convolution(low)
    if low.kind in PRODUCTS:
        kind = "attention" if low.kind == "attention" else "batched product" if "bmm" in low.name else "product"
        # the smallest size of a product's matrices that does not depend on the batch
        sizes = []
        for low_shape, other in zip(
            (*low.input_shapes, *low.output_shapes), (*high.input_shapes, *high.output_shapes), strict=True
        ):
            if len(low_shape) >= 2:
                sizes += [
                    size for size, again in zip(low_shape[-2:], other[-2:], strict=True) if size == again and size > 1
                ]
        return f"{kind}{_pass(low.phase)} {width_class(min(sizes, default=1))}"
    if low.phase == OPTIMIZER:
        return OPTIMIZER
    kind = "pointwise" if low.kind in POINTWISE else low.kind
    if low.name == "aten._to_copy":
        kind = CAST
    if low.kind == "activation" and any(word in low.name for word in RECTIFIERS):
        kind = "rectifier"
    if low.kind == "normalization":
        kind = "batch normalization" if "batch_norm" in low.name else "layer normalization"
    return f"{kind}{_pass(low.phase)}"


def _pass(phase: str) -> str:
    return BACKWARD if phase == "backward" else ""


def _convolution(operation: StepOperation) -> str:
    backward = "backward" in operation.name
    shapes = operation.input_shapes[1:3] if backward else operation.input_shapes[:2]
    (_, channels, *_), (outer, inner, *kernel) = shapes
    # a forward weight is (C_out, C_in ÷ groups, …); a transposed one (C_in, C_out ÷ groups, …)
    parts = channels // inner if channels % inner == 0 else 1
    out = operation.output_shapes[0][1] if not backward else operation.input_shapes[0][1]
    if outer != out:
        kind, parts = TRANSPOSED, 1
    elif parts > 1:
        kind = DEPTHWISE if inner == 1 else GROUPED
    else:
        kind = DENSE
    if kind == DENSE:
        kind = f"{kind} {'1x1' if all(size == 1 for size in kernel) else 'kxk'}"
    if kind == DEPTHWISE:
        return f"{kind}{_pass(operation.phase)}"
    return f"{kind}{_pass(operation.phase)} {width_class(min(inner, outer // parts))}"


def width_class(width: int) -> str:
    """Return the class of a smallest dimension: "≤64", ">256"."""
    return next((f"≤{most}" for most in WIDTHS if width <= most), f">{WIDTHS[-1]}")


FACTORS = Path(__file__).with_name("factors.json")
"""The fit, written by `python -m benchmarks.reach fit`."""

LAUNCH_S = 1e-5
"""Unit of a launch's factor, s."""

ARITHMETIC, MEMORY, LAUNCHES = "arithmetic", "memory", "launches"

Numbers = NDArray[np.float64]


def kind_of_class(name: str) -> str:
    """Return the class without its width: "convolution 1x1 backward ≤64" → "convolution 1x1 backward"."""
    return re.sub(r" [≤>]\d+$", "", name)


@dataclass(frozen=True)
class DatasheetRates:
    """Datasheet rates: FLOP/s of the unit that runs the products, bytes/s of memory."""

    peak_flop_per_s: float
    bytes_per_s: float


def machine_of(device: Device, precision: str) -> DatasheetRates:
    """Return a device's rates in a precision. Raises Unavailable where its datasheet lacks one."""
    unit = PRECISIONS[precision].matmul_unit
    peak, bytes_per_s = device.peaks.get(unit), device.bandwidth_bytes_per_s
    if not peak or not bytes_per_s:
        raise Unavailable(f"no datasheet peak of {unit}, or no bandwidth of memory")
    return DatasheetRates(peak, bytes_per_s)


@dataclass(frozen=True)
class Terms:
    """Terms of the sum, in the order of its factors: (what, class or kind)."""

    names: tuple[tuple[str, str], ...]

    @functools.cached_property
    def index(self) -> Mapping[tuple[str, str], int]:
        return {name: index for index, name in enumerate(self.names)}

    def row(self, step: StepAmounts, batch_size: float, machine: DatasheetRates) -> Numbers:
        """Return each term's time at the datasheet's rates, s: a row of the fit's design matrix, shape (terms,)."""
        times = np.zeros(len(self.names))
        for name, amounts in step.items():
            launches, flop, nbytes = amounts.for_batch(batch_size)
            for term, time_s in (
                ((ARITHMETIC, name), flop / machine.peak_flop_per_s),
                ((MEMORY, kind_of_class(name)), nbytes / machine.bytes_per_s),
                ((LAUNCHES, ""), launches * LAUNCH_S),
            ):
                if (index := self.index.get(term)) is not None:
                    times[index] += time_s
        return times

    def unknown_classes(self, step: StepAmounts) -> list[str]:
        """Return a step's classes that have no term, because nothing like them was measured."""
        return sorted(name for name in step if (MEMORY, kind_of_class(name)) not in self.index)


@dataclass(frozen=True)
class Setting:
    """Conditions under which steps share their factors, in any version of PyTorch. device, precision: empty for a
    pool."""

    mode: str
    layout: str
    compiled: bool
    device: str = ""
    precision: str = ""

    @property
    def pool(self) -> Setting:
        """Return the setting's pool."""
        return Setting(self.mode, self.layout, self.compiled)

    @property
    def text(self) -> str:
        parts = (self.mode, self.layout, "compiled" if self.compiled else "eager")
        return " | ".join((*parts, self.device, self.precision) if self.device else parts)


@dataclass(frozen=True, eq=False)
class TimeModel:
    """A fitted model. terms: by EAGER or COMPILED. factors: by pool, and by setting with its framework, each of shape
    (terms,). newest: `Setting.text` → the key in `factors` with its newest framework. intervals, coverage: of families
    and devices left out of the fit, by group: (low, high, scores) and (coverage, low, high). small: by layout, the
    batch `below` which inference on an unmeasured device may take `high` times the predicted time."""

    terms: Mapping[str, Terms]
    factors: Mapping[str, Numbers]
    newest: Mapping[str, str]
    intervals: Mapping[str, Mapping[str, Sequence[float]]]
    coverage: Mapping[str, Mapping[str, Sequence[float]]]
    small: Mapping[str, Any]

    def factors_of(self, setting: Setting) -> tuple[str, Numbers] | None:
        """Return (what they were fitted on, factors) of a setting, or of its pool for an unmeasured device."""
        texts = (self.newest.get(setting.text, ""), setting.pool.text)
        return next(((text, self.factors[text]) for text in texts if text in self.factors), None)


@functools.cache
def fitted_model() -> TimeModel:
    """Read the fit from FACTORS."""
    content = json.loads(FACTORS.read_text(encoding="utf-8"))
    content["terms"] = {run: Terms(tuple(map(tuple, names))) for run, names in content["terms"].items()}
    content["factors"] = {text: np.array(values, float) for text, values in content["factors"].items()}
    return TimeModel(**content)


@dataclass(frozen=True)
class TimePart:
    """A term's part of a step's time. factor: time_s ÷ the term's time at the datasheet's rates."""

    what: str
    name: str
    time_s: float
    factor: float


def parts_of(terms: Terms, factors: Numbers, row: Numbers) -> list[TimePart]:
    """Return the parts of a step's time, the longest first."""
    times = factors * row
    return [
        TimePart(what, name, float(times[index]), float(factors[index]))
        for index in np.argsort(-times, kind="stable")
        if times[index] > 0
        for what, name in (terms.names[index],)
    ]
