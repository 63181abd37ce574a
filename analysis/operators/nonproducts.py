"""Shape functions for what is no product: normalisation, softmax, pooling, sampling, losses, optimizers, transforms.

All of it is other FLOP, by the convention of `analysis/operators/products.py`. Constants are derived beside them, for
the arithmetic as PyTorch decomposes it into elementary operations; a fused kernel may need fewer. Operations with a
constant number of operations per element are in `analysis/operators/registry.py`.
"""

import math
from collections.abc import Sequence
from math import prod
from typing import Any

from analysis.operators.cost import Cost, Size
from analysis.operators.products import Shape, exact_ratio, scalars

# --- normalisation: N elements, C channels, R rows (what one mean is taken over), G groups of one sample -------------


def batch_norm(numel: Size, channels: Size, training: bool, affine: bool = True, tracked: bool = False) -> Cost:
    """Training: variance 4N, mean N, x - mean N, · rstd N, + eps, rsqrt and ÷ n 3C. Evaluation: the mean and variance
    are given: 2N + 2C. Weight and bias 2N. Running mean and variance 3C each where they are tracked."""
    own = 7 * numel + 3 * channels if training else 2 * numel + 2 * channels
    return scalars(own + 2 * numel * int(affine) + 6 * channels * int(training and tracked))


def batch_norm_backward(numel: Size, channels: Size, training: bool, output_mask: Sequence[bool]) -> Cost:
    """Training: sums of g and g·(x - mean) 4N, which are the bias's and weight's gradient too; the gradient of the
    input 5N; 6C for factors of a channel. Evaluation: input N + 2C; weight and bias 4N + 2C."""
    grad_input, grad_weight, grad_bias = output_mask
    parameters = grad_weight or grad_bias
    if training:
        return scalars(4 * numel + 6 * channels + 5 * numel * int(grad_input))
    return scalars((numel + 2 * channels) * int(grad_input) + (4 * numel + 2 * channels) * int(parameters))


def layer_norm(numel: Size, rows: Size, weight: bool = True, bias: bool = True) -> Cost:
    """Variance 4N, mean N, x - mean N, · rstd N; ÷ n, + eps and rsqrt 3R; weight N, bias N."""
    return scalars((7 + int(weight) + int(bias)) * numel + 3 * rows)


def layer_norm_backward(numel: Size, rows: Size, weight: bool, output_mask: Sequence[bool]) -> Cost:
    """x̂ 2N; input: two sums with their products 3N, and 5N + R to combine them, weight N; weight's gradient g·x̂ summed
    2N; bias's N."""
    grad_input, grad_weight, grad_bias = output_mask
    own = (8 + int(weight)) * numel + rows if grad_input else 0
    return scalars(2 * numel + own + 2 * numel * int(grad_weight) + numel * int(grad_bias))


def group_norm(numel: Size, sample_channels: Size, sample_groups: Size) -> Cost:
    """Variance 4N, mean N; weight and mean folded into one factor and one term for each channel of each sample, 3 of
    them and 4 for each group; then a multiplication and an addition 2N."""
    return scalars(7 * numel + 3 * sample_channels + 4 * sample_groups)


def group_norm_backward(numel: Size, sample_channels: Size, sample_groups: Size) -> Cost:
    """Sums of g and of g·x 3N; g·a + x·b + c 4N; folding, about 12 for each channel of each sample, 9 for a group."""
    return scalars(7 * numel + 12 * sample_channels + 9 * sample_groups)


def rms_norm(numel: Size, rows: Size, weight: bool = True) -> Cost:
    """Squares N, mean N, · rstd N, weight N; ÷ n, + eps and rsqrt 3R."""
    return scalars((3 + int(weight)) * numel + 3 * rows)


def rms_norm_backward(numel: Size, rows: Size, weight: bool = True) -> Cost:
    """x̂, the mean of x̂·g and their combination 7N + 3R; with a weight its gradient 2N and the factor N."""
    return scalars((7 + 3 * int(weight)) * numel + 3 * rows)


def weight_norm(numel: Size, rows: Size) -> Cost:
    """Norm 2N + R, g ÷ norm R, v · that N."""
    return scalars(3 * numel + 2 * rows)


def weight_norm_backward(numel: Size, rows: Size) -> Cost:
    """Sum of g·v 2N; g·a - v·b 3N; 4 factors for each row."""
    return scalars(5 * numel + 4 * rows)


# --- softmax and losses ----------------------------------------------------------------------------------------------


def softmax(numel: Size) -> Cost:
    """Maximum N, x - max N, exp N, sum N, ÷ N."""
    return scalars(5 * numel)


