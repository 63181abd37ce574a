"""Readers of everything that is no product: Operation → sizes for the shape functions of
`analysis/operators/nonproducts.py`.

All of it is other FLOP. Integers and bools cost nothing, whatever the operation. Which name has which reader is in
`analysis/operators/registry.py`; constants per element are in `analysis/operators/registry.py`.
"""

from collections.abc import Callable
from math import prod
from typing import Any

from analysis.operators import nonproducts
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
    """addr: elementwise as `outer` is, for nothing is summed: a multiplication, and what `addmm` does beside."""
    beta, alpha = attribute(operation, "beta", 1), attribute(operation, "alpha", 1)
    return scalars(numel(output(operation)) * (1 + (beta != 0) + (beta not in (0, 1)) + (alpha != 1)))


def free(_operation: Operation) -> Cost:
    """No arithmetic, on purpose."""
    return ZERO


def per_output(each: int, operation: Operation) -> Cost:
    """`each` operations for every element of the first output."""
    return scalars(each * numel(output(operation))) if computes(operation) else ZERO


def per_input(each: int, operation: Operation) -> Cost:
    """`each` operations for every element of the first input, or of all tensors of it if it is a list."""
    if not computes(operation):
        return ZERO
    return scalars(each * (_listed(operation) if "[" in operation.input_names[0] else numel(first(operation))))


def per_list(each: int, operation: Operation) -> Cost:
    """`each` operations for every element of every tensor of the list `self`, or of the only list there is."""
    return scalars(each * _listed(operation)) if computes(operation) else ZERO


def _listed(operation: Operation) -> Size:
    lists = [name.partition("[")[0] for name in operation.input_names if "[" in name]
    if not lists:
        return 0
    return sum(numel(form) for form in shapes_in(operation, "self" if "self" in lists else lists[0]))


def scaled_sum(operation: Operation) -> Cost:
    """add, sub, rsub, index_add, _foreach_add, …: an addition, and a multiplication where alpha is not 1."""
    each = 1 + int(attribute(operation, "alpha", 1) != 1)
    return per_list(each, operation) if _is_list(operation) else per_output(each, operation)


def scaled_product_sum(operation: Operation) -> Cost:
    """addcmul, addcdiv: a product or quotient, an addition, and a multiplication where the factor is not 1."""
    scaled = "scalars" in operation.attributes or attribute(operation, "value", 1) != 1
    each = 2 + int(scaled)
    return per_list(each, operation) if _is_list(operation) else per_output(each, operation)


def _is_list(operation: Operation) -> bool:
    return operation.name.startswith("aten._foreach_")


def gelu(operation: Operation) -> Cost:
    """0.5·x·(1 + erf(x·c)): 3 ·, erf, +. With tanh(c·(x + a·x³)) in place of erf: 6 ·, tanh, 2 +."""
    return per_output(9 if attribute(operation, "approximate") == "tanh" else 5, operation)


def gelu_backward(operation: Operation) -> Cost:
    """With erf 7 ·, erf, exp, 2 +. With tanh 12 ·, tanh, 4 +, -."""
    return per_output(18 if attribute(operation, "approximate") == "tanh" else 11, operation)


def dropout(operation: Operation) -> Cost:
    """The mask divided by 1 - p and multiplied: 2 for each element; nothing in evaluation. Drawing numbers is 0."""
    return per_output(2, operation) if attribute(operation, "train", True) else ZERO


def clamp(operation: Operation) -> Cost:
    """One comparison for each bound that is given."""
    bounds = sum(has(operation, bound) or attribute(operation, bound) is not None for bound in ("min", "max"))
    return per_output(bounds, operation)


def maximum(operation: Operation) -> Cost:
    """max and min: of two tensors elementwise, else a reduction."""
    return per_output(1, operation) if has(operation, "other") else per_input(1, operation)


def mean(operation: Operation) -> Cost:
    """A sum, and a division for each output element."""
    return per_input(1, operation) + per_output(1, operation)


def reduction_with_roots(each: int, operation: Operation) -> Cost:
    """std, vector norms: `each` for every input element, a root for each output element; logsumexp a log and a sum."""
    return per_input(each, operation) + per_output(2 if operation.name == "aten.logsumexp" else 1, operation)


def accumulated(operation: Operation) -> Cost:
    """scatter_add, scatter_reduce, index_put with accumulate: an addition for each element of the source."""
    if not computes(operation) or not attribute(operation, "accumulate", True):
        return ZERO
    return scalars(numel(shape(operation, "src", "source", "values")))


