"""Counts the FLOP of operations other than products (convolutions and matrix products).

These are elementwise operations, normalisation, softmax, losses, optimizers, FFTs and linear algebra. Each function
takes an `Operation` and returns its `Cost`, which has only `other_flop`, by the convention of
`analysis/operators/products.py`. Each docstring derives its constants from PyTorch's decomposition into elementary
operations; a fused kernel may need fewer. Integers and bools cost nothing. `analysis/operators/registry.py` maps each
operation name to its function.
"""

import math
from math import prod

from analysis.operators.cost import (
    ZERO,
    Cost,
    Size,
    Sizes,
    attribute,
    computes,
    first,
    has,
    has_any,
    needed,
    numel,
    output,
    output_mask,
    shape,
    shapes_in,
)
from analysis.operators.products import exact_ratio, scalars
from results.records.counts import Operation

# --- per element -----------------------------------------------------------------------------------------------------


def added_outer_product(operation: Operation) -> Cost:
    """Count addr per output element: a multiplication, as in `outer`, and the addition and scaling of `addmm`.

    Nothing is summed, so that no multiplication is model FLOP.
    """
    beta, alpha = attribute(operation, "beta", 1), attribute(operation, "alpha", 1)
    return scalars(numel(output(operation)) * (1 + (beta != 0) + (beta not in (0, 1)) + (alpha != 1)))


def free(_operation: Operation) -> Cost:
    """Count no arithmetic, by convention."""
    return ZERO


def per_output(flop_per_element: int, operation: Operation) -> Cost:
    """Count `flop_per_element` operations for every element of the first output."""
    return scalars(flop_per_element * numel(output(operation))) if computes(operation) else ZERO


def per_input(flop_per_element: int, operation: Operation) -> Cost:
    """Count `flop_per_element` operations for every element of the first input, or of all its tensors if it is a
    list."""
    if not computes(operation):
        return ZERO
    return scalars(
        flop_per_element * (_listed(operation) if "[" in operation.input_names[0] else numel(first(operation)))
    )


def per_list(flop_per_element: int, operation: Operation) -> Cost:
    """Count `flop_per_element` operations for every element of every tensor of the list `self`, or of the only list."""
    return scalars(flop_per_element * _listed(operation)) if computes(operation) else ZERO


def _listed(operation: Operation) -> Size:
    lists = [name.partition("[")[0] for name in operation.input_names if "[" in name]
    if not lists:
        return 0
    return sum(numel(form) for form in shapes_in(operation, "self" if "self" in lists else lists[0]))


def scaled_sum(operation: Operation) -> Cost:
    """Count add, sub, rsub, index_add, _foreach_add, …: an addition, and a multiplication where alpha is not 1."""
    flop_per_element = 1 + int(attribute(operation, "alpha", 1) != 1)
    return (per_list if operation.name.startswith("aten._foreach_") else per_output)(flop_per_element, operation)


def scaled_product_sum(operation: Operation) -> Cost:
    """Count addcmul, addcdiv: a product or quotient, an addition, and a multiplication where the factor is not 1."""
    flop_per_element = 2 + int("scalars" in operation.attributes or attribute(operation, "value", 1) != 1)
    return (per_list if operation.name.startswith("aten._foreach_") else per_output)(flop_per_element, operation)


def gelu(erf: int, tanh: int, operation: Operation) -> Cost:
    """Count gelu: 0.5·x·(1 + erf(x·c)): 3 ·, erf, +; with tanh(c·(x + a·x³)) in place of erf 6 ·, tanh, 2 +. Its
    gradient: with erf 7 ·, erf, exp, 2 +; with tanh 12 ·, tanh, 4 +, -."""
    return per_output(tanh if attribute(operation, "approximate") == "tanh" else erf, operation)


def dropout(operation: Operation) -> Cost:
    """Count the mask's division by 1 - p and its product with the input: 2 for each element; nothing in evaluation.
    Drawing random numbers is 0."""
    return per_output(2, operation) if attribute(operation, "train", True) else ZERO


def clamp(operation: Operation) -> Cost:
    """Count one comparison for each bound that is given."""
    bounds = sum(has(operation, bound) or attribute(operation, bound) is not None for bound in ("min", "max"))
    return per_output(bounds, operation)


def maximum(operation: Operation) -> Cost:
    """Count max and min: of two tensors elementwise, else a reduction."""
    return per_output(1, operation) if has(operation, "other") else per_input(1, operation)


