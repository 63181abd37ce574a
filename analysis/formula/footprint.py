"""The footprint of a step as a formula: the largest of a few forms, each what is alive while one operation runs.

* *eager*: the peak of live bytes in the eager order (`analysis/footprint/live_bytes.py`). Exact, for all sizes
  that the step's other formulas hold for.
* *minimal*: the peak in the order that `analysis/footprint/minimum.py` finds at the point that is asked for.
  At that point it is the minimal footprint; at others it is what that order needs, which another order may need less
  than.

A symbol that changes the operations themselves (layers) is found as in the other formulas: the forms of tables at few
layers, by the operation that they belong to, are coefficients of a polynomial in it, which must give those of a table
that had no part in it. Whatever is given equals the footprint of whole numbers at every sample; where it does not, or
the samples differ in kind, it is None and `why` has the reason.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import sympy

from analysis.footprint.live_bytes import BEFORE
from analysis.formula.derive import STRUCTURE_DEGREE, Derived, partly_at
from analysis.formula.footprint_terms import FootprintTable, Peak, Unalike, peak_of
from analysis.formula.interpolate import Fitter, Form, Point, interpolated, point_text, value_of
from analysis.formula.sampling import CountKey, place_of
from analysis.formula.totals import Expr, expression

BATCH = "batch"

MOST = 200
"""Forms of one formula, at most."""

QUANTITIES = ("eager_footprint_bytes", "minimal_footprint_bytes")

_FIRST = CountKey("", "", "", "before the first operation")


@dataclass(frozen=True)
class Labelled:
    """What is alive while an operation runs. Of modules that a symbol multiplies, the numbers of the place are *."""

    place: CountKey
    form: Form


@dataclass(frozen=True)
class Footprints:
    """peaks: quantity → the forms whose largest it is; why: quantity → why it has no formula. proven: no order has less
    than the minimal formula at the point that was asked for, or at the few layers that were looked at there."""

    peaks: Mapping[str, tuple[Labelled, ...]]
    why: Mapping[str, str]
    proven: bool

    def formula(self, quantity: str) -> Expr:
        """The quantity as a sympy expression; None where it has none."""
        peaks = self.peaks.get(quantity)
        if not peaks:
            return None
        parts = list(dict.fromkeys(expression(each.form) for each in peaks))
        return parts[0] if len(parts) == 1 else sympy.Max(*parts, evaluate=False)


def footprints(derived: Derived, point: Point) -> Footprints:
    """The footprints of a step. point: where its minimal order is looked for, a value of every symbol."""
    least = {axis.symbol: min(axis.base, point[axis.symbol]) for axis in (*derived.axes, *derived.structural)}
    least = {symbol: 1 if symbol == BATCH else start for symbol, start in least.items()}
    tables = [(fixed, FootprintTable(sizes, least)) for fixed, sizes in derived.levels]
    merged = bool(derived.structural)
    proven: list[bool] = []

    def eager(_fixed: Point, table: FootprintTable) -> list[Labelled]:
        return _labelled(table, table.eager_peaks(), merged)

    def ordered(fixed: Point, table: FootprintTable) -> list[Labelled]:
        peaks, order = table.ordered_peaks({**point, **fixed})
        proven.append(order.proven)
        return _labelled(table, peaks, merged)

    peaks: dict[str, tuple[Labelled, ...]] = {}
    why: dict[str, str] = {}
    for quantity, of in zip(QUANTITIES, (eager, ordered), strict=True):
        try:
            peaks[quantity] = _through(tables, of)
            if quantity == QUANTITIES[0]:
                _check(peaks[quantity], tables)
        except Unalike as fault:
            peaks.pop(quantity, None)
            why[quantity] = str(fault)
    return Footprints(peaks, why, QUANTITIES[1] in peaks and all(proven))


def value(peaks: Sequence[Labelled], point: Point) -> Fraction:
    """The largest of the forms at a point."""
    return max(value_of(each.form, point) for each in peaks)


def _labelled(table: FootprintTable, peaks: Sequence[Peak], merged: bool) -> list[Labelled]:
    return [
        Labelled(_FIRST if index == BEFORE else place_of(table.operations[index], merged), form)
        for index, form in peaks
    ]


def _through(
    tables: Sequence[tuple[Point, FootprintTable]], of: Callable[[Point, FootprintTable], list[Labelled]]
) -> tuple[Labelled, ...]:
    """The peaks of all tables as forms in every symbol. Raises Unalike."""
    by_table = [(fixed, of(fixed, table)) for fixed, table in tables]
    if max(len(peaks) for _, peaks in by_table) > MOST:
        raise Unalike(f"more than {MOST} operations can be the peak")
    if len(by_table) == 1:
        return tuple(by_table[0][1])
    *fitted, (late, there) = [(fixed, _by_place(peaks)) for fixed, peaks in by_table]
    points = [fixed for fixed, _ in fitted]
    fitter = Fitter(points, STRUCTURE_DEGREE)
    whole: list[Labelled] = []
    for key in fitted[0][1]:
        if all(key in peaks for _, peaks in fitted):
            form = interpolated(fitter, [peaks[key] for _, peaks in fitted])
            if not isinstance(form, str) and Labelled(key[0], form) not in whole:
                whole.append(Labelled(key[0], form))
    if not whole:
        raise Unalike("the peak is at other operations for other numbers of them")
    for fixed, peaks in (*fitted, (late, there)):
        here = [partly_at(each.form, fixed) for each in whole]
        if any(form not in here for form in peaks.values()) or any(form not in peaks.values() for form in here):
            raise Unalike(f"the peak at {point_text(fixed)} is at operations that it is not at elsewhere")
    return tuple(whole)


def _by_place(peaks: Sequence[Labelled]) -> dict[tuple[CountKey, int], Form]:
    """The forms by place; of several at one place each by its number from the first on (0, 1, …) and by that from the
    last (-1, -2, …): of two layers the second is the last, and of three it is between."""
    there: dict[CountKey, list[Form]] = {}
    for each in peaks:
        there.setdefault(each.place, []).append(each.form)
    return {
        (place, number): form
        for place, forms in there.items()
        for start in (0, -len(forms))
        for number, form in enumerate(forms, start)
    }


def _check(peaks: Sequence[Labelled], tables: Sequence[tuple[Point, FootprintTable]]) -> None:
    """Raises Unalike where the formula is not the footprint of whole numbers at some sample."""
    for _, table in tables:
        for sample in table.samples:
            largest, exact = value(peaks, sample.point), peak_of(sample)
            if largest != exact:
                raise Unalike(f"at {point_text(sample.point)} the formula gives {largest}, the footprint is {exact}")
