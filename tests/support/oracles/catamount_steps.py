"""Catamount's models counted by its rules with the terms of its graphs on top, and its published numbers."""

from collections.abc import Callable
from importlib import import_module
from math import prod
from typing import Any

import sympy
import torch

from analysis.catamount import rules
from analysis.catamount.graph_terms import QUANTITIES, terms
from analysis.operators import registry
from measure.operations.tracer import StepParts, to_fake, trace
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


def counted(model: str, batch: int, **hyper: int) -> tuple[int, ...]:
    """(parameters, FLOP, bytes, total footprint) of one step at these sizes, with the graph's optimizer."""
    module, _, function = factory(model).partition(":")
    workload = getattr(import_module(module), function)(model, **hyper)
    with torch.device("meta"):
        net = workload.build(**workload.hyper)
    step = trace(_parts(workload, net, batch, rules.optimizer_of(model)))
    cost = registry.total(step.operations, rules.RULES)
    held = sum(rules.footprint(operation) for operation in step.operations)
    held += sum(storage.nbytes for storage in step.storages if storage.role in rules.KEPT)
    own = (sum(prod(parameter.shape) for parameter in net.parameters()), cost.all_flop, cost.moved_bytes, held)
    added = dict.fromkeys(QUANTITIES, 0)
    for term in terms(model):
        formula = sympy.sympify(term.formula)
        sizes = {**workload.hyper, "batch": batch}
        added[term.quantity] += int(formula.subs({symbol: sizes[symbol.name] for symbol in formula.free_symbols}))
    return tuple(map(sum, zip(own, added.values(), strict=True)))


def _parts(workload: Any, net: torch.nn.Module, batch: int, optimizer: str) -> Callable[[Any], StepParts]:
    def parts(mode: Any) -> StepParts:
        fake = to_fake(net, mode)
        with mode:
            made = workload.batch(workload.hyper, batch, torch.device("cpu"), None)
            chosen = OPTIMIZERS[optimizer](fake.parameters())
            step = TrainingStep(fake, workload.loss, chosen, [made], "cpu")
        return StepParts(step, fake, chosen, (made.inputs, made.target))

    return parts
