"""What the operations of a step amount to, by class: how many, how many FLOP, how many bytes, at any batch.

A class is a kind of operation whose time follows one pair of rates: products by how they are computed (dense, grouped
or depthwise convolution, matrix product, attention), by pass and by their narrowest side; all else by kind. Eager, each
operation is a launch of its own; compiled, each group of ideal fusion (`analysis.profile.fusion`) is, with the class of
the product that it has.

Amounts are constant + slope × batch, from two batches. The narrowest side is the smallest size of the product that
does not depend on the batch. Not claimed: that a compiler fuses so, or which kernel runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.operators.registry import PRODUCTS
from analysis.profile.roofline import groups
from results.errors import Inconsistent
from results.records.answers import StepOperation

COSTLY = frozenset({"batch normalization", "layer normalization", "softmax", "reduction", "pooling", "copy"})
"""Classes that a fused pass is named after."""

EAGER, COMPILED = "eager", "compiled"

WIDTHS = (16, 32, 64, 128, 256)
"""Upper ends of the classes of the narrowest side; beyond the last: one more."""

DENSE, GROUPED, DEPTHWISE, TRANSPOSED = "convolution", "grouped convolution", "depthwise convolution", "deconvolution"

POINTWISE = ("elementwise", "random", "loss")
"""Kinds that are one class: a pass over memory."""

RECTIFIERS = ("relu", "threshold", "hardtanh")
"""Parts of the names of activations that only compare; the others calculate exponentials."""

OPTIMIZER, CAST, FUSED = "optimizer", "cast", "fused"

BACKWARD = " backward"


@dataclass(frozen=True)
class Amounts:
    """Amounts of one class: launches, and FLOP and bytes as (constant, slope by item of the batch)."""

    launches: int
    flop: tuple[float, float]
    nbytes: tuple[float, float]

    def at(self, batch_size: float) -> tuple[int, float, float]:
        """(launches, FLOP, bytes) at a batch."""
        flop, nbytes = self.flop, self.nbytes
        return self.launches, flop[0] + flop[1] * batch_size, nbytes[0] + nbytes[1] * batch_size


StepAmounts = Mapping[str, Amounts]
"""Class → amounts of a step."""

Step = Sequence[StepOperation]


def amounts(low: Step, low_batch: int, high: Step, high_batch: int) -> dict[str, StepAmounts]:
    """EAGER and COMPILED → class → amounts, from the operations of a step at two batches.

    Raises Inconsistent where the step has other operations at the other batch.
    """
    if [each.name for each in low] != [each.name for each in high]:
        raise Inconsistent(f"expected the same operations at batches {low_batch} and {high_batch}")
    classes = [class_of(*pair) for pair in zip(low, high, strict=True)]
    found: dict[str, StepAmounts] = {}
    for how, parts in ((EAGER, _eager), (COMPILED, _compiled)):
        at_low, at_high = list(parts(low, classes)), list(parts(high, classes))
        if [each[0] for each in at_low] != [each[0] for each in at_high]:
            raise Inconsistent(f"expected the same groups at batches {low_batch} and {high_batch}")
        found[how] = _lines(at_low, low_batch, at_high, high_batch)
    return found


Part = tuple[str, float, float]
"""One launch: its class, FLOP and bytes."""


def _eager(step: Step, classes: Sequence[str]) -> Iterator[Part]:
    for operation, name in zip(step, classes, strict=True):
        if name:
            yield name, float(operation.model_flop or 0), float(operation.read_bytes + operation.written_bytes)


def _compiled(step: Step, classes: Sequence[str]) -> Iterator[Part]:
    """A product is a kernel of a library, with bytes of its own; what fusion puts behind it is one pass more."""
    place = {operation.index: row for row, operation in enumerate(step)}
    for members, nbytes in groups(step):
        rows = [place[index] for index in members if classes[place[index]]]
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
            yield f"{FUSED} {_heaviest(rest, classes)}", 0.0, max(left, 0.0)


def _heaviest(rows: Sequence[int], classes: Sequence[str]) -> str:
    """The class of a fused pass: that of what is costlier than a pass over memory, if it has such an operation."""
    names = {classes[row] for row in rows}
    return min(names & COSTLY, default=OPTIMIZER if OPTIMIZER in names else "pass")


def _lines(low: Sequence[Part], low_batch: int, high: Sequence[Part], high_batch: int) -> dict[str, Amounts]:
    sums: dict[str, Any] = {}
    for (name, *at_low), (_, *at_high) in zip(low, high, strict=True):
        slope = (np.array(at_high) - at_low) / (high_batch - low_batch)
        found = sums.setdefault(name, [0, np.zeros(2), np.zeros(2)])
        found[0] += 1
        found[1] += np.array(at_low) - slope * low_batch
        found[2] += slope
    return {
        name: Amounts(count, (float(constant[0]), float(slope[0])), (float(constant[1]), float(slope[1])))
        for name, (count, constant, slope) in sums.items()
    }


def class_of(low: StepOperation, high: StepOperation) -> str:
    """The class of an operation, from it at two batches; empty for what launches nothing."""
    if low.kind == "view" or not (low.read_bytes or low.written_bytes):
        return ""
    if low.kind == "convolution":
        return _convolution(low)
    if low.kind in PRODUCTS:
        kind = "attention" if low.kind == "attention" else "batched product" if "bmm" in low.name else "product"
        # the smallest size of a product's matrices that does not depend on the batch
        sizes = []
        for one, other in zip(
            (*low.input_shapes, *low.output_shapes), (*high.input_shapes, *high.output_shapes), strict=True
        ):
            if len(one) >= 2:
                sizes += [size for size, again in zip(one[-2:], other[-2:], strict=True) if size == again and size > 1]
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
    """The class of a narrowest side: "≤64", ">256"."""
    for most in WIDTHS:
        if width <= most:
            return f"≤{most}"
    return f">{WIDTHS[-1]}"
