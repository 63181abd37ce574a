"""A budget spent in a domain with a learning curve of its own: data, parameters and error."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.devices import memory as devices_memory
from analysis.project.compute import Curve, family_of
from analysis.project.frontier import (
    Accelerator,
    Domain,
    Formulas,
    accelerator,
    domain_inputs,
    frontier,
    running_costs,
    shipped,
)
from analysis.project.frontier import domain as frontier_domain
from analysis.stats import Input, answers, tornado
from reports.project import BudgetAnswer
from results import read_text, toml_tables
from runners.cli import Mistake, choice_error
from runners.project.machine import expenses, machine
from runners.project.output import budget_flop, intervals_of, request_json


def domain_answer(options: Namespace) -> BudgetAnswer:
    """All answers. Raises Mistake."""
    domain, formulas = _domain(options.domain)
    options.family = options.family or family_of(domain.model)
    if options.family is None and options.utilization is None:
        raise Mistake(f"--utilization: expected with {options.domain}: no published run of such a model is known here")
    reached, given = machine(options), expenses(options)
    inputs = {**_interval_inputs(domain), "utilization": reached.utilization, **given}
    curve = Curve(domain, formulas)

    def function(draws: Mapping[str, Any]) -> dict[str, Any]:
        flop, hours = budget_flop(options, reached.peak_flop_per_s, draws)
        found = curve.bought(flop, {name: draws[name] for name in _interval_inputs(domain)})
        days = hours / 24 / options.devices
        return {**found, "flop": flop, "gpu_hours": hours, "days": days, **running_costs(hours, draws)}

    try:
        found = answers(function, inputs, options.confidence)
    except ValueError as fault:
        raise Mistake(f"--budget: {fault}") from fault
    moved = [name for name in ("error", "parameters", "gpu_hours", "cost", "co2_kg") if name in found]
    value, unit = options.budget
    return BudgetAnswer(
        title=f"{value:g} {unit} of {domain.name} on {reached.device}, {reached.precision}",
        asked=request_json(options),
        domain=options.domain,
        law="",
        answers=found,
        swings={name: tornado(function, inputs, name, options.confidence) for name in moved},
        contrast={},
        fit=None,
        notes=[*_notes(domain), *_batch(domain, formulas, options.device, reached.unit, found["parameters"].value)],
        reached=reached,
        confidence=options.confidence,
        given=intervals_of(given, options.confidence),
        units={"error": domain.error_unit, "data": domain.data_unit},
    )


def _interval_inputs(domain: Domain) -> dict[str, Input]:
    """The numbers of the file that have ends, but for the target, which a budget does not ask for."""
    return {name: each for name, each in domain_inputs(domain).items() if name != "error_target"}


def _notes(domain: Domain) -> list[str]:
    """What the numbers leave out, and which of the file's are in the intervals."""
    drawn = _interval_inputs(domain)
    if not drawn:
        return ["one epoch; the learning curve has no interval: a file may give [value, low, high] for its numbers"]
    return [
        f"one epoch; {', '.join(drawn)} of the file: each as likely below its value as above, never beyond its ends, "
        "independent of the others"
    ]


def _batch(domain: Domain, formulas: Formulas, device: str, unit: str, parameters: float) -> list[str]:
    """The batch, and what of it a device's memory holds where that is known. device: as the caller names it, since
    boards with the same peaks differ in memory."""
    known = f"a step has the file's sub-batch of {domain.sub_batch:,} on each device"
    memory = devices_memory.lookup(device)
    if memory is None:
        return [known]
    size = accelerator.ELEMENT_BYTES[unit]
    target = Accelerator(device, 1.0, 1.0, float(memory.memory_bytes), element_bytes=size)
    largest = frontier.largest_batch(domain, formulas, target, frontier.grown_for(domain, formulas, parameters))
    holds = f"up to {largest:,} at that size" if largest else "none at that size, which takes more than one device"
    return [f"{known}; its {memory.memory_bytes / 1e9:g} GB hold {holds}"]


def _domain(name: str) -> tuple[Domain, Formulas]:
    """A domain of ours by name, or a file. Raises Mistake."""
    path = frontier_domain.FOLDER / f"{name}.toml" if name in frontier_domain.shipped_names() else Path(name)
    if path.suffix != ".toml":
        raise Mistake(f"--domain: {choice_error('domain', name, ['transformer', *frontier_domain.shipped_names()])}")
    try:
        domain = frontier_domain.from_tables(toml_tables(read_text(path)), path.stem)
    except OSError as fault:
        raise Mistake(f"--domain: expected a file, got {path}: {fault.strerror}") from fault
    except ValueError as fault:
        raise Mistake(f"--domain: {path}: {fault}") from fault
    if domain.model not in shipped():
        raise Mistake(f"--domain: {choice_error('model with formulas here', domain.model, shipped())}")
    return domain, shipped()[domain.model].with_sizes({k: v for k, v in domain.sizes.items() if isinstance(v, int)})
