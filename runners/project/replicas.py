"""Data parallelism of `runners.project FILE`: devices with a sub-batch each, and the sum of their gradients."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from runners.cli.arguments import Parser, choice_error, number
from runners.cli.exits import Mistake

if TYPE_CHECKING:
    from analysis.devices.interconnects import Link
    from analysis.devices.peaks import Device
    from analysis.project.frontier.accelerator import Accelerator
    from analysis.project.parallelism.collectives import Group

OF_LINKS = ("within", "between", "node", "link_ratio")


def add_replicas(made: Parser) -> None:
    """--devices, --within, --between, --node, --link-ratio."""
    group = made.add_argument_group("data parallelism: devices with a sub-batch each")
    group.add_argument("--devices", type=number(int, 1, 10**6), default=1, help="that train it together (1)")
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
    from analysis.project.parallelism.collectives import all_reduce_s

    group = _group(options)
    words = group.slowest().name
    if group.nodes > 1 and group.per_node > 1:
        words = f"{group.within.name} in nodes of {group.per_node} and {group.between.name} between them"
    rate = f" at {group.achieved:g} of the rate"
    return (lambda parameters: all_reduce_s(parameters * target.element_bytes, group)), words + rate


def _group(options: Namespace) -> Group:
    """The devices and their links. Raises Mistake."""
    from analysis.devices import interconnects, peaks
    from analysis.project.parallelism.collectives import Group

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
    from analysis.devices.interconnects import links

    name = getattr(options, side)
    if name is not None:
        if name not in links():
            raise Mistake(f"--{side}: {choice_error('link', name, links())}")
        return links()[name]
    if device is None and needed:
        raise Mistake(f"--{side}: expected a link ({', '.join(links())}), as no --device says which it has")
    return own(device) if device else None
