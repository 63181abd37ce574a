"""Why a model has no formula: the sizes between which its operations change, the first that does, the line of its code.

Nothing here makes a formula; it looks at the model again, at a few points, after one was refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from analysis.formula.derivation.branches import change
from analysis.formula.derivation.derive import Uninterpolated
from analysis.formula.derivation.interpolate import Point
from analysis.formula.derivation.sampling import Axis, Restructured, SizeSample
from runners.formula.points import NotBuilt, Subject, step_at
from runners.formula.source_lines import parted_at

SHOWN = 6
"""Values of a symbol whose numbers of operations are listed."""


def branched(
    fault: Restructured, subject: Subject, axes: Sequence[Axis], sample_at: Callable[[Point], SizeSample]
) -> str:
    """One line on a model that takes another course at some size."""
    steps = {axis.symbol: axis.step for axis in axes}
    found = change(sample_at, fault.base, fault.point, steps)
    if found is None:
        return f"{subject.model}: {fault}: not every time that it is looked at, so that chance may decide it"
    words = f"{subject.model}: no formula holds for all of {' and '.join(found.symbols)}: {found}"
    return words + _line(subject, found.before.point, found.after.point)


def repeated(
    fault: Uninterpolated, subject: Subject, axes: Sequence[Axis], sample_at: Callable[[Point], SizeSample]
) -> str:
    """One line on a model whose number of operations follows no formula, of the first symbol that changes it."""
    base = {axis.symbol: axis.base for axis in axes}
    axis = fault.axes[0]
    counts = [(axis.at(steps), _calls(sample_at, {**base, axis.symbol: axis.at(steps)})) for steps in range(SHOWN)]
    had = [(value, calls) for value, calls in counts if calls is not None]
    text = ", ".join(f"{calls:,} at {axis.symbol} {value}" for value, calls in had)
    words = f"{subject.model}: no formula in {axis.symbol} goes through the number of operations: {text}"
    for (value, calls), (other, more) in pairwise(had):
        if calls != more:
            return words + _line(subject, {**base, axis.symbol: value}, {**base, axis.symbol: other})
    return words


def _calls(sample_at: Callable[[Point], SizeSample], point: Point) -> int | None:
    try:
        return len(sample_at(point).operations)
    except NotBuilt:
        return None


def _line(subject: Subject, one: Point, other: Point) -> str:
    found = parted_at(lambda: step_at(subject, one), lambda: step_at(subject, other))
    return f"; its code branches at {found}" if found else ""