def reduction(flop_per_input: int, flop_per_output: int, operation: Operation) -> Cost:
    """Count `flop_per_input` for every input element; for each output element a division (mean), a root (std, vector
    norms), or a logarithm and a sum (logsumexp)."""
    return per_input(flop_per_input, operation) + per_output(flop_per_output, operation)


def accumulated(operation: Operation) -> Cost:
    """Count scatter_add, scatter_reduce, index_put with accumulate: an addition for each element of the source."""
    if not computes(operation) or not attribute(operation, "accumulate", True):
        return ZERO
    return scalars(numel(shape(operation, "src", "source", "values")))


def bags(operation: Operation) -> Cost:
    """Count embedding_bag, forward and backward: an addition for each element of each gathered row."""
    return scalars(numel(shape(operation, "indices")) * shape(operation, "weight", "grad")[-1])


# --- normalisation and softmax: N elements, C channels, R rows (what one mean is taken over) -------------------------


def batch_norm(operation: Operation) -> Cost:
    """Count batch normalisation of every backend. Training: variance 4N, mean N, x - mean N, · rstd N, + eps, rsqrt and
    ÷ n 3C. Evaluation: the mean and variance are given: 2N + 2C. Weight and bias 2N. Running mean and variance 3C each
    where they are tracked. Operations without the argument `training` have the mode in their name."""
    form = shape(operation, "input")
    size, channels, affine = numel(form), form[1], has(operation, "weight")
    training = bool(attribute(operation, "training", operation.name.startswith("aten._batch_norm_with_update")))
    tracked = training and has(operation, "running_mean")
    flop = 7 * size + 3 * channels if training else 2 * size + 2 * channels
    return scalars(flop + 2 * size * int(affine) + 6 * channels * int(tracked))


def batch_norm_backward(operation: Operation) -> Cost:
    """Count the gradients of every backend's batch normalisation; cuDNN's and MIOpen's are always of training, with all
    gradients. Training: sums of g and g·(x - mean) 4N, which are also the bias's and weight's gradients; the gradient
    of the input 5N; factors of each channel 6C. Evaluation: input N + 2C; weight and bias 4N + 2C."""
    form = shape(operation, "input")
    size, channels = numel(form), form[1]
    grad_input, grad_weight, grad_bias = output_mask(operation)
    if attribute(operation, "train", attribute(operation, "update", True)):
        return scalars(4 * size + 6 * channels + 5 * size * int(grad_input))
    parameters = int(grad_weight or grad_bias)
    return scalars((size + 2 * channels) * int(grad_input) + (4 * size + 2 * channels) * parameters)


def per_statistic(operation: Operation) -> Cost:
    """Count the statistics of several devices joined, or tracked: about 10 operations for each channel."""
    return scalars(10 * numel(output(operation)))


def layer_norm(operation: Operation) -> Cost:
    """Count variance 4N, mean N, x - mean N, · rstd N; ÷ n, + eps and rsqrt 3R; weight N, bias N. A row is one set of
    the normalised dimensions."""
    size, rows = _rows(operation)
    return scalars((7 + int(has(operation, "weight")) + int(has(operation, "bias"))) * size + 3 * rows)


def layer_norm_backward(operation: Operation) -> Cost:
    """Count x̂ 2N; input: two sums with their products 3N, and 5N + R to combine them, weight N; weight's gradient g·x̂
    summed 2N; bias's N."""
    size, rows = _rows(operation)
    grad_input, grad_weight, grad_bias = output_mask(operation)
    input_flop = (8 + int(has(operation, "weight"))) * size + rows if grad_input else 0
    return scalars(2 * size + input_flop + 2 * size * int(grad_weight) + size * int(grad_bias))


def group_norm(operation: Operation) -> Cost:
    """Count variance 4N, mean N; weight and mean folded into a factor and a term, 3 for each channel of each sample and
    4 for each group of each sample; then a multiplication and an addition 2N."""
    form, groups = shape(operation, "input"), attribute(operation, "group") or needed(operation, "num_groups")
    return scalars(7 * numel(form) + 3 * form[0] * form[1] + 4 * form[0] * groups)


def group_norm_backward(operation: Operation) -> Cost:
    """Count sums of g and of g·x 3N; g·a + x·b + c 4N; folding, about 12 for each channel and 9 for each group of each
    sample."""
    form = shape(operation, "input")
    return scalars(7 * numel(form) + 12 * form[0] * form[1] + 9 * form[0] * needed(operation, "group"))


