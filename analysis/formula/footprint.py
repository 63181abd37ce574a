"""Derives the memory footprint of a step as a formula: the maximum of a few polynomials in the symbols.

Each polynomial (`Form`) is the live bytes while one operation runs: a sum of storages, if the order of operations is
fixed. `footprints` takes `Derived` formulas and a point (a value of each symbol), and returns `Footprints`. *eager* is
the peak in the eager order, exact for all sizes for which the other formulas hold. *minimal* is the peak in the order
that `analysis/footprint/minimum.py` finds at the given point; elsewhere another order may be better. Numbers of layers
are interpolated as in `analysis/formula/derive.py`. The eager formula equals the footprint of every sample. Where it
does not, or lifetimes or dependencies differ between samples, there is no formula, and `why` has the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm, prod
from typing import Any

import numpy
import sympy
from sympy import ZZ
from sympy.polys.rings import ring

from analysis.footprint.live_bytes import BEFORE, peak_bytes, reuse_gradients
from analysis.footprint.minimum import Graph, graph, minimal
from analysis.formula.derive import STRUCTURE_DEGREE, Derived, Expr, expression, partly_evaluated
from analysis.formula.interpolate import Atom, Fitter, Form, Monomial, Point, interpolated, point_text, value_of
from analysis.formula.sampling import CountKey, SizeSample, count_key
from results.records.counts import Operation

BATCH = "batch"

MOST = 200
"""Maximum number of forms of one formula."""

PAIRED = 120
"""Maximum number of polynomials for which each is compared with the means of any two others, at cubic cost. A
polynomial that nowhere exceeds such a mean is never the only peak, and is left out."""

LARGEST = 2**62
"""Bound of products that are calculated in int64; beyond it Python's ints are used."""

ROUGH = 1e-6
"""Tolerance of the search for such a mean in floats."""

DENOMINATOR = 1000
"""Largest denominator of a weight of such a mean."""

FIRST = Operation(BEFORE, "before the first operation", "", "", "", None, None, (), (), (), (), (), {}, (), ())

QUANTITIES = EAGER, MINIMAL = "eager_footprint_bytes", "minimal_footprint_bytes"

Matrix = Any
"""A numpy array of whole numbers: one row per form, one column per monomial."""

Lifetime = tuple[Form, int, int]
"""A storage: its bytes, the first moment at which it is alive, and the one after the last."""


class NoFormula(ValueError):
    """The footprint has no formula; one line says why."""


@dataclass(frozen=True)
class FootprintPeak:
    """Live bytes while an operation runs. Where a symbol multiplies modules, the numbers in the key's module are *."""

    key: CountKey
    form: Form


@dataclass(frozen=True)
class Footprints:
    """peaks: quantity → the forms whose maximum it is; why: quantity → why it has no formula. proven: no order needs
    less than the minimal formula at the given point, or at the few layers that were sampled there."""

    peaks: Mapping[str, tuple[FootprintPeak, ...]]
    why: Mapping[str, str]
    proven: bool

    def formula(self, quantity: str) -> Expr:
        """Return a quantity that is in `peaks` as a sympy expression."""
        parts = list(dict.fromkeys(expression(peak.form) for peak in self.peaks[quantity]))
        return parts[0] if len(parts) == 1 else sympy.Max(*parts, evaluate=False)


def footprints(derived: Derived, point: Point) -> Footprints:
    """Return the footprints of a step. point: a value of every symbol, at which the minimal order is searched."""
    axes = (*derived.axes, *derived.structural)
    least = {axis.symbol: 1 if axis.symbol == BATCH else min(axis.base, point[axis.symbol]) for axis in axes}
    peaks: dict[str, tuple[FootprintPeak, ...]] = {}
    why: dict[str, str] = {}
    proven: list[bool] = []
    for quantity in QUANTITIES:
        try:
            by_table = []
            for fixed, sizes in derived.levels:
                columns = zip(*(sample.storages for sample in sizes.samples), strict=True)
                forms = [sizes.form(tuple(storage.nbytes or 0 for storage in column)) for column in columns]
                if quantity == EAGER:
                    lifetimes, operations = _eager_lifetimes(sizes.samples, forms)
                else:
                    lifetimes, operations, is_proven = _ordered_lifetimes(sizes.samples, forms, {**point, **fixed})
                    proven.append(is_proven)
                moments = highest(lifetimes, len(operations), least)
                merged = bool(derived.structural)
                by_table.append(
                    (fixed, [FootprintPeak(count_key(operations[moment], merged), form) for moment, form in moments])
                )
            peaks[quantity] = _through(by_table)
            for sample in (sample for _, sizes in derived.levels for sample in sizes.samples):
                largest, exact = value(peaks[quantity], sample.point), eager_peak(sample)
                if quantity == EAGER and largest != exact:
                    raise NoFormula(
                        f"at {point_text(sample.point)} the formula gives {largest}, the step needs {exact}"
                    )
        except NoFormula as fault:
            peaks.pop(quantity, None)
            why[quantity] = str(fault)
    return Footprints(peaks, why, MINIMAL in peaks and all(proven))


