"""fvcore and ptflops against hand-derived counts, and each adapter's rows against its own total."""

from __future__ import annotations

import importlib

import pytest
import torch
import torch.nn.functional as F
from ptflops import get_model_complexity_info
from ptflops.pytorch_ops import FUNCTIONAL_MAPPING, TENSOR_OPS_MAPPING
from torch import nn

from analysis.operators.registry import PRODUCTS
from analysis.utilization.counter_operators import OPERATORS
from measure.counters.adapters import fvcore, ptflops
from results.errors import Inconsistent
from tests.support.nets.counted_nets import Attention, Pair, Recurrent
from workloads.catalogue.catalogue import SUITES
from workloads.vision import models as vision_models

ADAPTERS = [fvcore, ptflops]


def count(adapter, model, *inputs, batch_size=1):
    return adapter.count(model, inputs, workload="w", batch_size=batch_size)


def whole(rows):
    """The rows of the whole model: without those of its modules."""
    return [row for row in rows if row.scope == "total"]


def by_operator(rows):
    return {row.operator: row for row in whole(rows) if row.operator}


class Small(nn.Module):
    """Every rule once. On 2 × 3 × 10 × 10:

    conv 3→8, 3 × 3, padding 1, bias   2·8·100 positions × 27 = 43,200 MAC, 1,600 biases
    depthwise 8→8, 3 × 3, stride 2, padding 1, no bias   2·8·25 × 9 = 3,600 MAC
    batch norm on 2·8·25 = 400 elements; ReLU on 400; adaptive pooling of 400
    linear 8→4 with bias   2·8·4 = 64 MAC, 8 biases
    """

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout()
        self.sigmoid = nn.Sigmoid()
        self.linear = nn.Linear(8, 4)
        self.unused = nn.Linear(4, 4)
        self.seen = []

    def forward(self, images):
        self.seen.append((self.training, torch.is_grad_enabled()))
        features = self.relu(self.norm(self.depthwise(self.conv(images))))
        return self.sigmoid(self.linear(self.drop(self.pool(features).flatten(1))))


def test_fvcore_on_a_model_of_known_sizes():
    total, *rows = whole(count(fvcore, Small(), torch.randn(2, 3, 10, 10), batch_size=2))
    assert {row.operator: (row.native_value, row.native_unit, row.flop) for row in rows} == {
        "conv": (46_800, "mac", 93_600),
        "linear": (64, "mac", 128),
        "batch_norm": (800, "flop", 800),  # 2 an element in eval mode
        "adaptive_avg_pool2d": (400, "flop", 400),  # 1 an input
    }
    assert (total.native_value, total.native_unit) == (46_800 + 64 + 800 + 400, "mac")
    assert total.flop == 93_600 + 128 + 800 + 400
    assert total.not_understood == {"aten::sigmoid": 1}
    assert total.ignored == {"aten::relu": 1, "aten::flatten": 1, "aten::dropout": 1}
    assert total.reason == "note: modules never called: unused"
    assert total.parameters == 224 + 72 + 16 + 36 + 20
    assert {(row.counter, row.workload, row.batch_size, row.phase, row.scope) for row in (total, *rows)} == {
        ("fvcore", "w", 2, "forward", "total")
    }


