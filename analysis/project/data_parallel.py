"""A training step on several accelerators, as section 6.2 of the paper has it, and how long an all-reduce takes.

Data parallelism with a synchronous step: dense gradients are summed in a ring (Patarasuk and Yuan 2009: 2(n - 1)/n of
the bytes pass each link), gradients of an embedding, of which a batch touches few rows, are gathered from all workers.
Layers on accelerators of their own work on successive steps of the sequence, as a pipeline. Not claimed: any overlap of
communication and arithmetic, latency, or that a larger batch learns as well.

`all_reduce_s` is the least time of an all-reduce over rings and trees.
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
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.devices.memory import Link

LINK_RATIO = 0.8
"""The share of a link's rate that is achieved. The paper prints none: with this one its four results of section 6.2
follow, with 1 none of them: a calibration."""


def ring_all_reduce_s(nbytes: float, workers: int, link_bytes_per_s: float) -> float:
    """Seconds that a ring takes to sum so many bytes of each worker."""
    return 2 * (_count("workers", workers) - 1) / workers * nbytes / link_bytes_per_s


def gather_s(nbytes: float, workers: int, link_bytes_per_s: float) -> float:
    """What it takes a worker to receive what all workers have, its own included."""
    return _count("workers", workers) * nbytes / link_bytes_per_s if workers > 1 else 0.0


def sparse_gradient_bytes(batch: int, length: int, width: int, element_bytes: int = 4) -> int:
    """The embedding's gradient that one worker makes: a row for each of its symbols, indices left out."""
    return batch * length * width * element_bytes


def communication_s(
    dense_bytes: float, sparse_bytes: float, workers: int, link_bytes_per_s: float, link_ratio: float = LINK_RATIO
) -> float:
    """Both kinds of gradient, one after the other."""
    if not 0 < link_ratio <= 1:
        raise ValueError(f"expected a share of the link above 0 and at most 1, got {link_ratio:g}")
    achieved = link_bytes_per_s * link_ratio
    return ring_all_reduce_s(dense_bytes, workers, achieved) + gather_s(sparse_bytes, workers, achieved)


def pipelined_s(stages_s: Sequence[float], length: int, after_s: float = 0.0) -> float:
    """Layers that each take so long for one step of a sequence of `length`: the pipeline fills (the sum of one step of
    all but the slowest), then the slowest sets the pace; `after_s` is what waits for all steps (the output layer)."""
    if not stages_s:
        raise ValueError("expected a stage or more, got none")
    slowest = max(stages_s)
    return sum(stages_s) - slowest + _count("length", length) * slowest + after_s


def epoch_s(samples: float, batch: int, workers: int, step_s: float) -> float:
    """An epoch of so many samples, the last batch not rounded up."""
    return samples / (_count("batch", batch) * _count("workers", workers)) * step_s


def evened(pieces: Sequence[float], divisible: int) -> tuple[float, ...]:
    """Bytes on each accelerator after the piece at index `divisible` was split over all so that the fullest is as empty
    as can be. What the others have stays where it is."""
    whole = [nbytes for at, nbytes in enumerate(pieces) if at != divisible]
    spread, room = pieces[divisible], sorted([0.0, *whole])
    level = room[0]
    for count in range(1, len(room) + 1):
        level = (sum(room[:count]) + spread) / count
        if count == len(room) or level <= room[count]:
            break
    return tuple(max(level, 0.0 if at == divisible else nbytes) for at, nbytes in enumerate(pieces))


def _count(what: str, number: int) -> int:
    if number < 1:
        raise ValueError(f"{what}: expected 1 or more, got {number}")
    return number


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
