"""Executed lanes of floating-point instructions beside the count by definition, and why they differ.

Of products, executed fused multiply-adds are compared with multiply-adds by definition. Of other operators, lanes of
all arithmetic instructions (a fused one is one here: `a + alpha · b` of torch.add) with `other_flop`.

Not claimed: that a reason of the table `REASONS` is the whole difference. It says what the kinds of instructions show;
what is derived from the numbers is the simplest of a few changes that give exactly these.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from analysis.instructions.convolutions import CONVOLUTIONS, products_of, taps_inside
from analysis.instructions.parts import TILES, CountedProduct, explained, parts_of
from analysis.instructions.sums import executed_additions, lanes_with_sums
from analysis.operators import PRODUCTS, total
from results.records import Operation

T = TypeVar("T")

EQUAL, DIFFERENT, UNEXPLAINED = "equal", "different", "unexplained"

ARITHMETIC = ("fma", "mul", "add", "div", "sqrt", "reciprocal", "min_max", "round")
"""Kinds that are arithmetic; "compare" is a decision, and kernels compare to find NaN and to choose a lane."""

FLOP = {"fma": 2, "mul": 1, "add": 1, "div": 1, "sqrt": 1}
"""Kind → FLOP of a lane in `InstructionComparison.executed_flop`."""

COUNTED = "flop"
"""The kind of what a processor's counters say: FLOP of all kinds together."""

SCALARS = 64
"""Lanes of the interpreter's and the library's own calculations around a kernel, at most; 16 to 48 were seen."""

BLOCK = 256
"""Products of a partial sum in MKL's kernels without fused multiply-adds."""

_POLYNOMIAL = "a transcendental function counts 1 and is executed as a polynomial"
_PARTIAL = "partial sums on the lanes of vectors are added up, and lanes that hold nothing"
_SUMS = "partial sums, four vectors side by side in four levels, are added up"
_LOGIC = "by integer logic on the bits, or by comparisons and a choice of lanes"
_STATISTICS = "mean and variance in one pass over vectors, and scale and shift as one multiply-add"
_GRADIENTS = "gradients of scale and shift are sums over vectors, and factors of a channel are made once"

_UPSAMPLED = "the scale of each axis is calculated once"
_POOLED = "the mean of a window is added to a result of zeros"

AVG_POOL, UPSAMPLING = "aten.avg_pool2d", "aten.upsample_nearest2d"

REASONS: Mapping[str, str] = {
    **dict.fromkeys(("exp", "log", "sin", "cos", "erf", "tanh", "sigmoid", "gelu", "silu", "softplus"), _POLYNOMIAL),
    **dict.fromkeys(("mish", "softmax", "log_softmax", "logsumexp", "cross_entropy"), _POLYNOMIAL),
    **dict.fromkeys(("attention", "attention_causal"), f"in the softmax, {_POLYNOMIAL}"),
    **dict.fromkeys(("sum", "mean", "sum_rows", "sum_columns", "dot", "norm", "adaptive_avg_pool2d"), _PARTIAL),
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "nll_loss", "var", "rms_norm"), _PARTIAL),
    **dict.fromkeys(("neg", "abs", "elu", "celu", "leaky_relu", "max_pool2d"), _LOGIC),
    **dict.fromkeys(("layer_norm", "group_norm", "batch_norm_infer", "batch_norm_train"), _STATISTICS),
    **dict.fromkeys(("sgd", "sgd_momentum"), "a multiplication and an addition are one fused multiply-add"),
    **dict.fromkeys(("adam", "adamw"), "square roots by an approximation and Newton steps; fused multiply-adds"),
    "sqrt": "an approximation of 1/sqrt and Newton steps",
    "rsqrt": "a square root and a division",
    "lerp": "a fused multiply-add, and both forms of the formula, of which each lane takes one",
    "addcdiv": "alpha is a factor of its own",
    "amax": "one fewer: n values have n - 1 maxima",
    "avg_pool2d": _POOLED,
    "upsample_nearest": _UPSAMPLED,
    **dict.fromkeys(
        ("attention.backward", "attention_causal.backward"),
        f"scores are computed again, and in the softmax {_POLYNOMIAL}",
    ),
    **dict.fromkeys(("log_softmax_backward_data", "softmax_backward_data", "gelu_backward"), _POLYNOMIAL),
    "nll_loss_forward": _PARTIAL,
    **dict.fromkeys(("nll_loss_backward", "max_pool2d_with_indices", "threshold_backward"), _LOGIC),
    **dict.fromkeys(("native_batch_norm", "native_layer_norm", "native_group_norm"), _STATISTICS),
    **dict.fromkeys(("native_batch_norm_backward", "native_layer_norm_backward"), _GRADIENTS),
    "bernoulli": "random numbers are made, which is no operation by definition",
    "adaptive_avg_pool2d_backward": "a gradient is divided by height and width, one after the other",
    "hardswish": "minimum and maximum count as comparisons by definition",
}  # fmt: skip
"""Operator → what the kinds of its instructions show, where the numbers differ and no rule is known. No count checks
it: any other number of lanes has the reason, too."""