def test_ptflops_on_a_model_of_known_sizes():
    total, *rows = whole(count(ptflops, Small(), torch.randn(2, 3, 10, 10), batch_size=2))
    expected = {
        "Conv2d": (46_800, "mac", 93_600),
        "Conv2d elementwise": (1_600, "flop", 1_600),
        "Linear": (64, "mac", 128),
        "Linear elementwise": (8, "flop", 8),
        "BatchNorm2d": (800, "flop", 800),  # 2 an element
        "ReLU": (400, "flop", 400),  # the module …
        "F.relu": (400, "flop", 400),  # … and again the function that it calls
        "AdaptiveAvgPool2d": (400, "flop", 400),
        "F.adaptive_avg_pool2d": (400, "flop", 400),
    }
    assert {row.operator: (row.native_value, row.native_unit, row.flop) for row in rows} == expected
    assert total.native_value == sum(value for value, _, _ in expected.values())
    assert total.flop == sum(flop for _, _, flop in expected.values())
    assert (total.ignored, total.not_understood) == ({"Dropout": 1}, {"Sigmoid": 1})
    modules, functions = total.native_value - 800, 800  # it divides modules by the batch of 2, functions not
    assert f"ptflops printed {modules // 2 + functions};" in total.reason
    assert (total.printed, total.parameters) == (modules // 2 + functions, 224 + 72 + 16 + 36 + 20)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_they_run_in_eval_mode_with_gradients_on(adapter):
    model = Small().train()
    with torch.no_grad():
        count(adapter, model, torch.randn(1, 3, 10, 10))
    assert set(model.seen) == {(False, True)}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_counting_twice_gives_the_same_and_leaves_torch_as_it_was(adapter):
    patched = (F.relu, F.adaptive_avg_pool2d, torch.matmul, torch.add, torch.Tensor.mul)
    rules = (dict(FUNCTIONAL_MAPPING), dict(TENSOR_OPS_MAPPING))
    model, images = Small(), torch.randn(1, 3, 10, 10)
    assert count(adapter, model, images) == count(adapter, model, images)
    assert patched == (F.relu, F.adaptive_avg_pool2d, torch.matmul, torch.add, torch.Tensor.mul)
    assert rules == (FUNCTIONAL_MAPPING, TENSOR_OPS_MAPPING)


def test_at_a_batch_of_one_ptflops_native_value_is_its_print():
    model, images = Small(), torch.randn(1, 3, 10, 10)
    (total, *_) = count(ptflops, model, images)
    printed, _ = get_model_complexity_info(
        Small(), (3, 10, 10), print_per_layer_stat=False, as_strings=False, input_constructor=lambda _: images
    )
    assert (total.native_value, total.reason, total.printed) == (printed, "", None)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_counts_of_a_plain_model_are_linear_in_the_batch(adapter):
    one, three = (count(adapter, Small(), torch.randn(size, 3, 10, 10), batch_size=size) for size in (1, 3))
    assert {n: 3 * row.native_value for n, row in by_operator(one).items()} == {
        n: row.native_value for n, row in by_operator(three).items()
    }


def test_a_model_that_ptflops_cannot_run_is_a_fault_with_its_words(capsys):
    class Broken(nn.Module):
        def forward(self, images):
            raise RuntimeError("no such thing")

    with pytest.raises(Inconsistent, match="no such thing"):
        count(ptflops, Broken(), torch.randn(1, 3))
    assert F.relu.__module__ == "torch.nn.functional"


def test_hooks_that_do_not_add_up_are_a_fault(monkeypatch):
    monkeypatch.setattr(ptflops, "get_model_complexity_info", lambda *_, **__: (123, 0))
    with pytest.raises(Inconsistent, match="printed 123"):
        count(ptflops, Small(), torch.randn(1, 3, 10, 10))


def test_fvcores_operators_are_all_known_and_agree_with_analysis():
    known = OPERATORS["fvcore"]
    assert {name for name, kind in known.items() if kind in PRODUCTS} == fvcore.MATRIX_OPERATORS
    table = importlib.import_module("fvcore.nn.flop_count")._DEFAULT_SUPPORTED_OPS  # the adapter silenced its import
    supported = {name.removeprefix("aten::") for name in table} - {"_convolution"}
    assert supported | {"conv"} == set(known)


def residual_stage(side, width, incoming, blocks):
    """MACs of one stage of ResNet-18: 3 × 3 convolutions, and a 1 × 1 shortcut where the width changes."""
    first = width * incoming * 9 + (width * incoming if incoming != width else 0)
    return side**2 * (first + (2 * blocks - 1) * width * width * 9)


RESNET18 = (
    112**2 * 64 * 3 * 49  # 7 × 7, stride 2
    + residual_stage(56, 64, 64, 2)
    + residual_stage(28, 128, 64, 2)
    + residual_stage(14, 256, 128, 2)
    + residual_stage(7, 512, 256, 2)
    + 512 * 10
)
ALEXNET = (
    55**2 * 64 * 3 * 121
    + 27**2 * 192 * 64 * 25
    + 13**2 * 9 * (384 * 192 + 256 * 384 + 256 * 256)
    + 9_216 * 4_096
    + 4_096 * 4_096
    + 4_096 * 10
)
"""By hand from the papers' tables, one image of 224 × 224, 10 classes."""

POST2021 = {
    "resnet18": RESNET18,
    "resnet34": 3_663_254_528,
    "resnet50": 4_087_156_736,
    "resnet101": 7_799_377_920,
    "resnet152": 11_511_599_104,
    "vgg11": 7_605_035_008,
    "vgg13": 11_304_411_136,
    "vgg16": 15_466_209_280,
    "vgg19": 19_628_007_424,
    "wide_resnet50_2": 11_395_993_600,
    "alexnet": ALEXNET,
    "mobilenet_v2": 299_507_072,
    "efficientnet_b0": 384_547_552,
}
"""Multiply-adds of convolutions and linear layers, forward, one image, 10 classes: counted once with a formula of its
own for each layer's shapes, taps on zero padding included; the first and alexnet are re-derived above."""


def test_the_suite_has_a_count():
    assert set(POST2021) == set(SUITES["post2021"].models)
    assert (RESNET18, ALEXNET) == (1_813_566_464, 710_133_440)


FAST = ("resnet18", "alexnet")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in POST2021]
)
def test_both_counters_give_the_multiply_adds_of_the_suite(name):
    workload = vision_models.get(name, num_classes=10, image_size=224)
    model = workload.build(**workload.hyper)
    (images,) = workload.batch(workload.hyper, 1, torch.device("cpu"), torch.Generator().manual_seed(0)).inputs
    fv, pt = (by_operator(count(adapter, model, images)) for adapter in ADAPTERS)
    assert fv["conv"].native_value + fv["linear"].native_value == POST2021[name]
    assert pt["Conv2d"].native_value + pt["Linear"].native_value == POST2021[name]


