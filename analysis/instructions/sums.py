"""Additions that torch's kernel of sums executes on a CPU: more than numbers to be added, by a known rule.

The rule is that of `aten/src/ATen/native/cpu/SumKernel.cpp` (cascade sums): four sums lie side by side, each on the
lanes of a vector. Every 16 numbers (or more, of very long sums) they are added to a second level, these now and then to
a third and a fourth, and in the end all levels, all four and all lanes are added up. Empty levels are added, too.

Not claimed: sums over dimensions between others, of other layouts than contiguous ones, and of other types than fp32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from analysis.operators import total
from results.records import Operation

LANES, SIDE_BY_SIDE, LEVELS = 8, 4, 4
"""Of a vector of AVX2; and of the kernel."""

SHORTEST_BLOCK = 4
"""Numbers that are added before a level is closed are 2 to the power of this at least."""

SUM, MEAN = "aten.sum", "aten.mean"


def lanes_with_sums(operations: Iterable[Operation]) -> int | None:
    """Other FLOP of these calls, with the additions of each sum as the kernel makes them; None where none is known."""
    found, is_known = 0, False
    for operation in operations:
        lanes = executed_additions(operation)
        is_known = is_known or lanes is not None
        found += total([operation]).other_flop if lanes is None else lanes
    return found if is_known else None


def executed_additions(operation: Operation) -> int | None:
    """Lanes of a sum over the last or over the first dimensions, of a mean with its divisions; None for others."""
    if operation.name not in (SUM, MEAN) or operation.input_dtypes[:1] != ("float32",):
        return None
    shape: tuple[int, ...] = operation.input_shapes[0]
    asked = operation.attributes.get("dim") or range(len(shape))
    summed = sorted({int(each) % len(shape) for each in asked}) if shape else []
    kept = [each for each in range(len(shape)) if each not in summed]
    numbers, results = (math.prod(shape[each] for each in those) for those in (summed, kept))
    divisions = results if operation.name == MEAN else 0
    if summed == [*range(len(kept), len(shape))] and numbers >= LANES:
        return results * _of_row(numbers) + divisions
    if summed == [*range(len(summed))] and results >= LANES:
        return _of_columns(numbers, results) + divisions
    return None


def _of_row(numbers: int) -> int:
    """Of numbers that lie one after another: their vectors, what is left of them, the lanes, and the result."""
    return LANES * _of_line(numbers // LANES) + numbers % LANES + LANES + 1


def _of_columns(numbers: int, columns: int) -> int:
    """Of columns: four vectors of them side by side, then single ones, then single columns; and each result."""
    groups, rest = divmod(columns, SIDE_BY_SIDE * LANES)
    vectors, scalars = divmod(rest, LANES)
    return groups * LANES * _cascade(numbers) + (vectors * LANES + scalars) * _of_line(numbers) + columns


def _of_line(numbers: int) -> int:
    """Of one sum, which is made as four side by side, with what is left and the sum of the four."""
    each, rest = divmod(numbers, SIDE_BY_SIDE)
    return _cascade(each) + rest + SIDE_BY_SIDE - 1


def _cascade(numbers: int) -> int:
    """Of four sums side by side, of so many numbers each."""
    power = max(SHORTEST_BLOCK, (numbers - 1).bit_length() // LEVELS)
    found = numbers
    for done in range(1 << power, numbers + 1, 1 << power):
        for level in range(1, LEVELS):
            found += 1
            if done & ((1 << power) - 1) << level * power:
                break
    return SIDE_BY_SIDE * (found + LEVELS - 1)
