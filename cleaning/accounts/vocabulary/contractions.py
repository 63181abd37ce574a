"""What numpy prints of a contraction: its "optimized FLOP count", four digits of it, which several counters read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from results.records.calls import Sized


def printed_flop(equation: str, operands: Sequence[Sized]) -> float:
    """FLOP at 2 a multiply-add of the best order, as printed for operands of these sizes."""
    shapes = [np.broadcast_to(0.0, operand.shape) for operand in operands]
    printed = str(np.einsum_path(equation.replace(" ", ""), *shapes, optimize="optimal")[1])
    line = next(line for line in printed.splitlines() if "optimized flop" in line.lower())
    return float(line.split(":")[-1])