def bags(operation: Operation) -> Cost:
    """embedding_bag, forward and backward: an addition for each element of each gathered row."""
    width = (shape(operation, "weight") if has(operation, "weight") else shape(operation, "grad"))[-1]
    return scalars(numel(shape(operation, "indices")) * width)


# --- normalisation and softmax ---------------------------------------------------------------------------------------


def batch_norm(operation: Operation) -> Cost:
    """Every backend's: `training` says whether the statistics are computed; two operations have it in their name."""
    form = shape(operation, "input")
    training = bool(attribute(operation, "training", operation.name == "aten._batch_norm_with_update"))
    tracked = has(operation, "running_mean")
    return nonproducts.batch_norm(numel(form), form[1], training, has(operation, "weight"), tracked)


def batch_norm_backward(operation: Operation) -> Cost:
    """Every backend's; cuDNN's and MIOpen's always train and compute all gradients."""
    form = shape(operation, "input")
    training = bool(attribute(operation, "train", attribute(operation, "update", True)))
    return nonproducts.batch_norm_backward(numel(form), form[1], training, output_mask(operation))


def per_statistic(operation: Operation) -> Cost:
    """Statistics of several devices joined, or tracked: about 10 operations for each channel."""
    return scalars(10 * numel(output(operation)))


def instance_norm(operation: Operation) -> Cost:
    """instance_norm kept whole: a batch norm over the channels of each sample."""
    form = shape(operation, "input")
    training = bool(attribute(operation, "use_input_stats", True))
    return nonproducts.batch_norm(numel(form), form[0] * form[1], training, has(operation, "weight"))


def layer_norm(operation: Operation) -> Cost:
    """Rows are what is left when the normalised dimensions are taken away."""
    form = shape(operation, "input")
    return nonproducts.layer_norm(numel(form), _rows(operation, form), has(operation, "weight"), has(operation, "bias"))


def layer_norm_backward(operation: Operation) -> Cost:
    """native_layer_norm_backward."""
    form = shape(operation, "input")
    rows = _rows(operation, form)
    return nonproducts.layer_norm_backward(numel(form), rows, has(operation, "weight"), output_mask(operation))


def group_norm(operation: Operation) -> Cost:
    """native_group_norm and group_norm."""
    form, groups = shape(operation, "input"), attribute(operation, "group") or needed(operation, "num_groups")
    return nonproducts.group_norm(numel(form), form[0] * form[1], form[0] * groups)


def group_norm_backward(operation: Operation) -> Cost:
    """native_group_norm_backward."""
    form = shape(operation, "input")
    return nonproducts.group_norm_backward(numel(form), form[0] * form[1], form[0] * needed(operation, "group"))


def rms_norm(operation: Operation) -> Cost:
    """_fused_rms_norm and rms_norm."""
    form = shape(operation, "input")
    return nonproducts.rms_norm(numel(form), _rows(operation, form), has(operation, "weight"))


def rms_norm_backward(operation: Operation) -> Cost:
    """_fused_rms_norm_backward."""
    form = shape(operation, "input")
    return nonproducts.rms_norm_backward(numel(form), _rows(operation, form), has(operation, "weight"))


def _rows(operation: Operation, form: Sizes) -> Size:
    return exact_ratio(numel(form), prod(needed(operation, "normalized_shape")))


def weight_norm(operation: Operation) -> Cost:
    """_weight_norm_interface: v and its norms g."""
    return nonproducts.weight_norm(numel(shape(operation, "v")), numel(shape(operation, "g")))


def weight_norm_backward(operation: Operation) -> Cost:
    """_weight_norm_interface_backward."""
    return nonproducts.weight_norm_backward(numel(shape(operation, "saved_v")), numel(shape(operation, "saved_g")))


def softmax(operation: Operation) -> Cost:
    """_softmax and its like."""
    return nonproducts.softmax(numel(output(operation)))


def softmax_backward(operation: Operation) -> Cost:
    """Of softmax and of log_softmax."""
    return nonproducts.softmax_backward(numel(output(operation)))


def log_softmax(operation: Operation) -> Cost:
    """A logarithm for each row along `dim`."""
    form = output(operation)
    return nonproducts.log_softmax(numel(form), _along(form, needed(operation, "dim")))


