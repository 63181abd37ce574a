"""Computes the least time of a training step on a device, and the utilization at that time.

`step_cost` takes operations in fusion groups and returns their costs; `step_bound` takes the costs and a device's
rates. The least time is a sum over the groups of ideal fusion (`analysis.operators.fusion`) of max(Σ model FLOP ÷ peak,
bytes ÷ bandwidth). Products by a faster algorithm (Winograd) and cached tensors may beat it. Not claimed: that a device
reaches the bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.roofline import RECOMPUTE, groups, moved_bytes
from results.errors import Unavailable
from results.records.answers import StepOperation

ARITHMETIC, MEMORY = "arithmetic", "memory"

IN_PARTS = "aten._safe_softmax"
"""Operation of a CPU trace in which attention runs in parts. CUDA may fuse the parts into a kernel that does not write
the scores of the pairs of tokens to memory. The sum over the parts is then not a least time."""

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StepCost:
    """Costs of a step's fusion groups and of its single operations.

    units: arithmetic units that the step uses. group_flop, operation_flop: model FLOP by group (or operation) and unit,
    int64 of shape (n, units). group_bytes, operation_bytes: bytes moved, int64 of shape (n,). recomputed_flop: model
    FLOP that the backward pass recomputes, by unit, shape (units,).
    """

    units: tuple[str, ...]
    group_flop: Counts
    group_bytes: Counts
    operation_flop: Counts
    operation_bytes: Counts
    recomputed_flop: Counts

    @property
    def model_flop(self) -> int:
        """FLOP of convolutions and matrix products, without recomputation; a multiply-add is 2."""
        return int(self.operation_flop.sum() - self.recomputed_flop.sum())


@dataclass(frozen=True, kw_only=True)
class StepBound:
    """The least time of a step, in seconds.

    peak_flop_per_s: of the units that run the products, weighted by their FLOP. attainable_ratio: utilization of that
    peak if the step took bound_time_s; unfused_ratio: if it took unfused_time_s. bound_by: "arithmetic" and "memory" →
    share of bound_time_s in groups bound by it.
    """

    model_flop: int
    peak_flop_per_s: float
    bound_time_s: float
    attainable_ratio: float
    unfused_time_s: float
    unfused_ratio: float
    bound_by: Mapping[str, float]


def step_cost(operations: Sequence[StepOperation]) -> StepCost:
    """Compute the cost of a step whose operations are in fusion groups. Raises Unavailable where an operation's cost or
    a product's unit is unknown."""
    if unknown := sorted({operation.name for operation in operations if not operation.understood}):
        raise Unavailable(f"no rule for {', '.join(unknown[:3])}: the FLOP of the step are not known")
    units = tuple(sorted({operation.unit for operation in operations if operation.model_flop}))
    if "" in units:
        raise Unavailable("a product has a dtype without an arithmetic unit")
    column = {unit: index for index, unit in enumerate(units)}
    flop = np.zeros((len(operations), len(units)), np.int64)
    again = np.zeros(len(units), np.int64)
    for row, operation in enumerate(operations):
        if operation.model_flop:
            flop[row, column[operation.unit]] = operation.model_flop
            again[column[operation.unit]] += operation.model_flop * (operation.phase == RECOMPUTE)
    row_of = {operation.index: row for row, operation in enumerate(operations)}
    fused = groups(operations)
    return StepCost(
        units,
        np.array([flop[[row_of[index] for index in members]].sum(axis=0) for members, _ in fused], np.int64).reshape(
            len(fused), len(units)
        ),
        np.array([nbytes for _, nbytes in fused], np.int64),
        flop,
        np.array([moved_bytes(operation) for operation in operations], np.int64),
        again,
    )


def step_bound(cost: StepCost, peak_by_unit: Mapping[str, float], bytes_per_s: float | None) -> StepBound:
    """Compute the least time of a step.

    peak_by_unit: unit → FLOP/s; bytes_per_s: bandwidth of memory. Raises Unavailable for a unit without a peak, without
    a bandwidth, and for a step without model FLOP.
    """
    if not cost.model_flop:
        raise Unavailable("the step has no convolution or matrix product, and so no utilization")
    if missing := [unit for unit in cost.units if not peak_by_unit.get(unit)]:
        raise Unavailable(f"no datasheet peak of {', '.join(missing)}")
    if not bytes_per_s:
        raise Unavailable("no datasheet bandwidth of memory")
    s_per_flop = np.array([1 / peak_by_unit[unit] for unit in cost.units])
    arithmetic_s, memory_s = cost.group_flop @ s_per_flop, cost.group_bytes / bytes_per_s
    taken_s = np.maximum(arithmetic_s, memory_s)
    bound_s = float(taken_s.sum())
    unfused_s = float(np.maximum(cost.operation_flop @ s_per_flop, cost.operation_bytes / bytes_per_s).sum())
    model_s = float((cost.operation_flop.sum(axis=0) - cost.recomputed_flop) @ s_per_flop)
    by_arithmetic = float(taken_s[arithmetic_s >= memory_s].sum()) / bound_s
    return StepBound(
        model_flop=cost.model_flop,
        peak_flop_per_s=cost.model_flop / model_s,
        bound_time_s=bound_s,
        attainable_ratio=model_s / bound_s,
        unfused_time_s=unfused_s,
        unfused_ratio=model_s / unfused_s,
        bound_by={ARITHMETIC: by_arithmetic, MEMORY: 1 - by_arithmetic},
    )