def scoped(rows):
    return {(row.scope, row.operator): row.native_value for row in rows if row.scope != "total"}


def test_fvcore_by_module():
    """Sizes as in `Small`; modules that only hold ignored operators have no rows."""
    found = scoped(count(fvcore, Small(), torch.randn(2, 3, 10, 10), batch_size=2))
    expected = {"conv": 43_200, "depthwise": 3_600, "norm": 800, "pool": 400, "linear": 64}
    assert {scope: value for (scope, operator), value in found.items() if not operator} == expected
    operators = {("conv", "conv"), ("depthwise", "conv"), ("norm", "batch_norm"), ("linear", "linear")}
    assert {key for key in found if key[1]} == {*operators, ("pool", "adaptive_avg_pool2d")}


def test_ptflops_by_module_gives_functions_to_the_module_that_called_them():
    found = scoped(count(ptflops, Small(), torch.randn(2, 3, 10, 10), batch_size=2))
    assert found == {
        ("conv", ""): 43_200 + 1_600,
        ("conv", "Conv2d"): 43_200,
        ("conv", "Conv2d elementwise"): 1_600,
        ("depthwise", ""): 3_600,
        ("depthwise", "Conv2d"): 3_600,
        ("norm", ""): 800,
        ("norm", "BatchNorm2d"): 800,
        ("relu", ""): 800,
        ("relu", "ReLU"): 400,
        ("relu", "F.relu"): 400,
        ("pool", ""): 800,
        ("pool", "AdaptiveAvgPool2d"): 400,
        ("pool", "F.adaptive_avg_pool2d"): 400,
        ("linear", ""): 72,
        ("linear", "Linear"): 64,
        ("linear", "Linear elementwise"): 8,
    }


def test_attention_as_a_module():
    """Self-attention of 2 × 5 tokens of 12: projections 4·5·12² = 2,880, scores and sum 2·5·5·12 = 600 MAC a sample.

    Elementwise, a sample: query scaling 60, biases 3·60, softmax 3 heads × 25, output bias 60. fvcore sees no scores.
    """
    tokens = torch.randn(2, 5, 12)
    rows = by_operator(count(ptflops, Attention(), tokens, batch_size=2))
    assert rows["MultiheadAttention"].native_value == 2 * (2_880 + 600)
    assert rows["MultiheadAttention elementwise"].native_value == 2 * (60 + 180 + 75 + 60)
    total, *rest = count(fvcore, Attention(), tokens, batch_size=2)
    assert by_operator(rest)["linear"].native_value == 2 * 2_880
    assert total.not_understood["aten::scaled_dot_product_attention"] == 1


def test_a_recurrent_module_by_ptflops():
    """LSTM 8→16, 2 layers, both directions: weights 4·16·(8 + 16) and 4·16·(32 + 16), 2 × 5 steps, two directions."""
    rows = by_operator(count(ptflops, Recurrent(), torch.randn(2, 5, 8), batch_size=2))
    assert rows["LSTM"].native_value == (64 * 24 + 64 * 48) * 10 * 2


def test_two_inputs_and_a_dictionary_as_output():
    for adapter, name in ((fvcore, "linear"), (ptflops, "Linear")):
        rows = by_operator(count(adapter, Pair(), torch.randn(5, 4), torch.randn(5, 4), batch_size=5))
        assert rows[name].native_value == 2 * 5 * 4 * 3
