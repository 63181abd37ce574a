"""The corrected FlopCounterMode: equal to our own count on whole models, to plain loops where PyTorch's is wrong."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.adapters import own
from measure.counters.harness.corrected import flop_counter_mode
from measure.model.run import summed
from tests.support.nets.small_steps import Calls
from tests.support.nets.zero_models import zeroed
from tests.support.oracles import naive


def flop(call, mode=flop_counter_mode, **options):
    """What a mode counts while `call` runs."""
    with mode(display=False, **options) as counter:
        call()
    return counter.get_total_flops()


def totals(model, *inputs):
    """(forward, backward) by our own count."""
    rows = own.count(model, inputs, workload="w", batch_size=1)
    found = {row.phase: row.flop for row in rows if (row.scope, row.operator) == ("total", "")}
    return found["forward"], found["backward"]


def values():
    """Attention of which the values alone need a gradient, though its kernel computes all three."""
    return Calls(lambda m, x: F.scaled_dot_product_attention(x, x, m.layer(x)), layer=nn.Linear(32, 32))


class Pairs(nn.Bilinear):
    """Both inputs in one tensor."""

    def forward(self, x):
        return super().forward(*x.split((5, 6), 1))


MODELS = {
    "mobilenet_v2": lambda: (zeroed("mobilenet_v2"), torch.randn(2, 3, 64, 64)),
    "efficientnet_b0": lambda: (zeroed("efficientnet_b0"), torch.randn(1, 3, 64, 64)),
    "convnext_tiny": lambda: (zeroed("convnext_tiny"), torch.randn(1, 3, 64, 64)),
    "vit_b_16": lambda: (zeroed("vit_b_16", image_size=32), torch.randn(1, 3, 32, 32)),
    "lstm": lambda: (nn.LSTM(12, 8, num_layers=2, bidirectional=True), torch.randn(5, 3, 12)),
    "values": lambda: (values(), torch.randn(2, 4, 16, 32)),
    "bilinear": lambda: (Pairs(5, 6, 7), torch.randn(3, 11, requires_grad=True)),
    "gru": lambda: (nn.GRU(12, 8), torch.randn(5, 3, 12)),
    "encoder": lambda: (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2, enable_nested_tensor=False),
        torch.randn(2, 6, 16),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_whole_models_have_our_own_count(name):
    model, inputs = MODELS[name]()
    model.eval()
    forward, backward = totals(model, inputs)
    with torch.no_grad():
        assert flop(lambda: model(inputs)) == forward, "in evaluation, by the fused paths"
    assert flop(lambda: summed(model(inputs)).backward()) == forward + backward
    assert forward > 0 < backward


@pytest.mark.parametrize(("dimensions", "transposed"), list(itertools.product((1, 2), (False, True))))
def test_convolutions_take_what_loops_take(dimensions, transposed):
    """Grouped, depthwise, strided, dilated, transposed: plain loops over every tap, forward and both gradients."""
    functions = {
        (1, False): F.conv1d,
        (2, False): F.conv2d,
        (1, True): F.conv_transpose1d,
        (2, True): F.conv_transpose2d,
    }
    grouped = 0
    for seed in range(12):
        case = naive.random_convolution(seed, dimensions, transposed)
        grouped += case.groups > 1
        x = torch.randn(case.batch, case.groups * case.channels_in, *case.size, requires_grad=True)
        w = torch.randn(case.weight_shape, requires_grad=True)
        extra = {"output_padding": case.output_padding} if transposed else {}
        settings = {"stride": case.stride, "padding": case.padding, "dilation": case.dilation, "groups": case.groups}
        function = functions[dimensions, transposed]
        g = np.zeros((case.batch, case.groups * case.channels_out, *case.out_size))
        loops = [found.count for found in naive.convolution(case, x.detach().numpy(), w.detach().numpy(), g)]
        assert flop(lambda: function(x, w, **settings, **extra).sum().backward()) == 2 * sum(loops)  # noqa: B023
        frozen = x.detach()
        assert flop(lambda: function(frozen, w, **settings, **extra).sum().backward()) == 2 * (loops[0] + loops[2])  # noqa: B023
    assert grouped >= 3


def rows(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


# (64, 32) @ (32,) is 64 · 32 multiply-adds, and so on: each in FLOP, 2 a multiply-add, complex ones 8.
PRODUCTS = {
    "mv": (lambda: rows(64, 32) @ rows(32), 2 * 64 * 32),
    "dot": (lambda: torch.dot(rows(1000), rows(1000)), 2 * 1000),
    "vdot": (lambda: torch.vdot(rows(10), rows(10)), 2 * 10),
    "addmv": (lambda: torch.addmv(rows(3), rows(3, 6), rows(6)), 2 * 3 * 6),
    "addr": (lambda: torch.addr(rows(3, 5), rows(3), rows(5)), 0),
    "addbmm": (lambda: torch.addbmm(rows(3, 5), rows(4, 3, 6), rows(4, 6, 5)), 2 * 4 * 3 * 6 * 5),
    "addmm_": (lambda: rows(3, 5).addmm_(rows(3, 6), rows(6, 5)), 2 * 3 * 6 * 5),
    "baddbmm_": (lambda: rows(4, 3, 5).baddbmm_(rows(4, 3, 6), rows(4, 6, 5)), 2 * 4 * 3 * 6 * 5),
    "mm out": (lambda: torch.mm(rows(3, 6), rows(6, 5), out=rows(3, 5)), 2 * 3 * 6 * 5),
    "bilinear": (lambda: nn.Bilinear(24, 20, 10)(rows(2, 24), rows(2, 20)), 2 * 2 * (24 + 1) * 20 * 10),
    "cdist": (lambda: torch.cdist(rows(50, 32), rows(40, 32)), 2 * 50 * 40 * 32),
    "int": (lambda: torch._int_mm(rows(32, 16, dtype=torch.int8), rows(16, 8, dtype=torch.int8)), 2 * 32 * 16 * 8),
    "complex": (lambda: rows(4, 6, dtype=torch.complex64) @ rows(6, 5, dtype=torch.complex64), 8 * 4 * 6 * 5),
    "einsum": (lambda: torch.einsum("...i,ij->...j", rows(2, 3, 4), rows(4, 5)), 2 * 2 * 3 * 4 * 5),
    "grouped": (
        lambda: torch._grouped_mm(
            rows(32, 16, dtype=torch.bfloat16),
            rows(2, 16, 64, dtype=torch.bfloat16),
            offs=torch.tensor([16, 32], dtype=torch.int32),
        ),
        2 * 32 * 16 * 64,
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_products_in_every_mode_of_gradients(name, context):
    call, right = PRODUCTS[name]
    with context():
        assert flop(call) == right


def test_attention_backward_is_twice_its_forward_or_as_executed():
    """q, k, v (2, 4, 16, 32): Q Kᵀ and P V take 2 · 4 · 16 · 16 · 32 multiply-adds each; backward 4, executed 5."""
    q, k, v = (torch.randn(2, 4, 16, 32, requires_grad=True) for _ in range(3))
    product = 2 * 2 * 4 * 16 * 16 * 32

    def step():
        F.scaled_dot_product_attention(q, k, v).sum().backward()

    assert flop(step) == (2 + 4) * product
    assert flop(step, executed_attention=True) == (2 + 5) * product
