"""What collective operations move and how long they take at best, over rings and trees.

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

from analysis.devices import Link


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


def ring_bytes(total_bytes: float, devices: int) -> float:
    """Bytes that each device sends in a reduce-scatter or in an all-gather of so many bytes in all."""
    return total_bytes * (devices - 1) / devices


def tree_bytes(total_bytes: float, devices: int) -> float:
    """The most that a device sends in an all-reduce over two binary trees."""
    return 0.0 if devices == 1 else 2 * total_bytes


def half_s(total_bytes: float, group: Group) -> float:
    """Seconds of a reduce-scatter, or of an all-gather, of so many bytes in all."""
    return min(_flat_half_s(total_bytes, group), _layered_half_s(total_bytes, group))


def all_reduce_s(total_bytes: float, group: Group) -> float:
    """Seconds of an all-reduce: the fastest of a ring, two trees, and both halves in layers."""
    if group.size == 1:
        return 0.0
    link = group.slowest()
    steps = 2 * math.ceil(math.log2(group.size))
    trees = steps * link.latency_s + tree_bytes(total_bytes, group.size) / (link.bytes_per_s * group.achieved)
    return min(2 * half_s(total_bytes, group), trees)


def send_s(total_bytes: float, link: Link, achieved: float = 1.0) -> float:
    """Seconds of a message from one device to another."""
    return link.latency_s + total_bytes / (link.bytes_per_s * achieved)


def _ring_s(total_bytes: float, devices: int, link: Link, achieved: float) -> float:
    return (devices - 1) * link.latency_s + ring_bytes(total_bytes, devices) / (link.bytes_per_s * achieved)


def _flat_half_s(total_bytes: float, group: Group) -> float:
    return _ring_s(total_bytes, group.size, group.slowest(), group.achieved)


def _layered_half_s(total_bytes: float, group: Group) -> float:
    inner = _ring_s(total_bytes, group.per_node, group.within, group.achieved)
    return inner + _ring_s(total_bytes / group.per_node, group.nodes, group.between, group.achieved)