def value(peaks: Sequence[FootprintPeak], point: Point) -> int | Fraction:
    """Return the largest of the forms at a point."""
    return max(value_of(peak.form, point) for peak in peaks)


def eager_peak(sample: SizeSample) -> int:
    """Return the eager peak of a sampled step."""
    return peak_bytes(sample.operations, sample.storages)


def _eager_lifetimes(samples: Sequence[SizeSample], forms: Sequence[Form]) -> tuple[list[Lifetime], list[Operation]]:
    """Return (lifetimes, operations) in the eager order; the first operation is the moment before the step. Raises
    NoFormula where the lifetimes of storages differ between samples."""
    lives = []
    for sample in samples:
        sized = [replace(storage, nbytes=storage.nbytes or 0) for storage in sample.storages]
        lives.append([(s.born_index, s.died_index) for s in reuse_gradients(sample.operations, sized)])
        if lives[-1] != lives[0]:
            raise NoFormula(f"the lifetimes of storages are different at {point_text(sample.point)}")
    operations = [FIRST, *samples[0].operations]
    pairs = zip(forms, lives[0], strict=True)
    ends = ((form, born + 1, len(operations) if died is None else died + 2) for form, (born, died) in pairs)
    return list(ends), operations


def _ordered_lifetimes(
    samples: Sequence[SizeSample], forms: Sequence[Form], point: Point
) -> tuple[list[Lifetime], list[Operation], bool]:
    """Return (lifetimes, operations, proven) in the order that is found at a point. proven: no order needs less there.
    Raises NoFormula where dependencies differ between samples."""
    operations, pairs = samples[0].operations, zip(samples[0].storages, forms, strict=True)
    here = tuple(replace(storage, nbytes=int(value_of(form, point))) for storage, form in pairs)
    whole = graph(operations, samples[0].storages)
    for where, storages in (*((sample.point, sample.storages) for sample in samples), (point, here)):
        if _shape(graph(operations, storages)) != _shape(whole):
            raise NoFormula(f"the dependencies of operations are different at {point_text(where)}")
    minimum = minimal(operations, here)
    node_of = {index: node for node, index in enumerate(whole.operations)}
    order = [index for index in minimum.order if index in node_of]
    turn = {node_of[index]: moment for moment, index in enumerate(order)}
    lives = []
    for block in whole.blocks:
        last = max((turn[node] for node in block.users), default=BEFORE)
        begins, ends = turn.get(block.maker, 0), len(order) if block.stays else last + 1
        lives.append((forms[block.storages[0]], begins, ends))
    return lives, [operations[index] for index in order], minimum.proven


def _shape(graph: Graph) -> tuple[object, ...]:
    """Return a key that is equal for two graphs that only differ in sizes."""
    return graph.before, [replace(block, nbytes=0) for block in graph.blocks]


def _through(by_table: Sequence[tuple[Point, Sequence[FootprintPeak]]]) -> tuple[FootprintPeak, ...]:
    """Interpolate the peaks of all tables as forms in every symbol. Raises NoFormula for more than MOST peaks, and
    where the peaks of the tables are at different operations."""
    if max(len(peaks) for _, peaks in by_table) > MOST:
        raise NoFormula(f"more than {MOST} operations can be the peak")
    if len(by_table) == 1:
        return tuple(by_table[0][1])
    tables = [(fixed, _by_key(peaks)) for fixed, peaks in by_table]
    fitted = [peaks for _, peaks in tables[:-1]]
    fitter = Fitter([fixed for fixed, _ in tables[:-1]], STRUCTURE_DEGREE)
    whole: list[FootprintPeak] = []
    for key in fitted[0]:
        if all(key in peaks for peaks in fitted):
            form = interpolated(fitter, [peaks[key] for peaks in fitted])
            if not isinstance(form, str) and FootprintPeak(key[0], form) not in whole:
                whole.append(FootprintPeak(key[0], form))
    for fixed, peaks in tables:
        here = [partly_evaluated(peak.form, fixed) for peak in whole]
        if any(form not in here for form in peaks.values()) or any(form not in peaks.values() for form in here):
            raise NoFormula(f"the operations that can be the peak are different at {point_text(fixed)}")
    return tuple(whole)


def _by_key(peaks: Sequence[FootprintPeak]) -> dict[tuple[CountKey, int], Form]:
    """Return the forms by key and number. Several forms of one key are numbered from the first (0, 1, …) and from the
    last (-1, -2, …), because the second layer is the last of two, but between others of three."""
    forms_of: dict[CountKey, list[Form]] = {}
    for peak in peaks:
        forms_of.setdefault(peak.key, []).append(peak.form)
    return {
        (key, number): form
        for key, forms in forms_of.items()
        for start in (0, -len(forms))
        for number, form in enumerate(forms, start)
    }