def _along(form: Sizes, dim: int) -> Size:
    return exact_ratio(numel(form), form[dim]) if form else 1


# --- losses ----------------------------------------------------------------------------------------------------------


def nll_loss(operation: Operation) -> Cost:
    """nll_loss_forward, nll_loss2d_forward; reduction 0 is none."""
    return nonproducts.nll_loss(numel(shape(operation, "target")), attribute(operation, "reduction", 1) != 0)


def nll_loss_backward(operation: Operation) -> Cost:
    """Of both."""
    return nonproducts.nll_loss_backward(numel(output(operation)))


def cross_entropy(operation: Operation) -> Cost:
    """cross_entropy_loss kept whole (inference mode); classes are dimension 1, or the only one."""
    form = shape(operation, "self")
    return nonproducts.cross_entropy(numel(form), _along(form, 1 if len(form) > 1 else 0))


def ctc_loss(operation: Operation) -> Cost:
    """_ctc_loss and its backward pass, which runs the recursion the other way and then takes exp of every log
    probability. Lengths that are tensors are taken as the longest possible: all sequences' steps, of one cost each."""
    form = shape(operation, "log_probs")
    steps, targets = attribute(operation, "input_lengths"), attribute(operation, "target_lengths")
    if not (steps and targets):
        steps, targets = [form[0] * (form[1] if len(form) == 3 else 1)], [shape(operation, "targets")[-1]]
    total = sum((nonproducts.ctc_loss(t, s) for t, s in zip(steps, targets, strict=True)), ZERO)
    return total + scalars(3 * numel(form) if operation.name.endswith("backward") else 0)


# --- optimizers, transforms, linear algebra --------------------------------------------------------------------------


def _settings(operation: Operation) -> dict[str, Any]:
    scaled = has_any(operation, "grad_scale")
    return {**operation.attributes, "grad_scale": scaled}


def sgd(operation: Operation) -> Cost:
    """_fused_sgd_."""
    return nonproducts.sgd(_listed(operation), _settings(operation))


def adam(operation: Operation) -> Cost:
    """_fused_adam_."""
    return nonproducts.adam(_listed(operation), _settings(operation))


def adamw(operation: Operation) -> Cost:
    """_fused_adamw_."""
    return nonproducts.adam(_listed(operation), _settings(operation), decoupled=True)


def adagrad(operation: Operation) -> Cost:
    """_fused_adagrad_."""
    return nonproducts.adagrad(_listed(operation), _settings(operation))


def fft(operation: Operation) -> Cost:
    """_fft_c2c, _fft_r2c, _fft_c2r over the dimensions `dim`; sizes are those of the longer side."""
    real = operation.name != "aten._fft_c2c"
    form = output(operation) if operation.name == "aten._fft_c2r" else first(operation)
    return nonproducts.fft(numel(form), prod(form[d] for d in needed(operation, "dim")), real)


def linear_algebra(formula: Callable[..., Cost], operation: Operation) -> Cost:
    """A factorisation of square matrices: `formula` takes n and the batch."""
    form = first(operation)
    return formula(form[-1], numel(form[:-2]))


def solve(formula: Callable[..., Cost], operation: Operation) -> Cost:
    """Square systems with right-hand sides: `formula` takes n, their number and the batch."""
    form, right = shape(operation, "A", "LU", "LD", "input2", "self"), shape(operation, "B", "self")
    batch = numel(form[:-2])
    return formula(form[-1], exact_ratio(numel(right), batch * form[-1]), batch)


def qr(operation: Operation) -> Cost:
    """linalg_qr of matrices that are as high as wide or higher; wider ones are turned."""
    *batch, m, n = first(operation)
    return nonproducts.qr(max(m, n), min(m, n), prod(batch))


def reflections(operation: Operation) -> Cost:
    """geqrf, linalg_householder_product: one of the two halves of `qr`."""
    half = qr(operation).other_flop
    return scalars(half // 2 if isinstance(half, int) else half / 2)


def pair_distances(operation: Operation) -> Cost:
    """_pdist_forward: every pair of rows."""
    return nonproducts.pair_distances(numel(output(operation)), first(operation)[-1])


def pair_distances_backward(operation: Operation) -> Cost:
    """_cdist_backward, _pdist_backward: the distances are an input."""
    distances = numel(shape(operation, "cdist", "pdist"))
    return nonproducts.pair_distances_backward(distances, output(operation)[-1])