@dataclass(frozen=True)
class InstructionComparison:
    """One operator. multiply_adds, other_flop: by definition. executed: kind → lanes. is_tabled: whether the
    reason is that of the table, which no count checks."""

    name: str
    multiply_adds: int
    other_flop: int
    executed: Mapping[str, int]
    verdict: str
    reason: str = ""
    is_tabled: bool = False

    @property
    def executed_flop(self) -> int:
        """FLOP of all lanes; a fused multiply-add is 2. What a counter said, where it was one (`COUNTED`)."""
        own = sum(FLOP.get(kind, 0) * lanes for kind, lanes in self.executed.items())
        return self.executed.get(COUNTED, own)

    @property
    def lanes(self) -> int:
        """Of arithmetic instructions; a fused one is one."""
        return sum(self.executed.get(kind, 0) for kind in ARITHMETIC)


def compare(
    name: str,
    multiply_adds: int,
    other_flop: int,
    executed: Mapping[str, int],
    sizes: tuple[int, ...] = (),
    parts: tuple[CountedProduct, ...] = (),
    calls: Sequence[Operation] = (),
) -> InstructionComparison:
    """sizes: of the output's dimensions, any of which a kernel may round up to whole vectors. parts: each product.
    calls: what it is by definition.

    The verdict is "equal", "different" with a reason, or "unexplained".
    """
    if "failed" in executed:
        return InstructionComparison(
            name, multiply_adds, other_flop, executed, UNEXPLAINED, "the operator was not counted"
        )
    if COUNTED in executed:
        verdict, reason = _of_flop(2 * multiply_adds + other_flop, executed[COUNTED], sizes)
    elif multiply_adds:
        verdict, reason = _of_products(multiply_adds, executed, sizes)
        if verdict == UNEXPLAINED:
            verdict, reason = _of_kernels(multiply_adds, executed, parts, calls)
    else:
        verdict, reason = _of_lanes(other_flop, executed, calls)
    known = REASONS.get(name) or REASONS.get(name.removeprefix("aten.").strip("_"), "")
    is_tabled = verdict == UNEXPLAINED and bool(known) and (COUNTED in executed or not _has_rule(calls))
    if is_tabled:
        verdict, reason = DIFFERENT, known
    return InstructionComparison(name, multiply_adds, other_flop, executed, verdict, reason, is_tabled)


