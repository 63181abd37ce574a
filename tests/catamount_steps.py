"""Steps of Catamount's models on fake tensors, counted by its rules with the terms of its graphs on top."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from math import prod
from typing import Any

import sympy
import torch

from analysis import catamount, kinds
from analysis.catamount_terms import QUANTITIES, terms
from measure.operations import StepParts, Trace, to_fake, trace
from workloads.catalogue import factory
from workloads.training import OPTIMIZERS, TrainingStep

PUBLISHED = {
    "wordlm": (64, (104_378_326, 2_597_058_084_257, 143_652_774_404, 49_660_373_192)),
    "charlm": (128, (88_785_316, 10_228_050_930_711, 445_302_356_084, 156_135_676_796)),
    "nmt": (128, (146_890_753, 1_053_984_410_589, 36_901_043_741, 14_551_615_608)),
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
    held = 0

    def parts(mode: Any) -> StepParts:
        nonlocal held
        with torch.device("meta"):
            net = workload.build(**workload.hyper)
        held = sum(prod(parameter.shape) for parameter in net.parameters())
        net = to_fake(net, mode)
        with mode:
            made = workload.batch(workload.hyper, batch, torch.device("cpu"), None)
            optimizer = OPTIMIZERS[catamount.optimizer_of(model)](net.parameters())
            step = TrainingStep(net, workload.loss, optimizer, [made], "cpu")
        return StepParts(step, net, optimizer, (made.inputs, made.target))

    return trace(parts), held, workload.hyper


def rules(step: Trace, parameters: int) -> tuple[int, int, int, int]:
    """What the rules alone give: parameters, FLOP, bytes, total footprint."""
    cost = kinds.total(step.operations, catamount.RULES)
    held = sum(catamount.footprint(operation) for operation in step.operations) + catamount.kept(step.storages)
    return parameters, cost.all_flop, cost.moved_bytes, held


def on_top(model: str, sizes: Mapping[str, int]) -> tuple[int, int, int, int]:
    """What the terms add at these sizes, `batch` among them."""
    found = dict.fromkeys(QUANTITIES, 0)
    for term in terms(model):
        names = {str(symbol): symbol for symbol in sympy.sympify(term.formula).free_symbols}
        found[term.quantity] += int(sympy.sympify(term.formula).subs({names[name]: sizes[name] for name in names}))
    return tuple(found.values())  # type: ignore[return-value]


def counted(model: str, batch: int, **hyper: int) -> tuple[int, int, int, int]:
    """Rules and terms together."""
    step, parameters, sizes = traced(model, batch, **hyper)
    added = on_top(model, {**sizes, "batch": batch})
    return tuple(map(sum, zip(rules(step, parameters), added, strict=True)))  # type: ignore[return-value]
