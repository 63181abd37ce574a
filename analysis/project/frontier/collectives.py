"""How long an all-reduce takes at best, over rings and trees.

Bytes are what one device sends (and receives). A ring all-reduce of S bytes over n devices is a reduce-scatter and an
all-gather of n − 1 steps each with S/n bytes (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009), so that each
device sends 2 S (n − 1)/n; a pair of binary trees, each for half of the bytes, in which no device is inner twice, sends
at most 2 S in 2 ⌈log₂ n⌉ steps (Sanders, Speck, Träff, Parallel Computing 35, 2009). Time is steps × latency + bytes ÷
rate, of full pipelines: no arithmetic of the sum, no contention, no stragglers.

A group that spans nodes reduces within each node, then between the nodes with each device on its own port, then gathers
within: three terms, one after the other. The faster of that and of one ring through everything is taken, as NCCL would.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from analysis.devices.interconnects import Link


@dataclass(frozen=True)
class Group:
    """Devices that communicate. per_node of them share a node; size is a multiple of it. achieved: of the rates."""

    size: int
    per_node: int
    within: Link
    between: Link
    achieved: float = 1.0

    @property
    def nodes(self) -> int:
        """How many nodes the group spans."""
        return self.size // self.per_node

    def slowest(self) -> Link:
        """What a ring through the whole group goes at."""
        return self.within if self.nodes == 1 else self.between


def all_reduce_s(total_bytes: float, group: Group) -> float:
    """Seconds of an all-reduce: the fastest of a ring, two trees, and both halves in layers."""
    if group.size == 1:
        return 0.0
    link = group.slowest()
    steps = 2 * math.ceil(math.log2(group.size))
    trees = steps * link.latency_s + 2 * total_bytes / (link.bytes_per_s * group.achieved)
    return min(2 * half_s(total_bytes, group), trees)


def half_s(total_bytes: float, group: Group) -> float:
    """Seconds of a reduce-scatter, or of an all-gather, of so many bytes in all."""
    flat = _ring_s(total_bytes, group.size, group.slowest(), group.achieved)
    inner = _ring_s(total_bytes, group.per_node, group.within, group.achieved)
    outer = _ring_s(total_bytes / group.per_node, group.nodes, group.between, group.achieved)
    return min(flat, inner + outer)


def _ring_s(total_bytes: float, devices: int, link: Link, achieved: float) -> float:
    """Half of a ring: each device sends (n − 1)/n of the bytes in n − 1 steps."""
    return (devices - 1) * link.latency_s + total_bytes * (devices - 1) / devices / (link.bytes_per_s * achieved)