def compare_operations(
    name: str, executed: Mapping[str, int], operations: Sequence[Operation]
) -> InstructionComparison:
    """An operator as it was executed in one piece. operations: the calls that it is by definition."""
    cost = total(operations)
    products = [each for each in operations if each.kind in PRODUCTS]
    sizes = tuple(products[0].output_shapes[0]) if len(products) == 1 else ()
    known = sizes if math.prod(sizes) else ()
    return compare(name, cost.model_flop // 2, cost.other_flop, executed, known, parts_of(products), operations)


def _of_lanes(other_flop: int, executed: Mapping[str, int], calls: Sequence[Operation]) -> tuple[str, str]:
    """Of calls without a product."""
    lanes = sum(executed.get(kind, 0) for kind in ARITHMETIC)
    if lanes == other_flop:
        return EQUAL, ""
    if lanes == lanes_with_sums(calls):
        return DIFFERENT, _SUMS
    more = _more_lanes(calls)
    return (DIFFERENT, more[1]) if more and lanes - other_flop in more[0] else (UNEXPLAINED, "")


def _has_rule(calls: Sequence[Operation]) -> bool:
    """Whether the lanes of these calls follow a rule, so that no reason of the table is needed."""
    sums = [executed_additions(each) is not None for each in calls]
    return _more_lanes(calls) is not None or (bool(sums) and all(sums))


def _more_lanes(calls: Sequence[Operation]) -> tuple[range, str] | None:
    """How many lanes more than are defined one pool or upsampling executes, and why; None for other calls."""
    if len(calls) != 1:
        return None
    (call,) = calls
    if call.name == UPSAMPLING:
        return range(1, SCALARS + 1), _UPSAMPLED
    if call.name == AVG_POOL and not any(call.attributes.get("padding") or ()):
        results = math.prod(call.output_shapes[0])
        return range(results, results + 1), _POOLED
    return None


def _of_kernels(
    multiply_adds: int, executed: Mapping[str, int], parts: Sequence[CountedProduct], calls: Sequence[Operation]
) -> tuple[str, str]:
    """By what is known of a convolution's kernels, and of the products one by one."""
    convolutions = [each for each in calls if each.name in CONVOLUTIONS]
    if len(convolutions) == 1 and (reason := _of_convolution(multiply_adds, executed, convolutions[0])):
        return DIFFERENT, reason
    found = explained(parts, executed) if parts else None
    return (UNEXPLAINED, "") if found is None else (EQUAL if found[0] else DIFFERENT, found[1])


def _of_flop(flop: int, executed: int, sizes: tuple[int, ...]) -> tuple[str, str]:
    """Of a counter's total."""
    if executed == flop:
        return EQUAL, ""
    padded = _padded(flop, executed, sizes)
    return (DIFFERENT, padded) if padded else (UNEXPLAINED, "")


def _padded(defined: int, executed: int, sizes: tuple[int, ...]) -> str:
    """Which of the sizes was rounded up to whole vectors, if that is the difference."""
    for size in sizes:
        for tile in TILES:
            whole = -(-size // tile) * tile
            if whole > size and executed * size == defined * whole:
                return f"padding of vectors: {size} is executed as {whole}"
    return ""


def _of_products(multiply_adds: int, executed: Mapping[str, int], sizes: tuple[int, ...]) -> tuple[str, str]:
    fused = executed.get("fma", 0)
    if fused == multiply_adds:
        return EQUAL, ""
    if padded := _padded(multiply_adds, fused, sizes):
        return DIFFERENT, padded
    first = multiply_adds - fused
    outputs = math.prod(sizes)
    if sizes and first in (outputs, 2 * outputs) and first <= executed.get("mul", 0):
        return (
            EQUAL,
            f"with {first:,} products that begin a sum, {first // outputs} a result, as multiplications",
        )
    if not fused and sizes and (reason := _separate(multiply_adds, executed, sizes)):
        return DIFFERENT, reason
    return UNEXPLAINED, ""


def _separate(multiply_adds: int, executed: Mapping[str, int], sizes: tuple[int, ...]) -> str:
    """Whether products and sums are instructions of their own; each partial sum of BLOCK products may be scaled by one
    more, and a size may be rounded up to whole vectors, too."""
    outputs, found = math.prod(sizes), executed.get("mul", 0)
    scalings = outputs * -(-multiply_adds // (outputs * BLOCK))
    widths = [(1, 1), *((size, -(-size // tile) * tile) for size in sizes for tile in TILES)]
    for size, whole in widths:
        products = multiply_adds * whole // size
        if found - products in (0, scalings * whole // size) and products <= executed.get("add", 0):
            scaled = ", their partial sums are scaled" if found > products else ""
            padded = f", and padding of vectors: {size} is executed as {whole}" if whole > size else ""
            return f"products are multiplications and additions of their own{scaled}{padded}"
    return ""


def compare_calls(
    calls: Sequence[tuple[str, Mapping[str, int]]], operations: Sequence[Operation]
) -> list[InstructionComparison]:
    """A row for each ATen operator of a step that does arithmetic, by definition or as executed; products first.

    calls: (operator, kind → lanes) of each call as it was executed, in order; operations: the same step's by
    definition, in order. Calls of one operator are compared one by one; where their numbers differ, their sums are.
    """
    executed, defined = _by_name(calls), _by_name((each.name, each) for each in operations)
    rows = [_of_operator(name, executed.get(name, []), defined.get(name, [])) for name in {**defined, **executed}]
    kept = [row for row in rows if row.multiply_adds or row.other_flop or row.lanes]
    return sorted(kept, key=lambda row: (not row.multiply_adds, -row.multiply_adds, -row.lanes, row.name))


def _by_name(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def _of_operator(
    name: str, executed: Sequence[Mapping[str, int]], operations: Sequence[Operation]
) -> InstructionComparison:
    cost = total(operations)
    lanes: Counter[str] = Counter()
    for each in executed:
        lanes.update(each)
    row = InstructionComparison(name, cost.model_flop // 2, cost.other_flop, dict(lanes), UNEXPLAINED)
    if len(executed) != len(operations):
        return replace(row, reason=f"{len(executed)} calls were executed, {len(operations)} are in the step's table")
    pairs = zip(executed, operations, strict=True)
    found = [_of_call(name, counts, operation) for counts, operation in pairs]
    verdicts = Counter(each.verdict for each in found)
    reasons = "; ".join(dict.fromkeys(each.reason.partition(":")[0] for each in found if each.reason))
    if verdicts[UNEXPLAINED]:
        return replace(
            row, reason=f"{verdicts[UNEXPLAINED]} of {len(found)} calls" + (reasons and f"; others: {reasons}")
        )
    is_tabled = any(each.is_tabled for each in found)
    return replace(row, verdict=DIFFERENT if verdicts[DIFFERENT] else EQUAL, reason=reasons, is_tabled=is_tabled)


def _of_call(name: str, counts: Mapping[str, int], operation: Operation) -> InstructionComparison:
    cost = total([operation])
    sizes = tuple(operation.output_shapes[0]) if operation.output_shapes else ()
    parts = parts_of([operation]) if operation.kind in PRODUCTS else ()
    return compare(name, cost.model_flop // 2, cost.other_flop, counts, sizes, parts, [operation])


def _of_convolution(multiply_adds: int, executed: Mapping[str, int], operation: Operation) -> str:
    """Why a convolution, or its backward pass, executes other products than are defined; "" where that is not known."""
    taps, fused = taps_inside(operation), executed.get("fma", 0)
    if not taps:
        return ""
    if fused == taps * products_of(operation):
        return "taps on the padding are not executed"
    if operation.name == CONVOLUTIONS[0]:
        places = math.prod(operation.output_shapes[0][2:])  # of an unfolded image, whose places are one dimension
        return _padded(multiply_adds, fused, (places,))
    return _of_unfolded_images(multiply_adds, executed, operation, taps)


def _of_unfolded_images(multiply_adds: int, executed: Mapping[str, int], operation: Operation, taps: int) -> str:
    """Whether the weight's gradient is, for each image, a matrix product with all its taps, which is scaled, and the
    image's gradient has no tap on the padding."""
    by_name = dict(zip(operation.input_names, operation.input_shapes, strict=True))
    image, weight, products = by_name["input"], by_name["weight"], products_of(operation)
    first = multiply_adds // products + taps * (products - 1) - executed.get("fma", 0)
    scalars = executed.get("mul", 0) - first - image[0] * math.prod(weight)
    if operation.attributes["output_mask"][1] and first >= 0 and 0 <= scalars <= SCALARS:
        return "the weight's gradient is a product of unfolded images, padding among them, and is scaled for each image"
    return ""
