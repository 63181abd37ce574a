"""The footprint of a step as a formula: the largest of a few forms, each what is alive while one operation runs.

At one order of operations live bytes are a sum of storages at every moment, and so a form. *eager* is the peak in the
eager order, exact for all sizes that the step's other formulas hold for; *minimal* the peak in the order that
`analysis/footprint/minimum.py` finds at the point that is asked for, which at other points may not be the best. Numbers
of layers are interpolated as in `analysis/formula/derive.py`. What is given equals the footprint of whole numbers at
every sample; where it does not, or the samples differ in kind, there is no formula, and `why` has the reason.
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
from analysis.formula.derive import STRUCTURE_DEGREE, Derived, Expr, expression, partly_at
from analysis.formula.interpolate import Atom, Fitter, Form, Monomial, Point, interpolated, point_text, value_of
from analysis.formula.sampling import CountKey, SizeSample, place_of
from results.records.counts import Operation

BATCH = "batch"

MOST = 200
"""Forms of one formula, at most."""

PAIRED = 120
"""Rows that are compared with means of two others, at most: it takes the cube of their number."""

LARGEST = 2**62

ROUGH = 1e-6
"""By how much floats may be off where a pair is only looked for."""

DENOMINATOR = 1000
"""Largest denominator of the share of a mean of two values."""

FIRST = Operation(BEFORE, "before the first operation", "", "", "", None, None, (), (), (), (), (), {}, (), ())

QUANTITIES = EAGER, MINIMAL = "eager_footprint_bytes", "minimal_footprint_bytes"

Matrix = Any
"""A numpy array of whole numbers: a form a row, a monomial a column."""

Life = tuple[Form, int, int]
"""The bytes of a storage, the first moment at which it is there, and the one after the last."""


class Unalike(ValueError):
    """The footprint has no formula; one line says why."""


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
        """The quantity as a sympy expression."""
        parts = list(dict.fromkeys(expression(peak.form) for peak in self.peaks[quantity]))
        return parts[0] if len(parts) == 1 else sympy.Max(*parts, evaluate=False)


def footprints(derived: Derived, point: Point) -> Footprints:
    """The footprints of a step. point: where its minimal order is looked for, a value of every symbol."""
    axes = (*derived.axes, *derived.structural)
    least = {axis.symbol: 1 if axis.symbol == BATCH else min(axis.base, point[axis.symbol]) for axis in axes}
    peaks: dict[str, tuple[Labelled, ...]] = {}
    why: dict[str, str] = {}
    proven: list[bool] = []
    for quantity in QUANTITIES:
        try:
            by_table = []
            for fixed, sizes in derived.levels:
                columns = zip(*(sample.storages for sample in sizes.samples), strict=True)
                forms = [sizes.form(tuple(storage.nbytes or 0 for storage in column)) for column in columns]
                if quantity == EAGER:
                    lives, places = _eager_lives(sizes.samples, forms)
                else:
                    lives, places, is_proven = _ordered_lives(sizes.samples, forms, {**point, **fixed})
                    proven.append(is_proven)
                moments = highest(lives, len(places), least)
                merged = bool(derived.structural)
                by_table.append((fixed, [Labelled(place_of(places[at], merged), form) for at, form in moments]))
            peaks[quantity] = _through(by_table)
            for sample in (sample for _, sizes in derived.levels for sample in sizes.samples):
                largest, exact = value(peaks[quantity], sample.point), eager_peak(sample)
                if quantity == EAGER and largest != exact:
                    raise Unalike(f"at {point_text(sample.point)} the formula gives {largest}, the step needs {exact}")
        except Unalike as fault:
            peaks.pop(quantity, None)
            why[quantity] = str(fault)
    return Footprints(peaks, why, MINIMAL in peaks and all(proven))


def value(peaks: Sequence[Labelled], point: Point) -> int | Fraction:
    """The largest of the forms at a point."""
    return max(value_of(peak.form, point) for peak in peaks)


def eager_peak(sample: SizeSample) -> int:
    """The peak of a step of whole numbers."""
    return peak_bytes(sample.operations, sample.storages)


def _eager_lives(samples: Sequence[SizeSample], forms: Sequence[Form]) -> tuple[list[Life], list[Operation]]:
    """When storages are there in the eager order, and its operations, before the first of which there is a moment, too.
    Raises Unalike where storages live otherwise at some sample."""
    lives = []
    for sample in samples:
        sized = [replace(storage, nbytes=storage.nbytes or 0) for storage in sample.storages]
        lives.append([(s.born_index, s.died_index) for s in reuse_gradients(sample.operations, sized)])
        if lives[-1] != lives[0]:
            raise Unalike(f"storages live otherwise at {point_text(sample.point)}")
    operations = [FIRST, *samples[0].operations]
    pairs = zip(forms, lives[0], strict=True)
    ends = ((form, born + 1, len(operations) if died is None else died + 2) for form, (born, died) in pairs)
    return list(ends), operations


def _ordered_lives(
    samples: Sequence[SizeSample], forms: Sequence[Form], point: Point
) -> tuple[list[Life], list[Operation], bool]:
    """When storages are there in the order that is found at a point, its operations, whether none needs less. Raises
    Unalike where something else has to come before something at a sample."""
    operations, pairs = samples[0].operations, zip(samples[0].storages, forms, strict=True)
    here = tuple(replace(storage, nbytes=int(value_of(form, point))) for storage, form in pairs)
    whole = graph(operations, samples[0].storages)
    for where, storages in (*((sample.point, sample.storages) for sample in samples), (point, here)):
        if _shape(graph(operations, storages)) != _shape(whole):
            raise Unalike(f"what has to come before what is another at {point_text(where)}")
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
    """What two graphs share whose sizes alone differ."""
    return graph.before, [replace(block, nbytes=0) for block in graph.blocks]


def _through(by_table: Sequence[tuple[Point, Sequence[Labelled]]]) -> tuple[Labelled, ...]:
    """The peaks of all tables as forms in every symbol. Raises Unalike."""
    if max(len(peaks) for _, peaks in by_table) > MOST:
        raise Unalike(f"more than {MOST} operations can be the peak")
    if len(by_table) == 1:
        return tuple(by_table[0][1])
    tables = [(fixed, _by_place(peaks)) for fixed, peaks in by_table]
    fitted = [peaks for _, peaks in tables[:-1]]
    fitter = Fitter([fixed for fixed, _ in tables[:-1]], STRUCTURE_DEGREE)
    whole: list[Labelled] = []
    for key in fitted[0]:
        if all(key in peaks for peaks in fitted):
            form = interpolated(fitter, [peaks[key] for peaks in fitted])
            if not isinstance(form, str) and Labelled(key[0], form) not in whole:
                whole.append(Labelled(key[0], form))
    for fixed, peaks in tables:
        here = [partly_at(peak.form, fixed) for peak in whole]
        if any(form not in here for form in peaks.values()) or any(form not in peaks.values() for form in here):
            raise Unalike(f"the peak at {point_text(fixed)} is at operations that it is not at elsewhere")
    return tuple(whole)


def _by_place(peaks: Sequence[Labelled]) -> dict[tuple[CountKey, int], Form]:
    """The forms by place; of several at one place each by its number from the first on (0, 1, …) and by that from the
    last (-1, -2, …): of two layers the second is the last, and of three it is between."""
    there: dict[CountKey, list[Form]] = {}
    for peak in peaks:
        there.setdefault(peak.place, []).append(peak.form)
    return {
        (place, number): form
        for place, forms in there.items()
        for start in (0, -len(forms))
        for number, form in enumerate(forms, start)
    }


# --- the largest of many forms ---------------------------------------------------------------------------------------


def highest(lives: Sequence[Life], moments: int, least: Point) -> list[tuple[int, Form]]:
    """The moments of which one has the most bytes, for any sizes from `least` on, and what is alive there.

    A moment is dropped where another has at least as much for all such sizes: their difference, written in variables
    that are never below 0, has no coefficient below 0; and where a mean of two others has: so do those of all layers
    between the first and the last, which give up an activation and gain a gradient from one to the next. That each that
    is left is the highest somewhere is not claimed.
    """
    monomials = sorted({monomial for form, *_ in lives for monomial in form})
    column = {monomial: place for place, monomial in enumerate(monomials)}
    denominator = lcm(1, *(coefficient.denominator for form, *_ in lives for coefficient in form.values()))
    change = numpy.zeros((moments + 1, len(monomials)), dtype=numpy.int64)
    for form, begins, ends in lives:
        for monomial, coefficient in form.items() if begins < ends else ():
            change[begins, column[monomial]] += int(coefficient * denominator)
            change[ends, column[monomial]] -= int(coefficient * denominator)
    rows = change[:-1].cumsum(axis=0)
    _, firsts = numpy.unique(rows, axis=0, return_index=True)
    firsts.sort()
    moved = _moved(rows[firsts], monomials, least)
    totals = [int(total) for total in moved.sum(axis=1)]
    chosen: list[int] = []
    for place in sorted(range(len(moved)), key=lambda place: (-totals[place], place)):
        if not (moved[chosen] >= moved[place]).all(axis=1).any():
            chosen.append(place)
    chosen.sort()
    for place in tuple(chosen) if len(chosen) <= PAIRED else ():
        others = [other for other in chosen if other != place]
        if _between(moved[place], moved[others]):
            chosen = others
    moments_of = [int(firsts[place]) for place in chosen]
    pairs = (zip(monomials, rows[moment].tolist(), strict=True) for moment in moments_of)
    forms = ({monomial: Fraction(number, denominator) for monomial, number in row if number} for row in pairs)
    return list(zip(moments_of, forms, strict=True))


def _moved(rows: Matrix, monomials: Sequence[Monomial], least: Point) -> Matrix:
    """The rows in variables that are 0 or more for all sizes from the least on.

    Of one symbol the coarsest rounding is its least value and a variable, each finer one the next coarser, as often as
    it is finer, with the least that is between them and a variable.
    """
    atoms = sorted({atom for monomial in monomials for atom, _ in monomial}, key=lambda a: (a.symbol, -a.by, a.add))
    space, *variables = ring([f"x{number}" for number in range(len(atoms) or 1)], ZZ)
    above: dict[Atom, Any] = {}
    coarser = Atom("")
    for atom, variable in zip(atoms, variables, strict=False):
        start = least[atom.symbol]
        if coarser.symbol == atom.symbol:
            ratio = max(1, coarser.by // atom.by)
            sizes = range(start, start + lcm(coarser.by, atom.by))  # from then on it repeats, or is more
            apart = min(atom(size) - ratio * coarser(size) for size in sizes)
            above[atom] = ratio * above[coarser] + apart + variable
        else:
            above[atom] = atom(start) + variable
        coarser = atom
    parts = [prod((above[atom] ** power for atom, power in monomial), start=space.one) for monomial in monomials]
    columns = sorted({powers for part in parts for powers in part})
    turned = numpy.array([[int(part.get(powers, 0)) for powers in columns] for part in parts], dtype=object)
    turned = turned.reshape(len(parts), len(columns))
    most = int(abs(rows).max(initial=0)) * int(abs(turned).max(initial=0)) * len(parts)
    kind = numpy.int64 if most < LARGEST else object
    return rows.astype(kind) @ turned.astype(kind)


def _between(row: Matrix, others: Matrix) -> bool:
    """Whether a row is at most a mean of two others, and so never above the larger of them."""
    for place in range(len(others) - 1):
        first, rest = others[place], others[place + 1 :]
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
