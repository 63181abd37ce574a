"""docs/workloads.md against the workloads: its tables of sizes, its names, its messages."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.oracles.fathom_formulas import PARAMETERS, PRODUCTS
from workloads.catalogue import fathom_sizes
from workloads.catalogue.catalogue import entry
from workloads.fathom.registry.registry import FAMILIES
from workloads.sources import any_model
from workloads.training.input_errors import shapes

DOCUMENT = Path(__file__).parents[2] / "docs" / "workloads.md"


def sample(name):
    """Inputs of a batch of its own size."""
    workload = any_model.get(name)
    return shapes(workload.batch(workload.hyper, entry(name).batch_size, torch.device("meta"), None).inputs)


def gflop(multiply_adds, batch_size):
    return f"{float(f'{2e-9 * batch_size * multiply_adds:.3g}'):g}"


def row(name):
    known, inputs = entry(name), sample(name).replace("x", " × ")
    if name in PRODUCTS:
        forward, backward, alone = PRODUCTS[name](**known.hyper)
        parameters = f"{PARAMETERS[name](**known.hyper):,}"
        flop = gflop(forward + backward, known.batch_size), gflop(alone, known.batch_size)
    else:
        parameters, *flop = COUNTED[name]
    return f"| `{name}` | {inputs} | {parameters} | {' | '.join(flop)} | {known.optimizer} |"


COUNTED = {
    "residual@as_paper": ("21,797,672", "348", "117"),
    "gpt2": ("124,439,808", "7000", "2330"),
    "vit": ("86,567,656", "6730", "2250"),
}
"""Of models that others describe: held by test_a_row_that_is_not_by_formula."""


def table_lines():
    """The table of canonical sizes."""
    header = "| name | inputs of a batch | parameters | GFLOP of training | of inference | own optimizer |"
    return [header, "| --- | --- | --: | --: | --: | --- |", *map(row, FAMILIES)]


def small_lines():
    """The table of the small scale."""
    lines = ["| name | batch | sizes |", "| --- | --: | --- |"]
    for model in (*fathom_sizes.FATHOM, *fathom_sizes.MODERN):
        known = entry(fathom_sizes.named(model, small=True))
        sizes = ", ".join(f"`{size}` {value}" for size, value in known.hyper.items())
        lines.append(f"| `{model}@small` | {known.batch_size} | {sizes} |")
    return lines


def test_the_tables_are_those_of_the_workloads():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert "\n".join(table_lines()) in text
    assert "\n".join(small_lines()) in text


@pytest.mark.parametrize("name", COUNTED)
def test_a_row_that_is_not_by_formula(name):
    from measure.fast_count.fast_count import fast_count

    workload, size = any_model.get(name), entry(name).batch_size
    with torch.device("meta"):
        model = workload.build(**workload.hyper)
        inputs = workload.batch(workload.hyper, size, torch.device("meta"), None).inputs
    found = fast_count(model, inputs)
    alone = fast_count(model, inputs, train=False).forward_flop
    whole = found.forward_flop + found.backward_flop
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert (f"{parameters:,}", gflop(whole / 2 / size, size), gflop(alone / 2 / size, size)) == COUNTED[name]


@pytest.mark.parametrize(
    ("name", "hyper", "said"),
    [
        ("fathom-vgg", {"image_size": 100}, "fathom-vgg needs an image size divisible by 32, got 100"),
        (
            "fathom-speech",
            {"labels": 2000},
            "fathom-speech needs frames to be at least labels, 2000; got 1566",
        ),
    ],
)
def test_its_messages_are_those_that_are_given(name, hyper, said):
    assert said in DOCUMENT.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        any_model.get(name, **hyper)
