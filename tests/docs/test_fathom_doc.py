"""docs/characterize.md against the workloads: its table of sizes."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.support.oracles.fathom_formulas import PARAMETERS, PRODUCTS
from workloads.catalogue.catalogue import entry
from workloads.fathom.registry import FAMILIES
from workloads.sources import any_model
from workloads.training.building import shapes

DOCUMENT = Path(__file__).parents[2] / "docs" / "characterize.md"


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


def test_the_table_is_that_of_the_workloads():
    assert "\n".join(table_lines()) in DOCUMENT.read_text(encoding="utf-8")
