"""`python -m runners.project FILE` by draws: a measured utilization in place of assumed shares, many devices, costs.

Its intervals are of draws of all that has an interval: numbers of the file, the utilization, the prices.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from runners.cli.arguments import Parser, number
from runners.cli.exits import Mistake
from runners.project.replicas import reduction

if TYPE_CHECKING:
    from analysis.project.frontier.accelerator import Accelerator
    from analysis.project.frontier.domain import Domain
    from analysis.project.frontier.shipped_formulas import Formulas
    from reports.project.monte_carlo import Timed
    from reports.project.shared import Reached

MOVED = ("gpu_hours", "cost", "energy_kwh", "co2_kg")
"""Answers of which it is told what they hang on."""


def add_measured(made: Parser) -> None:
    """--measured and the options of a utilization, --epochs, the prices."""
    from runners.project.machine import add_expenses, add_utilization

    group = made.add_argument_group("a measured utilization, in place of both shares")
    group.add_argument("--measured", action="store_true", help="what published runs and our own predict")
    add_utilization(group)
    made.add_argument("--epochs", type=number(float, 0.001, 1e6), default=1.0, help="over the data, for totals (1)")
    add_expenses(made)


def timed(options: Namespace, domain: Domain, target: Accelerator, formulas: Formulas) -> Timed | None:
    """The answers by draws, None where nothing asks for them. Raises Mistake or ValueError."""
    from analysis.project.frontier import monte_carlo
    from analysis.stats.intervals import Uncertain, answers, tornado
    from reports.project.monte_carlo import Timed
    from runners.project.machine import expenses
    from runners.project.output import told_given

    reached, given = _reached(options, domain, target), expenses(options)
    reduce_s, link = reduction(options, target)
    if options.rows and reached is None:
        raise Mistake("--rows: expected --measured with it")
    if not (reached or given or options.tornado or options.epochs != 1 or reduce_s):
        return None
    inputs = {**monte_carlo.inputs(domain), **({"utilization": reached.utilization} if reached else {}), **given}
    training = monte_carlo.Training(options.devices, options.epochs, reduce_s)
    function = monte_carlo.projected(domain, formulas, target, training)
    found = answers(function, inputs, options.confidence)
    if found["steps"].value < 1:
        batch = options.devices * domain.sub_batch
        raise Mistake(f"--devices: expected a batch of at most all data, got {batch:,} of {found['data'].value:,.0f}")
    moved = [name for name in MOVED if name in found]
    return Timed(
        answers=found,
        swings={name: tornado(function, inputs, name, options.confidence) for name in moved},
        inputs=[name for name, each in inputs.items() if not isinstance(each, Uncertain) or each.spread],
        confidence=options.confidence,
        given=told_given(given, options.confidence),
        reached=reached,
        devices=options.devices,
        epochs=options.epochs,
        link=link,
    )


def _reached(options: Namespace, domain: Domain, target: Accelerator) -> Reached | None:
    """The utilization that the options ask for. Raises Mistake."""
    asked = [name for name in ("measured", "family", "utilization", "run") if getattr(options, name)]
    if not asked:
        return None
    for name in ("compute_ratio", "memory_ratio"):
        if getattr(options, name) is not None:
            raise Mistake(f"--{name.replace('_', '-')}: expected without --{asked[0]}, which takes its place")
    from analysis.devices import peaks
    from analysis.project.compute.published_runs import family_of
    from runners.project.machine import reached_of

    known = family_of(domain.model)
    if options.family is None and known is None and options.utilization is None:
        raise Mistake(
            f"--{asked[0]}: no published run of a model such as {domain.model} is known here: expected --utilization, "
            "or --family of models that are like it"
        )
    words = Namespace(**{**vars(options), "device": target.name, "precision": options.dtype})
    words.family = options.family or known
    device = peaks.lookup(options.device) if options.device else None
    return reached_of(words, device, options.dtype, target.peak_flop_per_s, target.source)
