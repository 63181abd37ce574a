"""Catamount's models at the sizes of its published numbers, and docs/catamount.md, which compares the two.

    python -m benchmarks.pages.catamount --write docs/catamount.md

Traces a step of each model on fake tensors: charlm's 150 time steps take the longest. Without --write it prints the
table of totals. `PUBLISHED` is what Catamount's own tests assert; it claims nothing about a device.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import torch

from analysis.catamount import rules as catamount_rules
from analysis.operators import registry
from measure.operations.tracer import StepParts, Trace, to_fake, trace
from reports.formula.catamount_page import CatamountModel, overview, page
from workloads.catalogue.catalogue import factory
from workloads.training.step import OPTIMIZERS, TrainingStep

PUBLISHED = {
    "wordlm": (64, (104_378_326, 2_597_058_084_257, 143_652_774_404, 49_660_373_192)),
    "charlm": (128, (88_785_316, 10_228_050_930_711, 445_302_356_084, 156_135_676_796)),
    "nmt": (128, (146_890_753, 1_053_984_410_589, 36_901_043_741, 14_551_615_608)),
    "speech": (32, (71_084_729, 568_878_183_032, 92_231_419_797, 32_624_988_214)),
    "resnet18": (32, (11_689_514, 349_684_163_360, 7_186_222_676, 2_802_084_304)),
    "resnet34": (32, (21_797_674, 705_506_994_208, 11_162_578_644, 4_368_689_744)),
    "resnet50": (32, (25_557_034, 790_954_958_112, 32_896_462_028, 12_909_734_408)),
    "resnet101": (32, (44_549_162, 1_506_507_229_472, 50_026_672_916, 19_690_293_072)),
    "resnet152": (32, (60_192_810, 2_222_688_328_992, 70_967_716_188, 27_971_880_088)),
}
"""Model → batch, and parameters, FLOP, bytes and total footprint that Catamount's own tests assert at base sizes
(github.com/baidu-research/catamount at 4591f79, catamount/tests/full)."""


def traced(model: str, batch: int, **hyper: int) -> tuple[Trace, int, Mapping[str, int]]:
    """(the trace of one training step with the graph's optimizer, elements of the parameters, the sizes)."""
    module, _, function = factory(model).partition(":")
    workload = getattr(import_module(module), function)(model, **hyper)
    with torch.device("meta"):
        net = workload.build(**workload.hyper)
    parameters = sum(prod(parameter.shape) for parameter in net.parameters())
    return trace(_parts(workload, net, batch, catamount_rules.optimizer_of(model))), parameters, workload.hyper


def _parts(workload: Any, net: torch.nn.Module, batch: int, optimizer: str) -> Callable[[Any], StepParts]:
    def parts(mode: Any) -> StepParts:
        fake = to_fake(net, mode)
        with mode:
            made = workload.batch(workload.hyper, batch, torch.device("cpu"), None)
            chosen = OPTIMIZERS[optimizer](fake.parameters())
            step = TrainingStep(fake, workload.loss, chosen, [made], "cpu")
        return StepParts(step, fake, chosen, (made.inputs, made.target))

    return parts


def rules(step: Trace, parameters: int) -> tuple[int, int, int, int]:
    """What the rules alone give: parameters, FLOP, bytes, total footprint."""
    cost = registry.total(step.operations, catamount_rules.RULES)
    held = sum(catamount_rules.footprint(operation) for operation in step.operations) + catamount_rules.variable_bytes(
        step.storages
    )
    return parameters, cost.all_flop, cost.moved_bytes, held


def model_of(name: str) -> CatamountModel:
    """A model as the page shows it."""
    batch, published = PUBLISHED[name]
    step, parameters, sizes = traced(name, batch)
    return CatamountModel(
        name, {"batch": batch, **sizes}, catamount_rules.optimizer_of(name), rules(step, parameters), published
    )


def main() -> int:
    """Write the page, or print its table of totals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there")
    options = parser.parse_args()
    models = [model_of(name) for name in PUBLISHED]
    if options.write is None:
        print(overview(models))
    else:
        options.write.write_text(page(models))
    return 0


if __name__ == "__main__":
    sys.exit(main())
