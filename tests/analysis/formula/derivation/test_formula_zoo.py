"""Law: formulas of torchvision's models equal the integer count of the operation table at random sizes.

Symbols are the batch, the classes and, but for a few, the image. Models of different families, in
training mode, with an optimizer of which every weight has a state. A few are quick, the others slow.
"""

import random

import pytest
import sympy

from analysis.formula.derive import formulas, parts, totals
from analysis.formula.expressions import value
from analysis.operators import registry
from analysis.operators.cost import numel
from runners.formula_points import SizedModel, axes, sampler
from runners.workers.any_model import get

QUICK = ("alexnet", "resnet18", "squeezenet1_1")
SLOW = (
    "resnext50_32x4d",
    "wide_resnet50_2",
    "vgg11_bn",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mnasnet0_5",
    "efficientnet_b0",
    "efficientnet_v2_s",
    "shufflenet_v2_x1_0",
    "densenet121",
    "googlenet",
    "inception_v3",
    "regnet_y_400mf",
    "regnet_x_400mf",
    "convnext_tiny",
    "vit_b_16",
    "vit_b_32",
    "vit_l_32",
)

POOLED = {"alexnet", "vgg11_bn", "googlenet", "inception_v3"}
"""Models whose image stays as it is. The first three pool to several cells by windows that differ where the side is no
multiple (alexnet to 6 × 6, googlenet's second head to 4 × 4), so that their other FLOP have no formula in the image;
inception_v3 has no image smaller than its own, and takes a minute."""


def subject(model):
    return SizedModel(model, get(model).hyper, 4)


def counted(sample):
    """The counts of a table of whole numbers, by the rules themselves."""
    cost = registry.total(sample.operations)
    return {
        "parameters": sum(numel(shape) for _, shape in sample.parameters),
        "model_flop": cost.model_flop,
        "all_flop": cost.all_flop,
        "bytes_accessed": cost.moved_bytes,
        "total_footprint_bytes": sum(storage.nbytes for storage in sample.storages),
    }


def somewhere(model, where, seed):
    """A point that is not far from what images are, within the steps that the formulas hold for."""
    numbers = random.Random(f"{model} {seed}")
    most = {"batch": 30, "image": 200, "classes": 900}
    return {axis.symbol: axis.value(numbers.randint(2, max(3, most[axis.symbol] // axis.step))) for axis in where}


def agree(model, symbols):
    asked = subject(model)
    looked_at = sampler(asked)
    where = axes(asked, symbols, looked_at)
    derived = formulas(looked_at, where)
    whole = totals(derived)
    assert derived.unsupported == {}
    assert derived.structural == ()
    known = {name: each for name, each in whole.items() if each is not None}
    assert {*whole} - {*known} <= {"eager_footprint_bytes", "minimal_footprint_bytes"}
    assert set(symbols) == {str(symbol) for symbol in sympy.Tuple(*known.values()).free_symbols}
    for seed in (1, 2):
        point = somewhere(model, where, seed)
        assert point not in derived.checked
        sample = looked_at(point)
        assert {name: value(whole[name], point, symbols) for name in counted(sample)} == counted(sample), point
    return derived


@pytest.mark.parametrize("model", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_formulas_are_the_integer_count_at_random_sizes(model):
    agree(model, ["batch", "classes"] if model in POOLED else ["batch", "image", "classes"])


def test_a_pool_of_unequal_windows_has_no_formula_of_its_other_flop_and_everything_else_has():
    asked = subject("alexnet")
    looked_at = sampler(asked)
    where = axes(asked, ["batch", "image"], looked_at)
    derived = formulas(looked_at, where)
    assert {place.name for place, _ in derived.without} == {
        "aten._adaptive_avg_pool2d",
        "aten._adaptive_avg_pool2d_backward",
    }
    whole = totals(derived)
    assert whole.pop("all_flop") is whole.pop("operational_intensity") is None
    assert parts(derived, "kind")["pooling"]["all_flop"] is None
    assert parts(derived, "kind")["convolution"]["all_flop"] is not None
    for seed in (1, 2):
        point = somewhere("alexnet", where, seed)
        exact = counted(looked_at(point))
        exact.pop("all_flop")
        assert {name: value(whole[name], point, ["batch", "image"]) for name in exact} == exact
