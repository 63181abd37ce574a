"""Definition, known answer, injected fault: our own count by hand, and against the products of other counters."""

import pytest
import torch
from torch import nn

from measure.counters.adapters.dispatched import flop_counter_mode, flopledger
from measure.counters.adapters.ptflops import ptflops
from measure.counters.adapters.traced import fvcore
from results.errors import Unavailable
from tests.support.nets.counted_nets import Broken
from tests.support.nets.small_steps import Calls
from tests.support.nets.zero_models import zeroed

TINY = ("resnet18", "mobilenet_v2", "alexnet", "vgg11")


def count(adapter, model, *inputs, batch_size=1):
    return adapter(model, inputs, workload="w", batch_size=batch_size)


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
    rows = count(flopledger, model, images, batch_size=2)
    forward, backward = by_hand(model, images)
    assert (total(rows, "forward").flop, total(rows, "backward").flop) == (2 * forward, 2 * backward)
    assert total(count(flop_counter_mode, model, images), "forward").flop == 2 * forward
    fv = {row.operator: row for row in count(fvcore, model, images, batch_size=2) if row.scope == "total"}
    assert fv["conv"].native_value + fv["linear"].native_value == forward
    pt = {row.operator: row for row in count(ptflops, model, images, batch_size=2) if row.scope == "total"}
    assert pt["Conv2d"].native_value + pt["Linear"].native_value == forward


def test_rows_by_kind_and_phase():
    """On 2 × 3 × 4 × 4: convolution 3→4, 3 × 3, padding 1: 32 positions × 4 × 27 = 3,456 MAC; linear 64→5: 640 MAC.
    Backward: the convolution's weight alone, 3,456; the linear layer twice, 1,280."""
    body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
    model = Calls(lambda m, images: m.head(m.body(images).flatten(1)), body=body, head=nn.Linear(64, 5))
    rows = count(flopledger, model, torch.randn(2, 3, 4, 4), batch_size=2)
    assert {(row.phase, row.scope, row.operator): row.native_value for row in rows} == {
        ("forward", "total", ""): 2 * (3_456 + 640),
        ("forward", "total", "convolution"): 2 * 3_456,
        ("forward", "total", "matmul"): 2 * 640,
        ("backward", "total", ""): 2 * (3_456 + 1_280),
        ("backward", "total", "convolution"): 2 * 3_456,
        ("backward", "total", "matmul"): 2 * 1_280,
    }
    assert all(row.flop == row.native_value for row in rows)
    assert {(row.counter, row.workload, row.batch_size) for row in rows} == {("flopledger", "w", 2)}
    forward = total(rows, "forward")
    assert (forward.ignored, forward.not_understood) == ({"aten.native_batch_norm": 1, "aten.relu": 1}, {})


def test_a_model_that_cannot_run_at_all_says_why():
    with pytest.raises(Unavailable, match="the step could not be run: no such thing"):
        count(flopledger, Broken(), torch.randn(2, 4))
