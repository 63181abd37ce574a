"""DeepSpeed's flops profiler: hand-derived counts of each rule, its own total, and torch left as it was."""

from __future__ import annotations

import einops
import torch
import torch.nn.functional as F
from deepspeed.profiling.flops_profiler import get_model_profile, profiler
from torch import nn

from analysis.utilization.counter_operators import OPERATORS, kind_of_operator
from measure.counters.adapters import deepspeed
from measure.counters.adapters.wrapped_functions import TORCH
from tests.support.nets.counted_nets import (
    IMAGES,
    PARAMETERS,
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

count = counting(deepspeed)


def printed(model, *inputs):
    """What a user of DeepSpeed sees: FLOP, multiply-adds, parameters."""
    return get_model_profile(model, args=list(inputs), print_profile=False, as_string=False)


def functions():
    return (F.linear, F.relu, F.interpolate, torch.matmul, torch.mm, torch.baddbmm, torch.Tensor.add, einops.einsum)


def test_a_model_of_known_sizes():
    model, images = Small(), torch.randn(IMAGES)
    total, *rows = count(model, images, batch_size=2)
    expected = {
        "F.conv2d": 2 * (43_200 + 3_600),
        "F.conv2d elementwise": 1_600,
        "F.batch_norm": 2 * 400,
        "F.relu": 400 + 12,  # the module calls it; the function too
        "F.max_pool2d": 400,  # its input
        "F.conv_transpose2d": 2 * 1_024,
        "F.conv_transpose2d elementwise": 128,
        "F.adaptive_avg_pool2d": 128,
        "F.linear": 2 * 48,  # its bias is not counted
    }
    assert by_operator(rows) == {name: (flop, "flop", flop) for name, flop in expected.items()}
    assert (total.native_value, total.native_unit, total.flop) == (99_212, "flop", sum(expected.values()))
    products = sum(flop for name, flop in expected.items() if kind_of_operator("deepspeed", name) != "elementwise")
    mac = (products - 800 - 412 - 400 - 128) // 2
    assert printed(model, images) == (99_212, mac, PARAMETERS + 20) == (99_212, 47_872, total.parameters)
    assert (total.ignored, total.not_understood, total.reason) == ({"aten.sigmoid": 1}, {}, "")
    assert {(row.counter, row.workload, row.batch_size, row.phase) for row in (total, *rows)} == {
        ("deepspeed", "w", 2, "forward")
    }


def test_functions_go_to_the_module_that_called_them():
    (total, *rows) = count(Small(), torch.randn(IMAGES), batch_size=2)
    modules = by_module(rows)
    assert modules == {
        "conv": 86_400 + 1_600,
        "depthwise": 7_200,
        "norm": 800,
        "relu": 400,
        "pool": 400,
        "transposed": 2_048 + 128,
        "average": 128,
        "head": 96,
        "head.0": 96,
    }
    top = [value for path, value in modules.items() if "." not in path]
    assert total.native_value == sum(top) + 12  # F.relu in its own forward


def test_a_recurrent_layer_has_its_products_although_deepspeed_gives_it_none():
    """Beside 2 a multiply-add, a layer, direction and step: − 2·64 for the first addition of each dot product,
    + 10·16 for the cell, + 128 biases = 160; of 2 layers, 10 steps, 2 directions."""
    model, sequence = Recurrent(), torch.randn(2, 5, 8)
    total, *rows = count(model, sequence, batch_size=2)
    assert by_operator(rows) == {
        "LSTM": (2 * Recurrent.MAC, "flop", 2 * Recurrent.MAC),
        "LSTM elementwise": (160 * 2 * 10 * 2, "flop", 6_400),
    }
    assert printed(model, sequence)[:2] == (total.native_value, 0)
    assert total.reason == "note: its multiply-adds are 0, with none for LSTM"
    assert total.not_understood == {}


def test_it_runs_in_eval_mode_with_gradients_on_and_leaves_nothing():
    leaves_nothing(count, (False, True), functions)


def test_a_model_that_raises_leaves_nothing_and_the_next_count_is_right():
    raises_and_leaves_nothing(count, functions)
    assert (profiler.module_flop_count, profiler.module_mac_count) == ([], [])
    (total, *_) = count(shared(), torch.randn(1, 4))
    assert total.native_value == 2 * 2 * 16


def test_its_functions_are_all_known_to_analysis():
    patches = (profiler._patch_functionals, profiler._patch_tensor_methods, profiler._patch_miscellaneous_operations)
    hooks = {kind.__name__ for kind in profiler.MODULE_HOOK_MAPPING}
    assert replaced_functions(profiler, {**TORCH, "einops": einops}, patches) | hooks == set(OPERATORS["deepspeed"])


class Functions(nn.Module):
    """3 × 4 by 4 × 5, 60 MAC each: `@`, mm, einsum (2·60 and 1, by numpy), addmm with a bias of 15. On 15 elements
    torch.add and torch.mul, and `a + b`, which no rule sees; 3 × 5 by 5: mv, which none sees."""

    def forward(self, left):
        right, bias = torch.ones(4, 5), torch.ones(3, 5)
        scores = left @ right + torch.mm(left, right)
        scores = torch.add(scores, torch.einsum("ij,jk->ik", left, right))
        return torch.mv(torch.mul(scores, torch.addmm(bias, left, right)), torch.ones(5))


def test_functions_of_torch():
    total, *rows = count(Functions(), torch.randn(3, 4))
    assert {name: flop for name, (flop, _, _) in by_operator(rows).items()} == {
        "Tensor.__matmul__": 120,
        "torch.mm": 120,
        "torch.einsum": 121,
        "torch.addmm": 120,
        "torch.addmm elementwise": 15,
        "torch.add": 15,
        "torch.mul": 15,
    }
    assert (total.ignored, total.not_understood) == ({"aten.add": 1}, {"aten.mv": 1})
    assert total.reason == f"note: its multiply-adds are {3 * 60}, with none for torch.einsum"