def rms_norm(operation: Operation) -> Cost:
    """Count squares N, mean N, · rstd N, weight N; ÷ n, + eps and rsqrt 3R."""
    size, rows = _rows(operation)
    return scalars((3 + int(has(operation, "weight"))) * size + 3 * rows)


def rms_norm_backward(operation: Operation) -> Cost:
    """Count x̂, the mean of x̂·g and their combination 7N + 3R; with a weight its gradient 2N and the factor N."""
    size, rows = _rows(operation)
    return scalars((7 + 3 * int(has(operation, "weight"))) * size + 3 * rows)


def _rows(operation: Operation) -> tuple[Size, Size]:
    """Return the number of elements, and the number of rows, which have one mean each."""
    size = numel(shape(operation, "input"))
    return size, exact_ratio(size, prod(needed(operation, "normalized_shape")))


def weight_norm(operation: Operation) -> Cost:
    """Count _weight_norm_interface of v and its norms g: norm 2N + R, g ÷ norm R, v · that N."""
    return scalars(3 * numel(shape(operation, "v")) + 2 * numel(shape(operation, "g")))


def weight_norm_backward(operation: Operation) -> Cost:
    """Count the sum of g·v 2N; g·a - v·b 3N; 4 factors for each row."""
    return scalars(5 * numel(shape(operation, "saved_v")) + 4 * numel(shape(operation, "saved_g")))


def softmax(operation: Operation) -> Cost:
    """Count maximum N, x - max N, exp N, sum N, ÷ N."""
    return scalars(5 * numel(output(operation)))


def softmax_backward(operation: Operation) -> Cost:
    """Count y·g N, sum N, y · sum N, difference N; of log_softmax exp N, sum N, product N, difference N."""
    return scalars(4 * numel(output(operation)))


def log_softmax(operation: Operation) -> Cost:
    """Count maximum N, x - max N, exp N, sum N, - log(sum) N; a logarithm for each row along `dim`."""
    form = output(operation)
    return scalars(5 * numel(form) + _along(form, needed(operation, "dim")))


def _along(form: Sizes, dim: int) -> Size:
    return exact_ratio(numel(form), form[dim]) if form else 1


# --- losses ----------------------------------------------------------------------------------------------------------


def nll_loss(operation: Operation) -> Cost:
    """Count nll_loss_forward, nll_loss2d_forward: negation R; unless reduction is 0 (none), also the sums of losses and
    of weights 2R and a division."""
    rows = numel(shape(operation, "target"))
    return scalars(3 * rows + 1 if attribute(operation, "reduction", 1) != 0 else rows)


def nll_loss_backward(operation: Operation) -> Cost:
    """Count one division by the sum of the weights, and a multiplication for every element."""
    return scalars(numel(output(operation)) + 1)


def cross_entropy(operation: Operation) -> Cost:
    """Count cross_entropy_loss as one operation (inference mode): log_softmax and nll_loss; classes are dimension 1, or
    the only dimension."""
    form = shape(operation, "self")
    rows = _along(form, 1 if len(form) > 1 else 0)
    return scalars(5 * numel(form) + rows + 3 * rows + 1)


def ctc_loss(operation: Operation) -> Cost:
    """Count _ctc_loss: for each sequence one pass of the forward-backward algorithm: its time steps × (2·S + 1) states
    for S targets. A state's log-sum-exp of three: 2 maxima, 3 differences, 3 exp, 2 additions, log, + maximum; and +
    log p: 13. The backward pass runs the recursion in the other direction, then counts 3 for every log probability. If
    the lengths are tensors, each sequence is counted with the longest possible lengths."""
    form = shape(operation, "log_probs")
    steps, targets = attribute(operation, "input_lengths"), attribute(operation, "target_lengths")
    if not (steps and targets):
        steps, targets = [form[0] * (form[1] if len(form) == 3 else 1)], [shape(operation, "targets")[-1]]
    states = sum(step * (2 * target + 1) for step, target in zip(steps, targets, strict=True))
    return scalars(states * 13 + (3 * numel(form) if operation.name.endswith("backward") else 0))


# --- optimizers ------------------------------------------------------------------------------------------------------


