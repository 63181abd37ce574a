"""Catamount's models by its rules: its published numbers at base sizes, and its published formulas at others.

The terms: some derived by hand, and all with symbols that their workload has and a reason.
"""

import csv

import pytest
import sympy

from analysis.catamount.graph_terms import FIXED, GRAPHS, QUANTITIES, WHY, nodes, terms
from analysis.catamount.resnet_terms import CLASSES, DEPTHS, IMAGE, WIDTH, sums
from tests.support.oracles.catamount_steps import PUBLISHED, counted
from workloads.catalogue.catalogue import entry


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "charlm" else ()) for name in PUBLISHED]
)
def test_published_numbers_are_reached(name: str) -> None:
    """Rules and terms together are what is published. charlm, 150 time steps of ten sublayers, takes half a minute."""
    batch, published = PUBLISHED[name]
    assert counted(name, batch) == published


# The formulas below are those that Catamount prints for its graphs, with h hidden, v vocabulary, q time steps, b batch.


SMALL = {"batch": 5, "hidden": 24, "vocab": 50, "seq": 6}
OTHERS = {
    "resnet18": (
        {"batch": 4, "width": 32, "image_size": 160, "num_classes": 10}, (5_967_310_768, 305_036_484, 122_472_840),
    ),
    "wordlm": (SMALL, (2_077_763, 2_797_242, 1_059_504)),
    "charlm": (SMALL, (2_886_267, 4_736_642, 1_776_524)),
    "nmt": (SMALL, (4_130_968, 6_467_182, 2_460_282)),
    "speech": (
        {"batch": 3, "hidden": 20, "attention_hidden": 12, "decoder_hidden": 14, "keys": 6, "vocab": 9, "audio": 5,
         "conv_width": 7, "filters": 4, "frames": 32},
        (8_809_426, 20_067_048, 7_603_485),
    ),
}  # fmt: skip
"""Model → sizes, and FLOP, bytes and total footprint there: Catamount's own symbolic sums over its graph (its commit
4591f79 run with TensorFlow 2.21), evaluated at sizes that it never printed."""


@pytest.mark.parametrize("model", OTHERS)
def test_catamount_itself_at_other_sizes(model: str) -> None:
    sizes, expected = OTHERS[model]
    batch, hyper = sizes["batch"], {name: size for name, size in sizes.items() if name != "batch"}
    assert counted(model, batch, **hyper)[1:] == expected


MODELS = ("wordlm", "charlm", "nmt", "speech", *DEPTHS)


def formula(model: str, name: str, quantity: str) -> sympy.Expr:
    (term,) = (term for term in terms(model) if (term.name, term.quantity) == (name, quantity))
    return sympy.sympify(term.formula)


@pytest.mark.parametrize("model", MODELS)
def test_a_term_has_symbols_of_its_workload_and_a_reason(model: str) -> None:
    symbols = {"batch", *entry(model).hyper}
    found = terms(model)
    assert found
    assert len({(term.name, term.quantity) for term in found}) == len(found)
    for term in found:
        assert {symbol.name for symbol in sympy.sympify(term.formula).free_symbols} <= symbols
        assert term.quantity in QUANTITIES
        assert term.why == WHY[term.name]


def test_every_reason_is_used_and_every_graph_is_a_workload() -> None:
    assert {name for model in MODELS for name in nodes(model)} == set(WHY)
    with GRAPHS.open(newline="") as file:
        assert {row["model"] for row in csv.DictReader(file)} == set(MODELS) - set(DEPTHS)
    assert all(entry(model).hyper[size] == value for model, held in FIXED.items() for size, value in held.items())


def test_clipping_wordlm() -> None:
    """Seven gradients (of an embedding's rows, of two matrices and two biases of layers, of softmax and its bias): 3
    for each L2 loss and 1 an element for each product; 13 on scalars: 7 losses added, two ·, √, two ÷, a minimum."""
    h, v, b, q = sympy.symbols("hidden vocab batch seq")
    elements = 2 * 8 * h**2 + 2 * 4 * h + h * v + v + b * q * h
    assert sympy.expand(formula("wordlm", "gradient clipping", "flop") - (elements + 7 * 3 + 7 + 6)) == 0


def test_gradient_of_the_images() -> None:
    """A multiply-add for each of a filter's 49 · 3 weights and each element of the gradient, batch · width · (i/2)²."""
    b, width, image = sympy.symbols("batch width image_size")
    found = formula("resnet50", "gradient of the images", "flop")
    assert sympy.expand(found - 2 * 147 * b * width * (image / 2) ** 2) == 0


@pytest.mark.parametrize(
    ("model", "parameters", "convolutions"),
    [("resnet18", 11_689_512, 20), ("resnet34", 21_797_672, 36), ("resnet50", 25_557_032, 53),
     ("resnet101", 44_549_160, 104), ("resnet152", 60_192_808, 155)],
)  # fmt: skip
def test_sums_over_the_layers_of_a_resnet(model: str, parameters: int, convolutions: int) -> None:
    """torchvision's own counts of parameters; a depth is its convolutions and the linear layer, shortcuts (3 or 4) not
    counted."""
    found = sums(model)
    assert found.parameters.subs({WIDTH: 64, CLASSES: 1000, IMAGE: 224}) == parameters
    assert found.convolutions == convolutions


def test_residual_sums_of_resnet18() -> None:
    """Two blocks a stage: 2 · (c·(i/4)² + 2c·(i/8)² + 4c·(i/16)² + 8c·(i/32)²) = 2c·i²·(1/16 + 1/32 + 1/64 + 1/128)."""
    assert sympy.expand(sums("resnet18").added - WIDTH * IMAGE**2 * sympy.Rational(15, 64)) == 0