def log_softmax(numel: Size, rows: Size) -> Cost:
    """Maximum N, x - max N, exp N, sum N, - log(sum) N; a log for each row."""
    return scalars(5 * numel + rows)


def softmax_backward(numel: Size) -> Cost:
    """y·g N, sum N, y · sum N, difference N; of log_softmax exp N, sum N, product N, difference N."""
    return scalars(4 * numel)


def nll_loss(rows: Size, reduced: bool = True) -> Cost:
    """Negation R; if reduced, the sums of losses and of weights 2R and a division."""
    return scalars(3 * rows + 1 if reduced else rows)


def nll_loss_backward(numel: Size) -> Cost:
    """The gradient divided by the weight's sum, and multiplied into every element."""
    return scalars(numel + 1)


def cross_entropy(numel: Size, rows: Size) -> Cost:
    """log_softmax and nll_loss."""
    return log_softmax(numel, rows) + nll_loss(rows)


def ctc_loss(steps: Size, targets: Size) -> Cost:
    """One pass of the forward-backward algorithm for one sequence: `steps` time steps, 2·S + 1 states for S targets.

    A state's log-sum-exp of three: 2 maxima, 3 differences, 3 exp, 2 additions, log, + maximum; and + log p: 13.
    """
    return scalars(steps * (2 * targets + 1) * 13)


# --- pooling and sampling --------------------------------------------------------------------------------------------


def max_pool(out_numel: Size, taps: Size) -> Cost:
    """taps - 1 comparisons for each output element: the first tap is only taken."""
    return scalars(out_numel * (taps - 1))


def avg_pool(out_numel: Size, taps: Size) -> Cost:
    """A sum over the taps and a division; backward the division and an addition for each tap."""
    return scalars(out_numel * (taps + 1))


