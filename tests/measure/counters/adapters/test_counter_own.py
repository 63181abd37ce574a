"""Our own count as a counter: against multiply-adds by hand, peers' products, and the suite's counts of 13 models."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torchvision.models import get_model

from measure.counters.adapters import flop_counter_mode, fvcore, own, ptflops
from results.errors import Unavailable
from tests.support.nets.zero_models import zeroed

TINY = ("resnet18", "mobilenet_v2", "alexnet", "vgg11")


def count(adapter, model, *inputs, batch_size=1):
    return adapter.count(model, inputs, workload="w", batch_size=batch_size)


def total(rows, phase):
    (row,) = [row for row in rows if (row.scope, row.operator, row.phase) == ("total", "", phase)]
    return row


def by_hand(model, images):
    """(forward, backward) multiply-adds: each output of a convolution or linear layer takes one for each weight of its
    channel; backward does as much for every weight and for every input but the first layer's."""
    layers = []

    def note(module, _inputs, output):
        layers.append(output.numel() * module.weight[0].numel())

    products = [module for module in model.modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    handles = [module.register_forward_hook(note) for module in products]
    model.eval()(images)
    for handle in handles:
        handle.remove()
    return sum(layers), 2 * sum(layers) - layers[0]


@pytest.mark.parametrize("name", TINY)
def test_small_images_by_hand_and_by_the_products_of_peers(name):
    model, images = zeroed(name), torch.randn(2, 3, 64, 64)
    rows = count(own, model, images, batch_size=2)
    forward, backward = by_hand(model, images)
    assert (total(rows, "forward").flop, total(rows, "backward").flop) == (2 * forward, 2 * backward)
    assert total(count(flop_counter_mode, model, images), "forward").flop == 2 * forward
    fv = {row.operator: row for row in count(fvcore, model, images, batch_size=2) if row.scope == "total"}
    assert fv["conv"].native_value + fv["linear"].native_value == forward
    pt = {row.operator: row for row in count(ptflops, model, images, batch_size=2) if row.scope == "total"}
    assert pt["Conv2d"].native_value + pt["Linear"].native_value == forward


RATIOS = {
    "resnet18": (1_813_566_464, 3_509_118_976),
    "resnet34": (3_663_254_528, 7_208_495_104),
    "resnet50": (4_087_156_736, 8_056_299_520),
    "resnet101": (7_799_377_920, 15_480_741_888),
    "resnet152": (11_511_599_104, 22_905_184_256),
    "vgg11": (7_605_035_008, 15_123_365_888),
    "vgg13": (11_304_411_136, 22_522_118_144),
    "vgg16": (15_466_209_280, 30_845_714_432),
    "vgg19": (19_628_007_424, 39_169_310_720),
    "wide_resnet50_2": (11_395_993_600, 22_673_973_248),
    "alexnet": (710_133_440, 1_349_990_080),
    "mobilenet_v2": (299_507_072, 588_176_128),
    "efficientnet_b0": (384_547_552, 758_257_088),
}
"""Multiply-adds forward and backward of one image of 224 × 224, 10 classes, input without gradient: the columns fwd_MAC
and bwd_MAC of the project's facts, counters/ratio_13_models.csv, counted there from recorded shapes of every
convolution and product with a formula apart from ours."""


@pytest.mark.parametrize("name", RATIOS)
def test_the_models_of_the_suite_forward_and_backward(name):
    """Sizes alone decide, so that a model without values, on the meta device, gives the count of a real one."""
    with torch.device("meta"):
        model, images = get_model(name, num_classes=10), torch.empty(1, 3, 224, 224)
    rows = count(own, model, images)
    forward, backward = RATIOS[name]
    assert (total(rows, "forward").native_value, total(rows, "backward").native_value) == (2 * forward, 2 * backward)
    assert {row.native_unit for row in rows} == {"flop"}
    assert total(rows, "forward").reason == ""


class Known(nn.Module):
    """On 2 × 3 × 4 × 4: convolution 3→4, 3 × 3, padding 1: 32 positions × 4 × 27 = 3,456 MAC; linear 64→5: 640 MAC.

    Backward: the convolution's weight alone, 3,456; the linear layer twice, 1,280.
    """

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(64, 5)
        self.seen = []

    def forward(self, images):
        self.seen.append((self.training, torch.is_grad_enabled(), type(images) is torch.Tensor))
        return self.head(self.body(images).flatten(1))


def test_rows_by_kind_phase_and_module():
    rows = count(own, Known(), torch.randn(2, 3, 4, 4), batch_size=2)
    assert {(row.phase, row.scope, row.operator): row.native_value for row in rows} == {
        ("forward", "total", ""): 2 * (3_456 + 640),
        ("forward", "total", "convolution"): 2 * 3_456,
        ("forward", "total", "matmul"): 2 * 640,
        **{("forward", scope, o): 2 * 3_456 for scope in ("body", "body.0") for o in ("", "convolution")},
        **{("forward", "head", o): 2 * 640 for o in ("", "matmul")},
        ("backward", "total", ""): 2 * (3_456 + 1_280),
        ("backward", "total", "convolution"): 2 * 3_456,
        ("backward", "total", "matmul"): 2 * 1_280,
        **{("backward", scope, o): 2 * 3_456 for scope in ("body", "body.0") for o in ("", "convolution")},
        **{("backward", "head", o): 2 * 1_280 for o in ("", "matmul")},
    }
    assert all(row.flop == row.native_value for row in rows)
    assert {(row.counter, row.workload, row.batch_size) for row in rows} == {("flopledger", "w", 2)}
    forward = total(rows, "forward")
    assert (forward.ignored, forward.not_understood) == ({"aten.native_batch_norm": 1, "aten.relu": 1}, {})


def test_where_a_size_depends_on_data_the_real_tensors_run():
    class Data(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3, bias=False)

        def forward(self, tokens):
            return self.linear(tokens[tokens.sum(1) > 0])  # as many rows as are positive

    model, tokens = Data(), torch.tensor([[1.0] * 4, [-1.0] * 4, [2.0] * 4])
    rows = count(own, model, tokens)
    assert (total(rows, "forward").flop, total(rows, "backward").flop) == (2 * 2 * 12, 2 * 2 * 12)
    assert "real tensors: the size of a tensor depends on values" in total(rows, "forward").reason
    assert model.linear.weight.grad is None


def test_a_model_that_cannot_run_at_all_says_why():
    class Broken(nn.Module):
        def forward(self, images):
            raise RuntimeError("no such thing")

    with pytest.raises(Unavailable, match="the step could not be run: no such thing"):
        count(own, Broken(), torch.randn(1, 3))


def test_frozen_weights_have_no_backward_pass():
    rows = count(own, nn.Linear(4, 4).requires_grad_(False), torch.randn(3, 4))
    assert {row.phase for row in rows} == {"forward"}


def test_strangers_are_listed():
    rows = count(own, Stranger(), torch.randn(3, 4))
    assert total(rows, "forward").not_understood == {"flopledger_tests.doubled": 1}


@torch.library.custom_op("flopledger_tests::doubled", mutates_args=())
def doubled(tokens: torch.Tensor) -> torch.Tensor:
    return tokens * 2


class Stranger(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, tokens):
        return self.linear(doubled(tokens))