def sgd(operation: Operation) -> Cost:
    """Count _fused_sgd_: w -= lr·g 2. weight_decay 2; momentum m·b + g 2 (3 with dampening; the first step copies);
    nesterov 2; maximize 1; a gradient scale 1."""
    settings = operation.attributes
    flop_per_element = 2 + _common(operation)
    if settings.get("momentum") and not settings.get("is_first_step"):
        flop_per_element += 3 if settings.get("dampening") else 2
    if settings.get("nesterov"):
        flop_per_element += 2
    return scalars(_listed(operation) * (flop_per_element + (2 if settings.get("weight_decay") else 0)))


def adam(decay: int, operation: Operation) -> Cost:
    """Count _fused_adam_: first moment lerp 3, second β·v + (1 - β)·g·g 4, √v ÷ c + eps 3, w -= s·m ÷ that 3: 13.
    weight decay 2, decoupled (AdamW) 1; amsgrad 1; maximize 1; a gradient scale 1. decay: operations of the weight
    decay."""
    settings = operation.attributes
    flop_per_element = 13 + _common(operation) + int(bool(settings.get("amsgrad")))
    return scalars(_listed(operation) * (flop_per_element + (decay if settings.get("weight_decay") else 0)))


def adagrad(operation: Operation) -> Cost:
    """Count _fused_adagrad_: sum of squares 2, √ + eps 2, w -= lr·g ÷ that 3; weight_decay 2; maximize 1; a gradient
    scale 1."""
    decay = 2 if operation.attributes.get("weight_decay") else 0
    return scalars(_listed(operation) * (7 + _common(operation) + decay))


def _common(operation: Operation) -> int:
    return int(bool(operation.attributes.get("maximize"))) + int(has_any(operation, "grad_scale"))


# --- transforms and linear algebra -----------------------------------------------------------------------------------


def fft(operation: Operation) -> Cost:
    """Count _fft_c2c, _fft_r2c, _fft_c2r over the dimensions `dim`; sizes are those of the longer side. A transform of
    n complex points is 5·n·log2(n) FLOP (the usual estimate, radix 2), half of it if one side is real. The number is
    rounded to an int, and exact where the length is a power of 2."""
    form = output(operation) if operation.name == "aten._fft_c2r" else first(operation)
    size, length = numel(form), prod(form[d] for d in needed(operation, "dim"))
    halves = 2 if operation.name == "aten._fft_c2c" else 1
    if isinstance(size, int) and isinstance(length, int):
        return scalars(round(2.5 * halves * size * math.log2(max(length, 1))))
    import sympy

    return scalars(sympy.Rational(5 * halves, 2) * size * sympy.log(length, 2))


def factorisation(numerator: int, denominator: int, operation: Operation) -> Cost:
    """Count the leading terms of square matrices: Cholesky n³/3, LU 2n³/3, inverse (factors and n right-hand sides)
    2n³."""
    form = first(operation)
    return scalars(numel(form[:-2]) * _ratio(numerator * form[-1] ** 3, denominator))


def solve(factors: bool, substitutions: int, operation: Operation) -> Cost:
    """Count square systems: LU factors, unless they are given; forward and backward substitution, n² each, of each
    right-hand side."""
    form, right = shape(operation, "A", "LU", "LD", "input2", "self"), shape(operation, "B", "self")
    batch, n = numel(form[:-2]), form[-1]
    sides = exact_ratio(numel(right), batch * n)
    return scalars(batch * (int(factors) * _ratio(2 * n**3, 3) + substitutions * n**2 * sides))


def qr(halves: int, operation: Operation) -> Cost:
    """Count Householder, m ≥ n: 2mn² - 2n³/3 for R and as much for Q (the leading terms). linalg_qr computes both,
    geqrf and linalg_householder_product one of them. m and n are exchanged for matrices that are wider than high."""
    *batch, rows, columns = first(operation)
    m, n = max(rows, columns), min(rows, columns)
    return scalars(prod(batch) * halves * (2 * m * n**2 - _ratio(2 * n**3, 3)))


def _ratio(value: Size, by: int) -> Size:
    """Return a quotient, rounded down for ints."""
    return value // by if isinstance(value, int) else value / by


def pair_distances(operation: Operation) -> Cost:
    """Count _pdist_forward: p-norm distances of every pair of rows: difference, power or absolute value, sum; and a
    root for each pair."""
    return scalars(numel(output(operation)) * (3 * first(operation)[-1] + 1))


def pair_distances_backward(operation: Operation) -> Cost:
    """Count _cdist_backward, _pdist_backward, where the distances are an input: difference, two products and a sum for
    each coordinate of each pair."""
    return scalars(numel(shape(operation, "cdist", "pdist")) * output(operation)[-1] * 4)
