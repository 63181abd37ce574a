"""cleaning/facts/model_parameters.csv: torchvision's own numbers of its published weights, and models built again."""

from __future__ import annotations

from pathlib import Path

import pytest
from torchvision.models import get_model_weights

from benchmarks.pages import model_parameters
from cleaning.facts.model_parameters import FILE, known_parameters, table
from results.records import Cell
from setup import DATA

ROOT = Path(__file__).parents[3]

IMAGENET = 1000


def _auxiliary(channels: int) -> int:
    """GoogLeNet's classifier beside: a convolution to 128 channels and its normalisation, 2048 → 1024 → 1000."""
    return channels * 128 + 2 * 128 + (2048 + 1) * 1024 + (1024 + 1) * IMAGENET


NOT_IN_WEIGHTS = {"googlenet": _auxiliary(512) + _auxiliary(528)}
"""Parameters that are trained and that torchvision's number is without (Szegedy et al. 2014: after 4a and 4d)."""


def _published() -> list[tuple[str, int, int]]:
    """(model, parameters by torchvision, least image size) of all of its weights with 1000 classes."""
    weights = [(name, each.meta) for name in model_parameters.classifiers() for each in get_model_weights(name)]
    return [
        (name, meta["num_params"], min(meta["min_size"]))
        for name, meta in weights
        if len(meta["categories"] or ()) == IMAGENET
    ]


def test_parameters_are_those_of_torchvisions_weights() -> None:
    rows, seen = table(), set()
    for name, parameters, size in _published():
        row = rows[name]
        if row.image_size in (None, size):
            seen.add(name)
            assert row.parameters(IMAGENET) == parameters + NOT_IN_WEIGHTS.get(name, 0), name
    assert seen == set(rows) == set(model_parameters.classifiers()), "every classifier has weights of 1000 classes"


@pytest.mark.parametrize("name", ["squeezenet1_1", "resnet18", "regnet_y_400mf", "vit_b_32", "googlenet"])
def test_a_row_is_what_the_model_has_when_it_is_built_again(name: str) -> None:
    assert model_parameters.row(name) == table()[name]


@pytest.mark.slow
def test_the_file_is_what_its_command_writes() -> None:
    assert model_parameters.table(model_parameters.classifiers()) == FILE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "slope"),
    [
        ("resnet50", 2048 + 1),
        ("vgg16", 4096 + 1),
        ("squeezenet1_1", 512 + 1),
        ("inception_v3", 2048 + 1 + 768 + 1),  # and the classifier beside
        ("googlenet", 1024 + 1 + 2 * (1024 + 1)),
    ],
)
def test_a_class_costs_what_the_last_layer_has_for_it(name: str, slope: int) -> None:
    assert table()[name].parameters_per_class == slope


def test_a_cell_of_other_sizes_has_no_answer() -> None:
    def cell(model: str, **sizes: object) -> Cell:
        return Cell(model=model, batch_size=1, device="cpu", **sizes)

    assert known_parameters(cell("resnet50", num_classes=10)).parameters(10) == 25_557_032 - 990 * 2049
    assert known_parameters(cell("resnet50", image_size=32, hyper={"width": 64})) == table()["resnet50"]
    assert known_parameters(cell("resnet50", hyper={"width": 128})) is None
    assert (
        known_parameters(cell("vit_b_16")) == known_parameters(cell("vit_b_16", image_size=224)) == table()["vit_b_16"]
    )
    assert known_parameters(cell("vit_b_16", image_size=384)) is None, "one position a patch"
    assert known_parameters(cell("bert")) is None


def test_no_two_names_have_equally_many_parameters() -> None:
    """Else the gate could not tell them apart."""
    for classes in (10, 100, 1000):
        assert len({row.parameters(classes) for row in table().values()}) == len(table())


def test_the_table_is_in_the_package() -> None:
    """A wheel without it has no gate."""
    (pattern,) = DATA["cleaning"]
    assert FILE in (ROOT / "cleaning").glob(pattern)
