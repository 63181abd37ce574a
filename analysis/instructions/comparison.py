"""Executed lanes of floating-point instructions beside the count by definition, and why they differ.

Of products, executed fused multiply-adds are compared with multiply-adds by definition. Of other operators, lanes of
all arithmetic instructions (a fused one is one here: `a + alpha · b` of torch.add) with `other_flop`.

Not claimed: that a reason of the table `REASONS` is the whole difference. It says what the kinds of instructions show;
only padding of the last dimension is derived from the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

EQUAL, DIFFERENT, UNEXPLAINED = "equal", "different", "unexplained"

ARITHMETIC = ("fma", "mul", "add", "div", "sqrt", "reciprocal", "min_max", "round")
"""Kinds that are arithmetic; "compare" is a decision, and kernels compare to find NaN and to choose a lane."""

FLOP = {"fma": 2, "mul": 1, "add": 1, "div": 1, "sqrt": 1}
"""Kind → FLOP of a lane in `InstructionComparison.executed_flop`."""

TILES = (8, 16, 24, 32)
"""Lanes of fp32 in 1 to 4 vectors of AVX2."""

_POLYNOMIAL = "a transcendental function counts 1 and is executed as a polynomial"
_PARTIAL = "partial sums on the lanes of vectors are added up, and lanes that hold nothing"
_LOGIC = "by integer logic on the bits, or by comparisons and a choice of lanes"
_STATISTICS = "mean and variance in one pass over vectors, and scale and shift as one multiply-add"

REASONS: Mapping[str, str] = {
    **dict.fromkeys(("exp", "log", "sin", "cos", "erf", "tanh", "sigmoid", "gelu", "silu", "softplus"), _POLYNOMIAL),
    **dict.fromkeys(("mish", "softmax", "log_softmax", "logsumexp", "cross_entropy"), _POLYNOMIAL),
    **dict.fromkeys(("attention", "attention_causal"), f"in the softmax, {_POLYNOMIAL}"),
    **dict.fromkeys(("sum", "mean", "sum_rows", "sum_columns", "dot", "norm", "adaptive_avg_pool2d"), _PARTIAL),
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "nll_loss"), _PARTIAL),
    **dict.fromkeys(("neg", "abs", "elu", "celu", "leaky_relu", "max_pool2d"), _LOGIC),
    **dict.fromkeys(("layer_norm", "group_norm", "batch_norm_infer", "batch_norm_train"), _STATISTICS),
    **dict.fromkeys(("sgd", "sgd_momentum"), "a multiplication and an addition are one fused multiply-add"),
    **dict.fromkeys(("adam", "adamw"), "square roots by an approximation and Newton steps; fused multiply-adds"),
    "sqrt": "an approximation of 1/sqrt and Newton steps",
    "rsqrt": "a square root and a division",
    "lerp": "a fused multiply-add, and both forms of the formula, of which each lane takes one",
    "addcdiv": "alpha is a factor of its own",
    "amax": "one fewer: n values have n - 1 maxima",
    "mv": "the result is scaled and added by fused multiply-adds: one for each row",
    "conv2d_3x3_padded": "taps on the padding are not executed",
    "bilinear": "some products are separate multiplications and additions",
    "hardswish": "minimum and maximum count as comparisons by definition",
}  # fmt: skip
"""Operator → what the kinds of its instructions show, where the numbers differ."""


@dataclass(frozen=True)
class InstructionComparison:
    """One operator. multiply_adds, other_flop: by definition. executed: kind → lanes."""

    name: str
    multiply_adds: int
    other_flop: int
    executed: Mapping[str, int]
    verdict: str
    reason: str = ""

    @property
    def executed_flop(self) -> int:
        """FLOP of all lanes; a fused multiply-add is 2."""
        return sum(FLOP.get(kind, 0) * lanes for kind, lanes in self.executed.items())


def compare(
    name: str, multiply_adds: int, other_flop: int, executed: Mapping[str, int], sizes: tuple[int, ...] = ()
) -> InstructionComparison:
    """sizes: of the output's dimensions, any of which a kernel may round up to whole vectors.

    The verdict is "equal", "different" with a reason, or "unexplained".
    """
    if "failed" in executed:
        return InstructionComparison(
            name, multiply_adds, other_flop, executed, UNEXPLAINED, "the operator was not counted"
        )
    if multiply_adds:
        verdict, reason = _of_products(multiply_adds, executed, sizes)
    else:
        lanes = sum(executed.get(kind, 0) for kind in ARITHMETIC)
        verdict, reason = (EQUAL if lanes == other_flop else UNEXPLAINED), ""
    if verdict == UNEXPLAINED and name in REASONS:
        verdict, reason = DIFFERENT, REASONS[name]
    return InstructionComparison(name, multiply_adds, other_flop, executed, verdict, reason)


def _of_products(multiply_adds: int, executed: Mapping[str, int], sizes: tuple[int, ...]) -> tuple[str, str]:
    fused = executed.get("fma", 0)
    if fused == multiply_adds:
        return EQUAL, ""
    for size in sizes:
        for tile in TILES:
            whole = -(-size // tile) * tile
            if whole > size and fused * size == multiply_adds * whole:
                return DIFFERENT, f"padding of vectors: {size} is executed as {whole}"
    first = multiply_adds - fused
    outputs = math.prod(sizes)
    if sizes and first in (outputs, 2 * outputs) and first <= executed.get("mul", 0):
        return (
            EQUAL,
            f"with {first:,} products that begin a sum, {first // outputs} a result, as multiplications",
        )
    return UNEXPLAINED, ""
