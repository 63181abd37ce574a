"""Formulas compared with the step at the point that was asked for, and at a batch of one, which torch treats apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.formula.derivation.branches import difference
from analysis.formula.derivation.interpolate import value_of
from analysis.formula.derivation.sampling import Restructured, Unfitted
from analysis.formula.derivation.symbolic_table import check
from runners.cli.exits import Mistake
from runners.formula.points import BATCH, NotBuilt

CHECKED_CALLS = 20_000
"""Operations of a step that is made for a check alone, at most."""


def checked_apart(
    looked_at: Any, derived: Any, point: Mapping[str, int], convention: Any
) -> tuple[list[Mapping[str, int]], tuple[str, ...]]:
    """Of the point that was asked for and of a batch of one, those at which the counts are the formulas', and notes on
    those at which there is no step. Raises Unfitted where the point that was asked for has other counts."""
    found: list[Mapping[str, int]] = []
    notes = []
    try:
        found += [point] if _holds(looked_at, derived, point, convention) else []
    except NotBuilt as fault:
        if isinstance(fault.__cause__, ValueError):
            raise Mistake(f"--at: {fault}") from fault
        notes.append(f"There is no step at the point of the values: {fault}.")
    base = {axis.symbol: axis.base for axis in (*derived.axes, *derived.structural)}
    if BATCH in base and point[BATCH] != 1:
        single = {**base, BATCH: 1}
        try:
            found += [single] if _holds(looked_at, derived, single, convention) else []
        except (NotBuilt, Unfitted) as fault:
            notes.append(f"Not for a batch of one: {fault}.")
    return found, tuple(notes)


def _holds(looked_at: Any, derived: Any, point: Mapping[str, int], convention: Any) -> bool:
    """Whether the table at a point has the counts of the formulas; False also where none is made as the step is large.
    Raises Unfitted for other counts, NotBuilt where the model does not take the sizes."""
    calls = value_of(derived.total("calls"), point)
    if calls > CHECKED_CALLS or calls.denominator != 1:
        return False
    sample = looked_at(point)
    near = looked_at({**point, **{axis.symbol: axis.base for axis in derived.axes}})
    if near.structure != sample.structure:
        raise Restructured(near.point, point, difference(near, sample))
    check(derived.counts, sample, convention, bool(derived.structural), derived.without)
    return True
