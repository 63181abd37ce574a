"""Every way to split a training step that divides evenly and fits into memory, the fastest first.

Not claimed: that the first is the fastest in truth. `analysis/project/parallelism/step.py` gives a floor, in which a
product is as fast on small pieces as on large ones, so that more pieces look better than they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from analysis.project.parallelism.step import Cluster, ParallelStep, Plan, Unfit, step
from analysis.project.parallelism.transformer import RECOMPUTE, Transformer


def plans(
    model: Transformer, devices: int, batch: int, cluster: Cluster, fixed: Mapping[str, object] | None = None
) -> list[tuple[Plan, ParallelStep]]:
    """(plan, its step) of every plan that fits. fixed: field of Plan → the value that it must have.

    Tensor parallelism stays within a node, micro-batches are powers of two, nothing is interleaved.
    """
    found = []
    for plan in candidates(model, devices, batch, cluster.node):
        if all(getattr(plan, name) == value for name, value in (fixed or {}).items()):
            try:
                cost = step(model, plan, batch, cluster)
            except Unfit:
                continue
            if cost.held.total <= cluster.memory_bytes:
                found.append((plan, cost))
    return sorted(found, key=lambda pair: (pair[1].step_s, pair[1].held.total))


def candidates(model: Transformer, devices: int, batch: int, node: int) -> Iterator[Plan]:
    """Plans whose sizes divide devices, layers, heads and batch, whatever they need."""
    for tensor in (t for t in _divisors(devices) if t <= node and model.heads % t == 0):
        for pipeline in (p for p in _divisors(devices // tensor) if model.layers % p == 0):
            data = devices // tensor // pipeline
            share, rest = divmod(batch, data)
            micros = [] if rest else [2**i for i in range(share.bit_length()) if share % 2**i == 0]
            stages = (0,) if data == 1 else (0, 1) if pipeline > 1 else (0, 1, 2, 3)
            for micro, zero, recompute in itertools.product(micros, stages, RECOMPUTE):
                yield Plan(data, tensor, pipeline, micro, zero, recompute)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