def adaptive_taps(in_sizes: Shape, out_sizes: Shape) -> Size:
    """Taps of all windows of an adaptive pool together: window i of n spans ⌊i·L/n⌋ to ⌈(i + 1)·L/n⌉.

    Windows overlap where n does not divide L. For symbolic sizes L taps are taken, as if it did.
    """

    def one(length: Size, count: Size) -> Size:
        if not (isinstance(length, int) and isinstance(count, int)):
            return length
        return sum(-(-(i + 1) * length // count) - i * length // count for i in range(count))

    return prod(one(length, count) for length, count in zip(in_sizes, out_sizes, strict=True))


def adaptive_max_pool(planes: Size, in_sizes: Shape, out_sizes: Shape) -> Cost:
    """Comparisons of an adaptive maximum: taps of all windows less one for each. planes: N · C."""
    return scalars(planes * (adaptive_taps(in_sizes, out_sizes) - prod(out_sizes)))


def adaptive_avg_pool(planes: Size, in_sizes: Shape, out_sizes: Shape) -> Cost:
    """Additions of an adaptive mean and its divisions. planes: N · C."""
    return scalars(planes * (adaptive_taps(in_sizes, out_sizes) + prod(out_sizes)))


def interpolate(out_numel: Size, taps: Size) -> Cost:
    """A weighted sum of `taps` pixels for each output element: nearest 1 (a copy, nothing), linear 2, bilinear 4,
    trilinear 8, bicubic 16. The weights are shared by all channels and not counted."""
    return scalars(out_numel * (2 * taps - 1)) if taps != 1 else scalars(0)


def interpolate_backward(grad_out_numel: Size, taps: Size) -> Cost:
    """A multiply-add into each tap; of nearest only the addition."""
    return scalars(grad_out_numel * (2 * taps if taps != 1 else 1))


def grid_sample(out_numel: Size, points: Size, dimensions: int) -> Cost:
    """Bilinear (trilinear) sampling: 2^d taps for each output element; for each point of the grid, 4 operations a
    coordinate to map it to pixels, 3 to split it, and the products of the taps' weights."""
    taps = 2**dimensions
    return interpolate(out_numel, taps) + scalars(points * (7 * dimensions + taps * (dimensions - 1)))


def grid_sample_backward(out_numel: Size, dimensions: int) -> Cost:
    """For each element and tap a multiply-add into the image, and one into each coordinate."""
    return scalars(out_numel * 2 * 2**dimensions * (1 + dimensions))


def roi_align(out_numel: Size, samples: Size) -> Cost:
    """The mean of `samples` bilinear samples (7 each, and the addition) for each output element."""
    return scalars(out_numel * (8 * samples + 1))


def roi_align_backward(grad_out_numel: Size, samples: Size) -> Cost:
    """The division, and a multiply-add into 4 pixels for each sample."""
    return scalars(grad_out_numel * (8 * samples + 1))


def box_suppression(boxes: Size) -> Cost:
    """Non-maximum suppression if no box is dropped early, an upper bound: for each pair corners 4, width and height 4,
    intersection 1, union 2, ratio 1, comparison 1."""
    return scalars(exact_ratio(boxes * (boxes - 1), 2) * 13)


def pair_distances(pairs: Size, width: Size) -> Cost:
    """p-norm distances pair by pair: difference, power or absolute value, sum; and a root for each pair."""
    return scalars(pairs * (3 * width + 1))


def pair_distances_backward(pairs: Size, width: Size) -> Cost:
    """Difference, two products and a sum for each coordinate of each pair."""
    return scalars(pairs * width * 4)


# --- optimizers ------------------------------------------------------------------------------------------------------


def sgd(numel: Size, settings: dict[str, Any]) -> Cost:
    """w -= lr·g 2. weight_decay 2; momentum m·b + g 2 (3 with dampening; the first step copies); nesterov 2;
    maximize 1; a gradient scale 1. settings: the arguments of `_fused_sgd_`."""
    each = 2 + _common(settings)
    if settings.get("momentum") and not settings.get("is_first_step"):
        each += 3 if settings.get("dampening") else 2
    if settings.get("nesterov"):
        each += 2
    return scalars(numel * (each + (2 if settings.get("weight_decay") else 0)))


def adam(numel: Size, settings: dict[str, Any], decoupled: bool = False) -> Cost:
    """First moment lerp 3, second β·v + (1 - β)·g·g 4, √v ÷ c + eps 3, w -= s·m ÷ that 3: 13. weight_decay 2, decoupled
    (AdamW) 1; amsgrad 1; maximize 1; a gradient scale 1. settings: the arguments of `_fused_adam_`."""
    each = 13 + _common(settings) + int(bool(settings.get("amsgrad")))
    return scalars(numel * (each + ((1 if decoupled else 2) if settings.get("weight_decay") else 0)))


def adagrad(numel: Size, settings: dict[str, Any]) -> Cost:
    """Sum of squares 2, √ + eps 2, w -= lr·g ÷ that 3; weight_decay 2; maximize 1; a gradient scale 1."""
    return scalars(numel * (7 + _common(settings) + (2 if settings.get("weight_decay") else 0)))


def _common(settings: dict[str, Any]) -> int:
    return int(bool(settings.get("maximize"))) + int(bool(settings.get("grad_scale")))


# --- transforms and linear algebra -----------------------------------------------------------------------------------


def fft(numel: Size, length: Size, real: bool = False) -> Cost:
    """Fourier transforms of `length` points over `numel` elements: 5·n·log2(n) FLOP for n complex points, half of it if
    one side is real. The usual estimate (radix 2); rounded to an int, exact where the length is a power of 2."""
    if isinstance(numel, int) and isinstance(length, int):
        return scalars(round((2.5 if real else 5) * numel * math.log2(max(length, 1))))
    import sympy

    return scalars(sympy.Rational(5, 2 if real else 1) * numel * sympy.log(length, 2))


def cholesky(n: Size, batch: Size = 1) -> Cost:
    """n³/3, the leading term."""
    return scalars(batch * _third(n**3))


def lu(n: Size, batch: Size = 1) -> Cost:
    """2n³/3, the leading term."""
    return scalars(batch * _third(2 * n**3))


def inverse(n: Size, batch: Size = 1) -> Cost:
    """2n³: factors and n right-hand sides."""
    return scalars(batch * 2 * n**3)


def solve(n: Size, right: Size, batch: Size = 1) -> Cost:
    """Factors, and 2n² for each right-hand side."""
    return lu(n, batch) + substitutions(n, right, batch)


def substitutions(n: Size, right: Size, batch: Size = 1) -> Cost:
    """Forward and backward substitution with given factors: 2n² for each right-hand side."""
    return scalars(batch * 2 * n**2 * right)


def triangular_solve(n: Size, right: Size, batch: Size = 1) -> Cost:
    """n² for each right-hand side."""
    return scalars(batch * n**2 * right)


def qr(m: Size, n: Size, batch: Size = 1) -> Cost:
    """Householder, m ≥ n: 2mn² - 2n³/3 for R and as much for Q (the leading terms)."""
    return scalars(batch * 2 * (2 * m * n**2 - _third(2 * n**3)))


def _third(value: Size) -> Size:
    """A third, rounded down for ints."""
    return value // 3 if isinstance(value, int) else value / 3
