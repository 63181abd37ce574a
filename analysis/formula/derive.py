"""The cost of a step as formulas: the operation table with sizes that are expressions, through the same counting rules.

`formulas` takes what makes a table at a point (`sample_at`), and gives every count by phase, kind, module and operation
as a polynomial in the symbols and their rounded quotients. Symbols that only change sizes come from the forms of those
sizes, and the rules of `analysis/operators/registry.py` (or another table) do the counting on expressions. Symbols that
change the operations themselves (layers, an unrolled loop) come from interpolation between such counts, exactly. Either
way the result must equal the count of whole numbers at points that had no part in it, or `Unfitted` is raised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from analysis.footprint.live_bytes import unsized
from analysis.formula.interpolate import Fitter, Form, Point, plus, times, value_of
from analysis.formula.sampling import Axis, CountKey, Sampler, Sizes, SizeSample, Unfitted, derive, place_of
from analysis.formula.symbolic_table import OWN, Convention, Counts, Key, counts_of
from analysis.operators import registry

STRUCTURE_POINTS = 2
"""Points along a symbol that changes the operations, beside its base, at first."""

STRUCTURE_LONGEST = 12
"""Points for those symbols together, at most."""

STRUCTURE_DEGREE = 3
"""Degree of a count in one symbol that changes the operations."""


@dataclass(frozen=True)
class Derived:
    """Formulas of a step. counts: without zeros. checked: points at which whole-number counts were equal, and none of
    which a form was fitted to. axes: of the symbols that change sizes; structural: of those that change operations.
    without: places whose other FLOP are of no known form, though all their sizes are: `OPEN` alone may be so. levels:
    the tables whose sizes are forms, each with its values of the structural symbols; the last was only checked against.
    """

    counts: Counts
    axes: tuple[Axis, ...]
    structural: tuple[Axis, ...]
    checked: tuple[Point, ...]
    samples: int
    not_understood: Mapping[str, int]
    without: frozenset[Key] = frozenset()
    levels: tuple[tuple[Point, Sizes], ...] = ()
    unsized: frozenset[CountKey] = frozenset()

    def total(self, quantity: str, keep: Callable[[Any], bool] = lambda _place: True) -> Form:
        """The sum of a quantity over the places that are kept."""
        return plus(form for (place, of), form in self.counts.items() if of == quantity and keep(place))


def formulas(sample_at: Sampler, axes: Sequence[Axis], convention: Convention = OWN) -> Derived:
    """The formulas of a step in the symbols of all axes. Raises Unfitted where they are of no known form."""
    seen: dict[tuple[tuple[str, int], ...], SizeSample] = {}

    def sampled(point: Point) -> SizeSample:
        key = tuple(sorted(point.items()))
        if key not in seen:
            seen[key] = sample_at(dict(key))
        return seen[key]

    base = {axis.symbol: axis.base for axis in axes}
    structure = sampled(base).structure
    structural = tuple(
        axis
        for axis in axes
        if any(sampled({**base, axis.symbol: axis.at(steps)}).structure != structure for steps in (1, 2))
    )
    sized = tuple(axis for axis in axes if axis not in structural)
    level = _Level(sampled, sized, structural, convention)
    counts, checked = level.counts()
    unknown = registry.not_understood(sampled(base).operations, convention.rules)
    without, levels = frozenset(level.without), tuple(level.tables)
    lacking = frozenset() if convention.made else _unsized(seen.values(), merged=bool(structural))
    return Derived(counts, sized, structural, checked, len(seen), unknown, without, levels, lacking)


def _unsized(samples: Iterable[SizeSample], merged: bool) -> frozenset[CountKey]:
    """Places of the operations that read or write a storage whose size is not known."""
    places: set[CountKey] = set()
    for sample in samples:
        lacking = unsized(sample.operations, sample.storages)
        touching = (each for each in sample.operations if lacking.intersection((*each.reads, *each.writes)))
        places.update(place_of(each, merged) for each in touching)
    return frozenset(places)


class _Level:
    """Counts at points of the structural symbols, each as forms in the others, and forms through those."""

    def __init__(
        self, sampled: Sampler, sized: Sequence[Axis], structural: Sequence[Axis], convention: Convention
    ) -> None:
        self._sampled, self._sized, self._structural, self._convention = sampled, sized, structural, convention
        self._at: dict[tuple[int, ...], tuple[Counts, tuple[Point, ...]]] = {}
        self.without: set[Key] = set()
        self.tables: list[tuple[Point, Sizes]] = []

    def counts(self) -> tuple[Counts, tuple[Point, ...]]:
        """The counts in all symbols, and the points that they were checked at."""
        if not self._structural:
            return self._counts_at({})
        points: list[Point] = [{axis.symbol: axis.base for axis in self._structural}]
        points += [
            {**points[0], axis.symbol: axis.at(steps)}
            for axis in self._structural
            for steps in range(1, 1 + STRUCTURE_POINTS)
        ]
        for turn in range(STRUCTURE_LONGEST):
            fitted = self._fit_forms(points)
            late = self._further(fitted, turn) if isinstance(fitted, str) else self._check_point(turn)
            if late in points:
                continue
            if not isinstance(fitted, str) and self._agrees(fitted, late):
                return fitted, (*self._counts_at(points[0])[1], *self._counts_at(late)[1])
            points.append(late)
        raise Unfitted(f"no formula in {', '.join(axis.symbol for axis in self._structural)} was found")

    def _fit_forms(self, points: Sequence[Point]) -> Counts | str:
        """Forms through the counts at all points; or the symbol along which there is none ("" where it is between)."""
        tables = [self._counts_at(point)[0] for point in points]
        fitter = Fitter(points, STRUCTURE_DEGREE)
        forms_of: dict[tuple[Any, str], list[Form]] = defaultdict(list)
        for key in dict.fromkeys(key for table in tables for key in table if key not in self.without):
            for monomial in dict.fromkeys(m for table in tables for m in table.get(key, {})):
                values = tuple([_whole(table.get(key, {}).get(monomial, 0)) for table in tables])
                form = fitter.fit(values)
                if form is None:
                    return next(iter(sorted(fitter.curved(values))), "")
                forms_of[key].append(times(form, {monomial: Fraction(1)}))
        return {key: plus(forms) for key, forms in forms_of.items()}

    def _further(self, symbol: str, turn: int) -> Point:
        """A point that may tell more: along a symbol that is curved, or between all."""
        base = {axis.symbol: axis.base for axis in self._structural}
        for axis in self._structural:
            if axis.symbol == symbol:
                return {**base, symbol: axis.at(STRUCTURE_POINTS + 1 + turn)}
        return self._check_point(turn)

    def _check_point(self, turn: int) -> Point:
        """A point with all structural symbols changed, not twice in the same proportion; of one symbol, further out."""
        if len(self._structural) == 1:
            axis = self._structural[0]
            return {axis.symbol: axis.at(STRUCTURE_POINTS + 1 + turn)}
        return {
            axis.symbol: axis.at(1 + (turn * (place + 1) + place) % 3) for place, axis in enumerate(self._structural)
        }

    def _agrees(self, counts: Counts, late: Point) -> bool:
        """Whether forms in all symbols are those that are had at another structural point, of other sizes."""
        there = self._counts_at(late)[0]
        here = {key: partly_at(form, late) for key, form in counts.items()}
        keys = (here.keys() | there.keys()) - self.without
        return all(here.get(key, {}) == there.get(key, {}) for key in keys)

    def _counts_at(self, fixed: Point) -> tuple[Counts, tuple[Point, ...]]:
        """The counts at a point of the structural symbols, as forms in the others, and where they were checked."""
        key = tuple(fixed.values())
        if key not in self._at:
            sizes = derive(self._sampled, self._sized, fixed)
            self.tables.append((dict(fixed), sizes))
            counts, points, without = counts_of(sizes, self._convention, merged=bool(fixed))
            self._at[key] = counts, points
            self.without |= without
        return self._at[key]


def _whole(number: int | Fraction) -> int | Fraction:
    """An int where it is one, which is kept and compared in a fraction of the time."""
    return number.numerator if number.denominator == 1 else number


def partly_at(form: Form, point: Point) -> Form:
    """A form with some of its symbols at numbers."""
    parts = []
    for monomial, coefficient in form.items():
        free = tuple((atom, power) for atom, power in monomial if atom.symbol not in point)
        given = {pair: Fraction(1) for pair in [tuple(pair for pair in monomial if pair not in free)]}
        parts.append({free: coefficient * value_of(given, point)})
    return plus(parts)
