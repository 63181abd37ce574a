"""calflops: hand-derived counts of each rule, its own total of both passes, and torch left as it was."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from calflops import calculate_flops, calculate_pipline, pytorch_ops

from analysis.utilization.counter_operators import OPERATORS
from measure.counters.adapters import calflops
from measure.counters.adapters.wrapped_functions import TORCH
from tests.support.nets.counted_nets import (
    IMAGES,
    PARAMETERS,
    Pair,
    Small,
    by_module,
    by_operator,
    counting,
    leaves_nothing,
    raises_and_leaves_nothing,
    replaced_functions,
)

count = counting(calflops)


def printed(model, *inputs, both=False):
    """What a user of calflops sees: FLOP, multiply-adds, parameters."""
    options = {"include_backPropagation": both, "print_results": False, "output_as_string": False}
    return calculate_flops(model, args=list(inputs), **options)


def functions():
    return (F.linear, F.relu, F.interpolate, torch.matmul, torch.mm, torch.baddbmm, torch.Tensor.add, torch.einsum)


def test_a_model_of_known_sizes():
    """The transposed convolution's biases are those of an output of (2 − 2) // 2 + 1 = 1 × 1, not 4 × 4: 2·4."""
    model, images = Small(), torch.randn(IMAGES)
    total, *rows = count(model, images, batch_size=2)
    expected = {
        "F.conv2d": 2 * (43_200 + 3_600),
        "F.conv2d elementwise": 1_600,
        "F.batch_norm": 2 * 400,
        "F.relu": 400 + 12,
        "F.max_pool2d": 400,
        "F.conv_transpose2d": 2 * 1_024,
        "F.conv_transpose2d elementwise": 8,
        "F.adaptive_avg_pool2d": 128,
        "F.linear": 2 * 48,
    }
    assert by_operator(rows) == {name: (flop, "flop", flop) for name, flop in expected.items()}
    assert (total.native_value, total.native_unit, total.flop) == (99_092, "flop", sum(expected.values()))
    trained = PARAMETERS + 20 - 72  # it leaves out the frozen layer
    assert printed(model, images) == (99_092, 47_872, trained)
    assert (total.parameters, total.ignored, total.not_understood) == (trained, {"aten.sigmoid": 1}, {})


def test_its_backward_pass_is_twice_the_forward_pass_though_a_layer_is_frozen():
    model, images = Small(), torch.randn(IMAGES)
    rows = count(model, images, batch_size=2)
    (forward,) = [row for row in rows if (row.phase, row.scope, row.operator) == ("forward", "total", "")]
    (backward,) = [row for row in rows if (row.phase, row.scope, row.operator) == ("backward", "total", "")]
    both, _, _ = printed(model, images, both=True)
    assert forward.native_value + backward.native_value == both
    assert backward.flop == backward.native_value == 2 * 99_092
    assert backward.reason == "note: 2 × its forward pass, not counted"
    assert (backward.parameters, backward.ignored) == (None, {})
    doubled = {name: (2 * n, unit, 2 * flop) for name, (n, unit, flop) in by_operator(rows).items()}
    assert by_operator(rows, "backward") == doubled
    assert by_module(rows, "backward")["conv"] == 2 * by_module(rows)["conv"] == 2 * (86_400 + 1_600)


def test_it_runs_in_eval_mode_with_gradients_on_and_leaves_nothing():
    """baddbmm too, which calflops itself forgets."""
    leaves_nothing(count, (False, True), functions)


def test_a_model_that_raises_leaves_nothing_and_the_next_count_is_right():
    raises_and_leaves_nothing(count, functions)
    assert (calculate_pipline.module_flop_count, calculate_pipline.module_mac_count) == ([], [])
    assert by_operator(count(Pair(), torch.randn(5, 4), torch.randn(5, 4)))["F.linear"][0] == 240


def test_its_functions_are_all_known_to_analysis():
    patches = (
        lambda: pytorch_ops._patch_functionals({}, [], []),
        lambda: pytorch_ops._patch_tensor_methods({}, [], []),
    )
    hooks = {kind.__name__ for kind in pytorch_ops.MODULE_HOOK_MAPPING}
    assert replaced_functions(pytorch_ops, TORCH, patches) | hooks == set(OPERATORS["calflops"])
