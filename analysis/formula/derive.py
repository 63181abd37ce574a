"""The cost of a step as formulas: the operation table with sizes that are expressions, through the same counting rules.

`formulas` takes what makes a table at a point (`sample_at`), and gives every count by phase, kind, module and operation
as a polynomial in the symbols and their rounded quotients. Symbols that only change sizes come from the forms of those
sizes, and the rules of `analysis/operators/registry.py` (or another table) do the counting on expressions. Symbols that
change the operations themselves (layers, an unrolled loop) come from interpolation between such counts, exactly. Either
way the result must equal the count of whole numbers at points that had no part in it, or `Unfitted` is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from analysis.footprint.live_bytes import unsized
from analysis.formula.interpolate import Fitter, Form, Point, interpolated, plus, value_of
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
    levels: dict[tuple[int, ...], Level] = {}
    without: set[Key] = set()

    def level(fixed: Point) -> Level:
        key = tuple(fixed.values())
        if key not in levels:
            sizes = derive(sampled, sized, fixed)
            counts, points, open_keys = counts_of(sizes, convention, merged=bool(fixed))
            levels[key] = Level(fixed, sizes, counts, points)
            without.update(open_keys)
        return levels[key]

    first = level({axis.symbol: axis.base for axis in structural})
    counts, checked = first.counts, first.checked
    if structural:
        counts, late = _through(structural, level, without)
        checked += level(late).checked
    return Derived(
        counts,
        sized,
        structural,
        checked,
        len(seen),
        registry.not_understood(sampled(base).operations, convention.rules),
        frozenset(without),
        tuple((fixed, sizes) for fixed, sizes, *_ in levels.values()),
        frozenset() if convention.made else _unsized(seen.values(), merged=bool(structural)),
    )


def _unsized(samples: Iterable[SizeSample], merged: bool) -> frozenset[CountKey]:
    """Places of the operations that read or write a storage whose size is not known."""
    places: set[CountKey] = set()
    for sample in samples:
        lacking = unsized(sample.operations, sample.storages)
        touching = (each for each in sample.operations if lacking.intersection((*each.reads, *each.writes)))
        places.update(place_of(each, merged) for each in touching)
    return frozenset(places)


class Level(NamedTuple):
    """Counts at a point of the structural symbols, as forms in the others, and where they were checked."""

    fixed: Point
    sizes: Sizes
    counts: Counts
    checked: tuple[Point, ...]


def _through(
    structural: Sequence[Axis], level: Callable[[Point], Level], without: Collection[Key]
) -> tuple[Counts, Point]:
    """The counts in all symbols, and a structural point at which they are those that are had there, of other sizes."""
    points: list[Point] = [{axis.symbol: axis.base for axis in structural}]
    points += [{**points[0], axis.symbol: axis.at(1 + i)} for axis in structural for i in range(STRUCTURE_POINTS)]
    for turn in range(STRUCTURE_LONGEST):
        tables = [level(point).counts for point in points]
        fitter = Fitter(points, STRUCTURE_DEGREE)
        counts: Counts = {}
        curved = None
        for key in dict.fromkeys(key for table in tables for key in table if key not in without):
            form = interpolated(fitter, [table.get(key, {}) for table in tables])
            if isinstance(form, str):
                curved = form
                break
            counts[key] = form
        along = [axis for axis in structural if len(structural) == 1 or axis.symbol == curved]
        if along:  # a point further out
            late = {**points[0], along[0].symbol: along[0].at(STRUCTURE_POINTS + 1 + turn)}
        else:  # one with all symbols changed, not twice in the same proportion
            late = {axis.symbol: axis.at(1 + (turn * (i + 1) + i) % 3) for i, axis in enumerate(structural)}
        if late in points:
            continue
        if curved is None:
            there = level(late).counts
            here = {key: partly_at(form, late) for key, form in counts.items()}
            if all(here.get(key, {}) == there.get(key, {}) for key in (here.keys() | there.keys()) - set(without)):
                return counts, late
        points.append(late)
    raise Unfitted(f"no formula in {', '.join(axis.symbol for axis in structural)} was found")


def partly_at(form: Form, point: Point) -> Form:
    """A form with some of its symbols at numbers."""
    parts = []
    for monomial, coefficient in form.items():
        free = tuple((atom, power) for atom, power in monomial if atom.symbol not in point)
        given = {pair: Fraction(1) for pair in [tuple(pair for pair in monomial if pair not in free)]}
        parts.append({free: coefficient * value_of(given, point)})
    return plus(parts)
