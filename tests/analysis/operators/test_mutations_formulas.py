"""Tests of the tests: each formula is spoilt in turn, and the check that should notice must fail.

A row: the formula, what is done to it, and the check. Without the change every check passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from analysis.operators import nonproducts, recurrent, registry, traffic
from analysis.operators import products as operators_products
from analysis.operators.cost import Cost
from tests.analysis.operators import test_formulas, test_formulas_brute_force, test_kinds, test_readers, test_traffic

Function = Callable[..., Any]


def doubled(formula: Function) -> Function:
    """Twice the count."""
    return lambda *args, **kwargs: formula(*args, **kwargs) * 2


def nothing(_formula: Function) -> Function:
    """Silently zero."""
    return lambda *args, **kwargs: Cost()


def unscaled(formula: Function) -> Function:
    """The model FLOP as they are, the other FLOP forgotten."""
    return lambda *args, **kwargs: Cost(formula(*args, **kwargs).model_flop)


def other_mask(formula: Function) -> Function:
    """The gradients of input and bias swapped (of input and weight it would change nothing: they cost the same)."""
    return lambda forward, numel, mask: formula(forward, numel, (mask[2], mask[1], mask[0]))


def one_gradient(formula: Function) -> Function:
    """The gradient of the weight dropped."""
    return lambda forward, numel, mask: formula(forward, numel, (mask[0], False, mask[2]))


def by_groups(_formula: Function) -> Function:
    """The channels of all groups for each output: the fault of a well-known counter, for two groups."""
    return lambda out, weight, bias=False: operators_products.multiply_adds(out * 2 * weight[1] * prod(weight[2:]))


def prod(sizes: Any) -> int:
    """Product of ints."""
    total = 1
    for size in sizes:
        total *= size
    return total


def output_positions(_formula: Function) -> Function:
    """A transposed convolution counted at stride² as many positions."""
    return lambda numel, weight, bias=0: operators_products.multiply_adds(4 * numel * prod(weight[1:]))


def executed(formula: Function) -> Function:
    """A fused kernel's 2.5 × taken for model FLOP."""
    return lambda rows, keys, qk, v, *mask: (
        formula(rows, keys, qk, v, *mask) + operators_products.matmul(rows, keys, qk)
    )


def without_state(formula: Function) -> Function:
    """The products of a recurrent layer with its own state forgotten."""

    def spoilt(tokens: Any, net: recurrent.Network, *args: Any) -> Cost:
        return formula(tokens, recurrent.Network(net.cell, net.hidden_size, net.cells, net.input_matrices, 0), *args)

    return spoilt


def convolutions() -> None:
    for dimensions in (1, 2, 3):
        for transposed in (False, True):
            test_formulas_brute_force.check_convolution(
                test_formulas_brute_force.random_convolution(1, dimensions, transposed)
            )


def products() -> None:
    for row in test_formulas_brute_force.PRODUCTS:
        test_formulas_brute_force.check_product(1, *row)


def added_products() -> None:
    for row in test_formulas_brute_force.ADDED:
        test_formulas_brute_force.check_added(3, *row)


def attention() -> None:
    test_formulas_brute_force.check_attention(4)


def recurrent_layers() -> None:
    test_formulas_brute_force.check_recurrent("lstm", 2, 1, 0, grad_input=True)


def a_reader(name: str) -> Function:
    """The hand-made operations of this name."""
    rows = [row for row in test_readers.READ if row[0] == name]
    assert rows

    def check() -> None:
        for row in rows:
            test_readers.test_readers(*row)

    return check


def bytes_moved() -> None:
    test_traffic.test_bytes("aten.add", {"self": (2, 3), "other": (3,)}, [(2, 3)], 36, 24)


def a_training_step() -> None:
    test_kinds.test_a_real_step_is_understood("foreach")


