"""`python -m runners.project FILE` by draws: a utilization in place of the assumed shares, and many devices.

Its intervals are of draws of all that has an interval: numbers of the file, and the utilization. `--devices` is data
parallelism: devices with a sub-batch each, and the sum of their gradients.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from runners.cli.arguments import Parser, number
from runners.cli.exits import Mistake
from runners.project.compute import add_utilization, utilization_of

if TYPE_CHECKING:
    from analysis.project.accelerator import Accelerator
    from analysis.project.data_parallel import Group
    from analysis.project.domain import Domain
    from analysis.project.shipped_formulas import Formulas
    from reports.project.text import DrawnAnswers, ReachedUtilization


def add_draws(made: Parser) -> None:
    """--utilization, --confidence, --devices, --node."""
    add_utilization(made.add_argument_group("a utilization, instead of both shares"))
    group = made.add_argument_group("data parallelism: devices with a sub-batch each")
    group.add_argument("--devices", type=number(int, 1, 10**6), default=1, help="how many train the model (1)")
    group.add_argument("--node", type=number(int, 1), help="devices that share a node (8)")


def draw_answers(options: Namespace, domain: Domain, target: Accelerator, formulas: Formulas) -> DrawnAnswers | None:
    """The answers by draws, None where nothing asks for them. Raises Mistake or ValueError."""
    from analysis.project import monte_carlo
    from analysis.project.data_parallel import all_reduce_s
    from analysis.stats.intervals import Uncertain, answers
    from reports.project.text import DrawnAnswers

    reached, group = _utilization(options, target), _group(options)
    if reached is None and group is None:
        return None
    inputs = {**monte_carlo.domain_inputs(domain), **({"utilization": reached.utilization} if reached else {})}
    reduce_s = (lambda parameters: all_reduce_s(parameters * target.element_bytes, group)) if group else None
    function = monte_carlo.projected(domain, formulas, target, options.devices, reduce_s)
    found = answers(function, inputs, options.confidence)
    if found["steps"].value < 1:
        batch = options.devices * domain.sub_batch
        raise Mistake(f"--devices: expected a batch of at most all data, got {batch:,} of {found['data'].value:,.0f}")
    return DrawnAnswers(
        answers=found,
        inputs=[name for name, each in inputs.items() if not isinstance(each, Uncertain) or each.spread],
        confidence=options.confidence,
        reached=reached,
        devices=options.devices,
        link=_link_words(group) if group else "",
    )


def _utilization(options: Namespace, target: Accelerator) -> ReachedUtilization | None:
    """The utilization that the options give, None where they leave it to the roofline. Raises Mistake."""
    if options.utilization is None:
        return None
    for name in ("compute_ratio", "memory_ratio"):
        if getattr(options, name) is not None:
            raise Mistake(f"--{name.replace('_', '-')}: expected without --utilization, which takes its place")
    from reports.project.text import ReachedUtilization

    utilization = utilization_of(options, options.dtype)
    return ReachedUtilization(
        target.name, options.dtype, options.dtype, target.peak_flop_per_s, target.source, utilization
    )


def _group(options: Namespace) -> Group | None:
    """The devices and their links, None for one device. Raises Mistake."""
    from analysis.devices import peaks
    from analysis.devices.memory import ACHIEVED, NODE_DEVICES, between, within
    from analysis.project.data_parallel import Group

    if options.devices == 1:
        if options.node is not None:
            raise Mistake("--node: expected --devices of 2 or more with it")
        return None
    node = min(options.node or NODE_DEVICES, options.devices)
    if options.devices % node:
        raise Mistake(f"--devices: expected a multiple of {node}, the devices of a --node, got {options.devices}")
    device = peaks.lookup(options.device) if options.device else None
    if device is None:
        raise Mistake("--devices: expected --device with it, whose links are known")
    return Group(options.devices, node, within(device), between(device), ACHIEVED)


def _link_words(group: Group) -> str:
    """What joins the devices."""
    words = group.slowest().name
    if group.nodes > 1 and group.per_node > 1:
        words = f"{group.within.name} in nodes of {group.per_node} and {group.between.name} between them"
    return f"{words} at {group.achieved:g} of the rate"
