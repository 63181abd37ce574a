"""`python -m runners.project FILE` by draws: a measured utilization in place of assumed shares, many devices, costs.

Its intervals are of draws of all that has an interval: numbers of the file, the utilization, the prices.

`--devices` is data parallelism: devices with a sub-batch each, and the sum of their gradients.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from runners.cli import Mistake, Parser, choice_error, number

if TYPE_CHECKING:
    from analysis.project.frontier import Accelerator, Domain, Formulas
    from reports.project import DrawnAnswers, ReachedUtilization

MOVED = ("gpu_hours", "cost", "energy_kwh", "co2_kg")
"""Answers whose sensitivities are shown."""


def add_measured(made: Parser) -> None:
    """--measured and the options of a utilization, --epochs, the prices."""
    from runners.project.machine import add_expenses, add_utilization

    group = made.add_argument_group("a measured utilization, instead of both shares")
    group.add_argument("--measured", action="store_true", help="predict it from published runs and our own")
    add_utilization(group)
    made.add_argument(
        "--epochs", type=number(float, 0.001, 1e6), default=1.0, help="passes over the data, for totals (1)"
    )
    add_expenses(made)


def draw_answers(options: Namespace, domain: Domain, target: Accelerator, formulas: Formulas) -> DrawnAnswers | None:
    """The answers by draws, None where nothing asks for them. Raises Mistake or ValueError."""
    from analysis.project.frontier import monte_carlo
    from analysis.stats import Uncertain, answers, tornado
    from reports.project import DrawnAnswers
    from runners.project.machine import expenses
    from runners.project.output import intervals_of

    reached, given = _requested_utilization(options, domain, target), expenses(options)
    reduce_s, link = reduction(options, target)
    if options.rows and reached is None:
        raise Mistake("--rows: expected --measured with it")
    if not (reached or given or options.tornado or options.epochs != 1 or reduce_s):
        return None
    inputs = {**monte_carlo.domain_inputs(domain), **({"utilization": reached.utilization} if reached else {}), **given}
    training = monte_carlo.Training(options.devices, options.epochs, reduce_s)
    function = monte_carlo.projected(domain, formulas, target, training)
    found = answers(function, inputs, options.confidence)
    if found["steps"].value < 1:
        batch = options.devices * domain.sub_batch
        raise Mistake(f"--devices: expected a batch of at most all data, got {batch:,} of {found['data'].value:,.0f}")
    moved = [name for name in MOVED if name in found]
    return DrawnAnswers(
        answers=found,
        swings={name: tornado(function, inputs, name, options.confidence) for name in moved},
        inputs=[name for name, each in inputs.items() if not isinstance(each, Uncertain) or each.spread],
        confidence=options.confidence,
        given=intervals_of(given, options.confidence),
        reached=reached,
        devices=options.devices,
        epochs=options.epochs,
        link=link,
    )


def _requested_utilization(options: Namespace, domain: Domain, target: Accelerator) -> ReachedUtilization | None:
    """The utilization that the options ask for. Raises Mistake."""
    asked = [name for name in ("measured", "family", "utilization", "run") if getattr(options, name)]
    if not asked:
        return None
    for name in ("compute_ratio", "memory_ratio"):
        if getattr(options, name) is not None:
            raise Mistake(f"--{name.replace('_', '-')}: expected without --{asked[0]}, which takes its place")
    from analysis.devices import peaks
    from analysis.project.compute import family_of
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


if TYPE_CHECKING:
    from analysis.devices import Device, Link
    from analysis.project.frontier import Accelerator
    from analysis.project.parallelism import Group

OF_LINKS = ("within", "between", "node", "link_ratio")


def add_replicas(made: Parser) -> None:
    """--devices, --within, --between, --node, --link-ratio."""
    group = made.add_argument_group("data parallelism: devices with a sub-batch each")
    group.add_argument("--devices", type=number(int, 1, 10**6), default=1, help="how many train the model (1)")
    group.add_argument("--within", metavar="LINK", help="between devices of a node (NVLink or PCIe, by the device)")
    group.add_argument("--between", metavar="LINK", help="of each device to other nodes (InfiniBand, by the device)")
    group.add_argument("--node", type=number(int, 1), help="devices that share a node (8)")
    group.add_argument("--link-ratio", type=number(float, 0.01, 1), help="of a link's rate in collectives (0.8)")


def reduction(options: Namespace, target: Accelerator) -> tuple[Callable[[float], float] | None, str]:
    """(parameters → seconds that a step waits for the sum of all gradients, over which links). None for one device.

    Raises Mistake.
    """
    if options.devices == 1:
        for name in OF_LINKS:
            if getattr(options, name) is not None:
                raise Mistake(f"--{name.replace('_', '-')}: expected --devices of 2 or more with it")
        return None, ""
    from analysis.project.parallelism import all_reduce_s

    group = _group(options)
    words = group.slowest().name
    if group.nodes > 1 and group.per_node > 1:
        words = f"{group.within.name} in nodes of {group.per_node} and {group.between.name} between them"
    rate = f" at {group.achieved:g} of the rate"
    return (lambda parameters: all_reduce_s(parameters * target.element_bytes, group)), words + rate


def _group(options: Namespace) -> Group:
    """The devices and their links. Raises Mistake."""
    from analysis.devices import interconnects, peaks
    from analysis.project.parallelism import Group

    node = min(options.node or interconnects.NODE_DEVICES, options.devices)
    if options.devices % node:
        raise Mistake(f"--devices: expected a multiple of {node}, the devices of a --node, got {options.devices}")
    device = peaks.lookup(options.device) if options.device else None
    inner = _link("within", options, device, interconnects.within, needed=node > 1)
    outer = _link("between", options, device, interconnects.between, needed=options.devices > node)
    link = inner or outer
    assert link is not None  # of two devices or more, at least one of them is needed
    achieved = options.link_ratio or interconnects.ACHIEVED
    return Group(options.devices, node, inner or link, outer or link, achieved)


def _link(
    side: str, options: Namespace, device: Device | None, own: Callable[[Device], Link], needed: bool
) -> Link | None:
    """The one that the options name, else the device's own. Raises Mistake where there is none and it is needed."""
    from analysis.devices import links

    name = getattr(options, side)
    if name is not None:
        if name not in links():
            raise Mistake(f"--{side}: {choice_error('link', name, links())}")
        return links()[name]
    if device is None and needed:
        raise Mistake(f"--{side}: expected a link ({', '.join(links())}), as no --device says which it has")
    return own(device) if device else None