MUTATIONS: tuple[tuple[Any, str, Function, Function], ...] = (
    (operators_products, "multiply_adds", doubled, convolutions),
    (operators_products, "multiply_adds", doubled, products),
    (operators_products, "convolution", doubled, convolutions),
    (operators_products, "convolution", nothing, convolutions),
    (operators_products, "convolution", by_groups, convolutions),
    (operators_products, "convolution", unscaled, a_reader("aten.mkldnn_convolution")),
    (operators_products, "convolution_transpose", output_positions, convolutions),
    (operators_products, "convolution_transpose", doubled, a_reader("aten.cudnn_convolution_transpose")),
    (operators_products, "convolution_backward", one_gradient, convolutions),
    (operators_products, "convolution_backward", other_mask, convolutions),
    (operators_products, "convolution_backward", other_mask, a_reader("aten._slow_conv2d_backward")),
    (operators_products, "matmul", doubled, products),
    (operators_products, "addmm", unscaled, added_products),
    (operators_products, "linear_backward", doubled, a_reader("aten.linear_backward")),
    (operators_products, "einsum", nothing, products),
    (operators_products, "trilinear", doubled, a_reader("aten._trilinear")),
    (operators_products, "attention", doubled, attention),
    (operators_products, "attention_backward", executed, attention),
    (operators_products, "attention_backward", nothing, a_reader("aten._scaled_dot_product_flash_attention_backward")),
    (
        operators_products,
        "multi_head_attention",
        doubled,
        lambda: test_kinds.test_the_fast_path_costs_what_the_slow_one_does(2),
    ),
    (operators_products, "deformable_convolution", doubled, a_reader("torchvision.deform_conv2d")),
    (operators_products, "euclidean_distance", doubled, a_reader("aten._euclidean_dist")),
    (recurrent, "recurrent", without_state, recurrent_layers),
    (recurrent, "recurrent_backward", doubled, recurrent_layers),
    (recurrent, "recurrent_cells", doubled, test_formulas.test_scalar_work_of_cells),
    (recurrent, "recurrent_cells_backward", nothing, a_reader("aten._thnn_fused_gru_cell_backward")),
    (nonproducts, "batch_norm", doubled, a_reader("aten.native_batch_norm")),
    (nonproducts, "batch_norm_backward", doubled, a_reader("aten.cudnn_batch_norm_backward")),
    (nonproducts, "layer_norm", nothing, a_reader("aten.native_layer_norm")),
    (nonproducts, "group_norm", doubled, a_reader("aten.native_group_norm")),
    (nonproducts, "rms_norm", doubled, a_reader("aten._fused_rms_norm")),
    (nonproducts, "log_softmax", doubled, a_reader("aten._log_softmax")),
    (nonproducts, "nll_loss", nothing, a_training_step),
    (nonproducts, "max_pool", doubled, a_reader("aten.max_pool2d_with_indices")),
    (nonproducts, "avg_pool", doubled, a_reader("aten.avg_pool3d_backward")),
    (nonproducts, "adaptive_avg_pool", doubled, a_reader("aten._adaptive_avg_pool2d")),
    (nonproducts, "interpolate", doubled, a_reader("aten.upsample_bicubic2d")),
    (nonproducts, "roi_align", doubled, a_reader("torchvision.roi_align")),
    (nonproducts, "sgd", doubled, a_reader("aten._fused_sgd_")),
    (nonproducts, "adam", doubled, a_reader("aten._fused_adamw_")),
    (nonproducts, "ctc_loss", doubled, a_reader("aten._ctc_loss")),
    (nonproducts, "fft", doubled, a_reader("aten._fft_c2r")),
    (traffic, "itemsize", doubled, bytes_moved),
)


@pytest.mark.parametrize(
    ("module", "name", "mutation", "check"),
    MUTATIONS,
    ids=[f"{name}-{mutation.__name__}-{i}" for i, (_, name, mutation, _) in enumerate(MUTATIONS)],
)
def test_a_spoilt_formula_is_noticed(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, mutation: Function, check: Function
) -> None:
    check()
    monkeypatch.setattr(module, name, mutation(getattr(module, name)))
    with pytest.raises(AssertionError):
        check()


@pytest.mark.parametrize("name", ["aten.convolution", "aten.mm", "aten.native_batch_norm"])
def test_a_lost_rule_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """An operation that falls out of the table is listed, and does not count as zero."""
    rest = {other: rule for other, rule in registry.TABLE.items() if other != name}
    monkeypatch.setattr(registry, "bucket_of", lambda asked, of=registry.bucket_of: of(asked, rest))
    with pytest.raises(AssertionError):
        test_kinds.test_operations_seen_in_training_are_understood()
