"""The terms: some derived by hand, and all with symbols that their workload has and a reason."""

from __future__ import annotations

import csv

import pytest
import sympy

from analysis.catamount.graph_terms import FIXED, GRAPHS, QUANTITIES, WHY, Term, nodes, terms
from analysis.catamount.resnet_terms import CLASSES, DEPTHS, IMAGE, WIDTH, sums
from workloads.catalogue.catalogue import entry

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


def test_a_model_without_a_graph_has_no_terms() -> None:
    assert terms("gpt") == terms("vgg16") == ()


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


def test_two_scalars_are_parameters() -> None:
    assert [term.formula for term in terms("resnet18") if term.quantity == "parameters"] == ["2"]
    assert Term("scalar variables", "parameters", "1", WHY["scalar variables"]) in terms("nmt")


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
