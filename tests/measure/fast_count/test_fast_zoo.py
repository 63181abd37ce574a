"""torchvision's models by the fast count: equal to the executed trace to the last FLOP, forward and backward.

In training mode, where googlenet and inception have auxiliary outputs. By default a few models, which change from day
to day; all of them are slow.
"""

from __future__ import annotations

import datetime

import pytest
import torch

from measure.fast_count.fast_count import fast_count
from tests.support.nets.fast_nets import agree
from workloads.catalogue.catalogue import ENTRIES
from workloads.vision import models as vision_models

TASKS = ("classification", "segmentation", "video")
NAMES = [name for name, entry in ENTRIES.items() if entry.task in TASKS]
QUICK = [name for name in NAMES if ENTRIES[name].task == "classification" and "swin" not in name and "_v2_" not in name]
TODAY = datetime.datetime.now(tz=datetime.UTC).toordinal()
FAST = {"googlenet", "mobilenet_v2", "vit_b_32", *(QUICK[(TODAY * 3 + step) % len(QUICK)] for step in range(3))}


def on_meta(name, batch_size=2):
    workload = vision_models.get(name)
    with torch.device("meta"):
        model = workload.build(**workload.hyper)
        return model, workload.batch(workload.hyper, batch_size, torch.device("meta"), None).inputs


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_equal_to_the_executed_trace(name):
    model, inputs = on_meta(name)
    found = agree(model, inputs)
    assert found.not_understood == {}
    evaluated = fast_count(model, inputs, train=False)
    assert evaluated.forward_flop <= found.forward_flop  # auxiliary outputs are there in training alone
    assert (model.training, evaluated.executed) == (True, False)


MULTIPLY_ADDS = {
    "resnet18": (1_813_566_464, 3_509_118_976),
    "mobilenet_v2": (299_507_072, 588_176_128),
    "resnet152": (11_511_599_104, 22_905_184_256),
    "swin_t": (4_489_806_336, 8_965_161_984),
    "vit_b_16": (17_563_067_904, 35_010_530_304),
}
"""Forward and backward, one image of 224 × 224, 10 classes: by an independent counter, as in test_trace_zoo.py."""


@pytest.mark.parametrize("name", MULTIPLY_ADDS)
def test_twice_the_multiply_adds_of_an_independent_counter(name):
    workload = vision_models.get(name, num_classes=10)
    with torch.device("meta"):
        model, image = workload.build(**workload.hyper), torch.empty(1, 3, 224, 224)
    forward, backward = MULTIPLY_ADDS[name]
    found = fast_count(model, (image,))
    assert (found.forward_flop, found.backward_flop) == (2 * forward, 2 * backward)


def test_blocks_that_are_alike_are_run_once():
    """ResNet-152 has 50 blocks; of each of its four stages the first and the second differ (the stride, the width of
    the input), and all later ones are as the second: 50 - 8 are not run."""
    model, inputs = on_meta("resnet152")
    assert fast_count(model, inputs).replayed == 42
    assert fast_count(model, inputs, reuse=False).replayed == 0