# --- the largest of many forms ---------------------------------------------------------------------------------------


def highest(lifetimes: Sequence[Lifetime], moments: int, least: Point) -> list[tuple[int, Form]]:
    """Return the moments that may have the most bytes for sizes from `least` on, and their forms.

    A moment is dropped if another one, or a mean of two others, always has at least as many bytes: their difference, in
    variables that are never negative, has no negative coefficient. Means drop the layers between the first and the
    last, since each layer exchanges an activation for a gradient. Not claimed: that each moment that is left is the
    highest somewhere.
    """
    monomials = sorted({monomial for form, *_ in lifetimes for monomial in form})
    column = {monomial: index for index, monomial in enumerate(monomials)}
    denominator = lcm(1, *(coefficient.denominator for form, *_ in lifetimes for coefficient in form.values()))
    change = numpy.zeros((moments + 1, len(monomials)), dtype=numpy.int64)
    for form, begins, ends in lifetimes:
        for monomial, coefficient in form.items() if begins < ends else ():
            change[begins, column[monomial]] += int(coefficient * denominator)
            change[ends, column[monomial]] -= int(coefficient * denominator)
    rows = change[:-1].cumsum(axis=0)
    _, firsts = numpy.unique(rows, axis=0, return_index=True)
    firsts.sort()
    shifted = _in_nonnegative_variables(rows[firsts], monomials, least)
    totals = [int(total) for total in shifted.sum(axis=1)]
    chosen: list[int] = []
    for row in sorted(range(len(shifted)), key=lambda row: (-totals[row], row)):
        if not (shifted[chosen] >= shifted[row]).all(axis=1).any():
            chosen.append(row)
    chosen.sort()
    for row in tuple(chosen) if len(chosen) <= PAIRED else ():
        others = [other for other in chosen if other != row]
        if _is_below_mean(shifted[row], shifted[others]):
            chosen = others
    moments_of = [int(firsts[row]) for row in chosen]
    pairs = (zip(monomials, rows[moment].tolist(), strict=True) for moment in moments_of)
    forms = ({monomial: Fraction(number, denominator) for monomial, number in row if number} for row in pairs)
    return list(zip(moments_of, forms, strict=True))


def _in_nonnegative_variables(rows: Matrix, monomials: Sequence[Monomial], least: Point) -> Matrix:
    """Return the rows in variables that are 0 or more for all sizes from the least on.

    For each symbol the coarsest rounding is its least value plus a variable; each finer one is the next coarser times
    their ratio, plus the least difference and a variable.
    """
    atoms = sorted({atom for monomial in monomials for atom, _ in monomial}, key=lambda a: (a.symbol, -a.by, a.add))
    space, *variables = ring([f"x{number}" for number in range(len(atoms) or 1)], ZZ)
    shifted: dict[Atom, Any] = {}
    coarser = Atom("")
    for atom, variable in zip(atoms, variables, strict=False):
        start = least[atom.symbol]
        if coarser.symbol == atom.symbol:
            ratio = max(1, coarser.by // atom.by)
            sizes = range(start, start + lcm(coarser.by, atom.by))  # from then on it repeats, or is more
            least_difference = min(atom(size) - ratio * coarser(size) for size in sizes)
            shifted[atom] = ratio * shifted[coarser] + least_difference + variable
        else:
            shifted[atom] = atom(start) + variable
        coarser = atom
    parts = [prod((shifted[atom] ** power for atom, power in monomial), start=space.one) for monomial in monomials]
    columns = sorted({powers for part in parts for powers in part})
    in_variables = numpy.array([[int(part.get(powers, 0)) for powers in columns] for part in parts], dtype=object)
    in_variables = in_variables.reshape(len(parts), len(columns))
    most = int(abs(rows).max(initial=0)) * int(abs(in_variables).max(initial=0)) * len(parts)
    kind = numpy.int64 if most < LARGEST else object
    return rows.astype(kind) @ in_variables.astype(kind)


def _is_below_mean(row: Matrix, others: Matrix) -> bool:
    """Return whether a row is at most a mean of two others, and so never above the larger of them."""
    for index in range(len(others) - 1):
        first, rest = others[index], others[index + 1 :]
        slope, need = (first - rest).astype(float), (row - rest).astype(float)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            share = need / slope
        low = numpy.where(slope > 0, share, numpy.where((slope == 0) & (need > 0), 2.0, 0.0)).max(axis=1)
        high = numpy.where(slope < 0, share, 1.0).min(axis=1)
        for other in numpy.flatnonzero((low <= high + ROUGH) & (low <= 1 + ROUGH)):
            part = Fraction(float(low[other] + high[other]) / 2).limit_denominator(DENOMINATOR)
            first_part, second_part = part.numerator, part.denominator - part.numerator
            mean = first_part * first.astype(object) + second_part * rest[other].astype(object)
            if 0 <= part <= 1 and bool((mean >= part.denominator * row.astype(object)).all()):
                return True
    return False
