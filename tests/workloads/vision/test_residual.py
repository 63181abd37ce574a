"""ResNets of another width: torchvision's at 64, and parameters by formulas derived here at others."""

from __future__ import annotations

import pytest
import torch
from torchvision.models import get_model

from analysis.operators.registry import total
from measure.fake.mode import to_fake
from measure.operations.tracer import StepParts, trace
from workloads.catalogue.catalogue import ENTRIES
from workloads.training.step import OPTIMIZERS, TrainingStep
from workloads.vision import models as vision_models
from workloads.vision.models import BLOCKS, ResNetOfWidth


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def by_stages(name, width, classes):
    """Convolutions without bias, two numbers a channel of each normalisation, and the linear layer.

    A basic block of p channels from i: 3·3·i·p + 3·3·p·p. A bottleneck from i to 4p: i·p + 3·3·p·p + p·4p. The first
    block of a stage has a 1 × 1 convolution beside it where its numbers of channels differ.
    """
    basic, counts = name in ("resnet18", "resnet34"), BLOCKS[name][1]
    found, entering = 3 * 49 * width + 2 * width, width
    for stage, blocks in enumerate(counts):
        p = width * 2**stage
        leaving = p if basic else 4 * p
        for _ in range(blocks):
            if basic:
                found += 9 * entering * p + 9 * p * p + 2 * (p + p)
            else:
                found += entering * p + 9 * p * p + p * leaving + 2 * (p + p + leaving)
            if entering != leaving:
                found += entering * leaving + 2 * leaving
            entering = leaving
    return found + entering * classes + classes


def test_the_names_are_those_of_the_catalogue():
    assert sorted(BLOCKS) == sorted(name for name, known in ENTRIES.items() if "width" in known.hyper and
                                    known.task == "classification")  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
def test_at_64_it_is_torchvisions(name):
    with torch.device("meta"):
        theirs, own = get_model(name, num_classes=10), ResNetOfWidth(name, 64, 10)
        assert type(vision_models.build(name, image_size=64, num_classes=10)) is type(theirs)
        assert type(vision_models.build(name, image_size=64, num_classes=10, width=64)) is type(theirs)
    shapes = [{key: value.shape for key, value in model.state_dict().items()} for model in (theirs, own)]
    assert shapes[0] == shapes[1]
    assert list(shapes[0]) == list(shapes[1])
    assert str(theirs).partition("\n")[2] == str(own).partition("\n")[2], "strides and padding, too"


@pytest.mark.parametrize("width", [3, 16, 65, 227])
@pytest.mark.parametrize("name", BLOCKS)
def test_parameters_by_stages(name, width):
    with torch.device("meta"):
        assert count(vision_models.build(name, image_size=64, num_classes=7, width=width)) == by_stages(name, width, 7)


@pytest.mark.parametrize(("width", "classes"), [(64, 1000), (16, 10), (227, 1000)])
def test_parameters_of_resnet50_as_catamount_has_them(width, classes):
    """Catamount's formula less its two scalars; 3 channels of input. At 64 and 1000: 25,557,032."""
    expected = 5724 * width**2 + 49 * 3 * width + 32 * width * classes + 830 * width + classes
    assert by_stages("resnet50", width, classes) == expected
    with torch.device("meta"):
        assert count(vision_models.build("resnet50", image_size=64, num_classes=classes, width=width)) == expected


def test_initial_weights_are_torchvisions():
    models = []
    for make in (lambda: ResNetOfWidth("resnet18", 64, 10), lambda: get_model("resnet18", num_classes=10)):
        torch.manual_seed(0)
        models.append(make().state_dict())
    assert [key for key in models[0] if not torch.equal(models[0][key], models[1][key])] == []


def test_it_trains_and_its_products_are_those_of_its_width():
    """First convolution at 32 × 32 positions: 49·3·w each; the last layer: 8w to 10 classes, for one image."""

    def build(mode):
        workload = vision_models.get("resnet18", image_size=64, num_classes=10, width=24)
        model = workload.build(**workload.hyper)
        batch = workload.batch(workload.hyper, 2, torch.device("cpu"), torch.Generator().manual_seed(0))
        if mode is not None:
            to_fake(model, mode)
            batch = to_fake(batch, mode)
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        return StepParts(
            TrainingStep(model, workload.loss, optimizer, [batch], "cpu"),
            model,
            optimizer,
            (batch.inputs, batch.target),
        )

    found = trace(build)
    of = {name: int(total(o for o in found.operations if o.phase == "forward" and o.module == name).model_flop)
          for name in ("conv1", "fc")}  # fmt: skip
    assert of == {"conv1": 2 * 2 * 32 * 32 * 49 * 3 * 24, "fc": 2 * 2 * 8 * 24 * 10}
    step = build(None).step
    step()
    assert torch.isfinite(step.last_loss)


def test_a_width_of_another_model_is_a_mistake():
    with pytest.raises(ValueError, match="wide_resnet50_2 has no width; it has image_size, num_classes"):
        vision_models.get("wide_resnet50_2", width=32)
