"""Known answer: ResNets of another width are torchvision's at 64, and have the parameters that Catamount gives."""

import pytest
import torch
from torchvision.models import get_model

from workloads import torchvision_models as vision_models
from workloads.torchvision_models import BLOCKS, ResNetOfWidth


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


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


@pytest.mark.parametrize(("width", "classes"), [(64, 1000), (16, 10), (227, 1000)])
def test_parameters_of_resnet50_as_catamount_has_them(width, classes):
    """Catamount's formula less its two scalars; 3 channels of input. At 64 and 1000: 25,557,032."""
    expected = 5724 * width**2 + 49 * 3 * width + 32 * width * classes + 830 * width + classes
    with torch.device("meta"):
        assert count(vision_models.build("resnet50", image_size=64, num_classes=classes, width=width)) == expected
