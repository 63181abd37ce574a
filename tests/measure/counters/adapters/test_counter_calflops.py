"""calflops: hand-derived counts of each rule, its own total of both passes, and torch left as it was."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from calflops import calculate_flops, calculate_pipline, pytorch_ops
from torch import nn

from analysis.utilization.counter_operators import OPERATORS
from measure.counters.adapters import calflops
from measure.counters.adapters.wrapped_functions import TORCH
from tests.support.nets.counted_nets import (
    IMAGES,
    PARAMETERS,
    Attention,
    Pair,
    Recurrent,
    Small,
    by_module,
    by_operator,
    counting,
    leaves_nothing,
    raises_and_leaves_nothing,
    replaced_functions,
    shared,
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


def test_a_depthwise_transposed_convolution_has_its_biases_alone():
    """8 outputs ÷ 8 groups ÷ 8 groups are 0 filters; 1 × 1 outputs, as it takes their size, of 1 channel."""
    model = nn.Sequential(nn.ConvTranspose2d(8, 8, 2, stride=2, groups=8))
    total, *rows = count(model, torch.randn(1, 8, 2, 2))
    assert by_operator(rows) == {"F.conv_transpose2d elementwise": (1, "flop", 1)}
    assert total.native_value == printed(model, torch.randn(1, 8, 2, 2))[0]


def test_a_recurrent_layer_and_attention():
    """As DeepSpeed; fused attention and what `@` and mm do is not seen."""
    total, *rows = count(Recurrent(), torch.randn(2, 5, 8), batch_size=2)
    assert {name: flop for name, (_, _, flop) in by_operator(rows).items()} == {
        "LSTM": 2 * Recurrent.MAC,
        "LSTM elementwise": 6_400,
    }
    assert total.reason == "note: its multiply-adds are 0, with none for LSTM"
    total, *rows = count(Attention(), torch.randn(2, 5, 12), batch_size=2)
    assert by_operator(rows) == {"F.linear": (11_520, "flop", 11_520)}
    assert len(total.not_understood) == 1
    assert "scaled_dot_product" in next(iter(total.not_understood))


class Functions(nn.Module):
    """3 × 4 by 4 × 5, 60 MAC each: `@` and mm unseen, matmul and einsum (2·60 and 1) seen; baddbmm of 1 × 3 × 5."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 5))

    def forward(self, left):
        scores = left @ self.weight + torch.mm(left, self.weight)
        scores = torch.add(scores, torch.einsum("ij,jk->ik", left, self.weight) + torch.matmul(left, self.weight))
        return torch.baddbmm(scores[None], left[None], self.weight[None])


def test_functions_of_torch():
    total, *rows = count(Functions(), torch.randn(3, 4))
    assert {name: flop for name, (flop, _, _) in by_operator(rows).items()} == {
        "torch.einsum": 121,
        "torch.matmul": 120,
        "torch.add": 15,
        "torch.baddbmm": 120,
        "torch.baddbmm elementwise": 15,
    }
    assert (total.ignored, total.not_understood) == ({"aten.add": 2}, {"aten.mm": 2})
    assert total.reason == f"note: its multiply-adds are {2 * 60}, with none for torch.einsum"


def test_a_layer_in_two_parents_counts_twice_for_each():
    model = shared()
    total, *rows = count(model, torch.randn(1, 4))
    assert (total.native_value, total.parameters) == (2 * 2 * 2 * 16, 16)
    assert by_module(rows) == {"0": 64, "0.0": 64, "1": 64, "1.0": 64}
    assert printed(model, torch.randn(1, 4)) == (128, 64, 16)


def test_it_runs_in_eval_mode_with_gradients_on_and_leaves_nothing():
    """baddbmm too, which calflops itself forgets."""
    leaves_nothing(count, (False, True), functions)


def test_a_model_that_raises_leaves_nothing_and_the_next_count_is_right():
    raises_and_leaves_nothing(count, functions)
    assert (calculate_pipline.module_flop_count, calculate_pipline.module_mac_count) == ([], [])
    assert by_operator(count(Pair(), torch.randn(5, 4), torch.randn(5, 4)))["F.linear"][0] == 240


def test_inputs_that_it_cannot_move_are_its_fault():
    with pytest.raises(AttributeError, match="'list' object has no attribute 'to'"):
        count(shared(), [torch.randn(1, 4)])


def test_its_functions_are_all_known_to_analysis():
    patches = (
        lambda: pytorch_ops._patch_functionals({}, [], []),
        lambda: pytorch_ops._patch_tensor_methods({}, [], []),
    )
    hooks = {kind.__name__ for kind in pytorch_ops.MODULE_HOOK_MAPPING}
    assert replaced_functions(pytorch_ops, TORCH, patches) | hooks == set(OPERATORS["calflops"])
