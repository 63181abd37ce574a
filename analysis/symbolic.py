"""The cost of a step as formulas: the operation table with sizes that are expressions, through the same counting rules.

`formulas` takes what makes a table at a point (`sample_at`), and gives every count by phase, kind, module and operation
as a polynomial in the symbols and their rounded quotients. Symbols that only change sizes come from the forms of those
sizes, and the rules of `analysis/kinds.py` (or another table) do the counting on expressions. Symbols that change the
operations themselves (layers, an unrolled loop) come from interpolation between such counts, exactly. Either way the
result must equal the count of whole numbers at points that had no part in it, or `Unfitted` is raised.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice
from typing import Any

from sympy import QQ
from sympy.polys.rings import ring

from analysis import kinds
from analysis.fitting import ONE, Fitter, Form, Point, plus, times, value_of
from analysis.operands import numel
from analysis.sampling import (
    Axis,
    NoSample,
    Sample,
    Sampler,
    Sizes,
    Unfitted,
    columns,
    derive,
    derive_like,
    joined,
    spread,
)
from analysis.together import derive_together
from results.records import Operation

FOOTPRINT = "footprint_bytes"

TOGETHER = 2
"""Points at which symbols are changed all at once, but those that are thought to change the operations."""

STRUCTURE_POINTS = 2
"""Points along a symbol that changes the operations, beside its base, at first."""

STRUCTURE_LONGEST = 12
"""Points for those symbols together, at most."""

STRUCTURE_DEGREE = 3
"""Of a count in one symbol that changes the operations."""


@dataclass(frozen=True, order=True)
class Place:
    """What counts are kept apart by. Of modules that a symbol multiplies, the numbers are *."""

    phase: str
    kind: str
    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} in {self.module or 'the model itself'} ({self.phase})"


Key = tuple[Any, str]
"""(place, quantity); what is of the whole step has a word in place of a place."""

Counts = dict[Key, Form]

OPEN = "other_flop"
"""The quantity that may have no formula where everything else has: unequal windows are summed one by one (an adaptive
pool whose side is no multiple)."""


@dataclass(frozen=True)
class Derived:
    """Formulas of a step. counts: without zeros. checked: points at which whole-number counts were equal, and none of
    which a form was fitted to. axes: of the symbols that change sizes; structural: of those that change operations.
    without: places whose other FLOP are of no known form, though all their sizes are: `OPEN` alone may be so.
    """

    counts: Counts
    axes: tuple[Axis, ...]
    structural: tuple[Axis, ...]
    checked: tuple[Point, ...]
    samples: int
    not_understood: Mapping[str, int]
    without: frozenset[Key] = frozenset()

    def total(self, quantity: str, keep: Callable[[Any], bool] = lambda _place: True) -> Form:
        """The sum of a quantity over the places that are kept."""
        return plus(form for (place, of), form in self.counts.items() if of == quantity and keep(place))


class Uninterpolated(Unfitted):
    """No formula goes through the counts at some values of the symbols that change the operations. axes: of those."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        self.axes = tuple(axes)
        super().__init__(f"no formula in {', '.join(axis.symbol for axis in axes)} was found")


@dataclass(frozen=True)
class Convention:
    """What is counted how. made: what an operation adds to the total footprint beside the storages of `kept`; None: the
    footprint is that of all storages, whatever their role."""

    rules: kinds.Rules = field(default_factory=lambda: kinds.TABLE)
    made: Callable[[Operation], Any] | None = None
    kept: Sequence[str] = ()


OWN = Convention()


def formulas(sample_at: Sampler, axes: Sequence[Axis], convention: Convention = OWN) -> Derived:
    """The formulas of a step in the symbols of all axes. Raises Unfitted where they are of no known form."""
    seen: dict[tuple[tuple[str, int], ...], Sample] = {}

    def sampled(point: Point) -> Sample:
        key = tuple(sorted(point.items()))
        if key not in seen:
            seen[key] = sample_at(dict(key))
        return seen[key]

    structural = _structural(sampled, axes)
    sized = tuple(axis for axis in axes if axis not in structural)
    level = _Level(sampled, sized, structural, convention)
    counts, checked = level.counts()
    first = seen[tuple(sorted((axis.symbol, axis.base) for axis in axes))]
    unknown = kinds.not_understood(first.operations, convention.rules)
    return Derived(counts, sized, structural, checked, len(seen), unknown, frozenset(level.without))


def _structural(sampled: Sampler, axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes along which the operations change. Those that are not thought to are looked at all at once, first."""
    base = {each.symbol: each.base for each in axes}
    calm = [axis for axis in axes if not axis.loops]
    try:
        alike = all(
            sampled({**base, **point}).structure == sampled(base).structure
            for point in islice(spread(calm), TOGETHER if calm else 0)
        )
    except NoSample:
        alike = False
    asked = [axis for axis in axes if axis.loops or not alike]
    return tuple(axis for axis in axes if axis in asked and _restructures(sampled, base, axis))


def _restructures(sampled: Sampler, base: Point, axis: Axis) -> bool:
    """Whether the operations change along an axis."""
    there = (sampled({**base, axis.symbol: axis.at(steps)}).structure for steps in (1, 2))
    return any(structure != sampled(base).structure for structure in there)


class _Level:
    """Counts at points of the structural symbols, each as forms in the others, and forms through those."""

    def __init__(
        self, sampled: Sampler, sized: Sequence[Axis], structural: Sequence[Axis], convention: Convention
    ) -> None:
        self._sampled, self._sized, self._structural, self._convention = sampled, sized, structural, convention
        self._at: dict[tuple[int, ...], tuple[Counts, tuple[Point, ...]]] = {}
        self._seen: list[Form] | None = None
        self.without: set[Key] = set()

    def counts(self) -> tuple[Counts, tuple[Point, ...]]:
        """The counts in all symbols, and the points that they were checked at."""
        if not self._structural:
            return self._counted({})
        points: list[Point] = [{axis.symbol: axis.base for axis in self._structural}]
        points += [
            {**points[0], axis.symbol: axis.at(steps)}
            for axis in self._structural
            for steps in range(1, 1 + STRUCTURE_POINTS)
        ]
        for turn in range(STRUCTURE_LONGEST):
            found = self._fitted(points)
            late = self._further(found, turn) if isinstance(found, str) else self._apart(turn)
            if late in points:
                continue
            if not isinstance(found, str) and self._agrees(found, late):
                return found, (*self._counted(points[0])[1], *self._counted(late)[1])
            points.append(late)
        raise Uninterpolated(self._structural)

    def _fitted(self, points: Sequence[Point]) -> Counts | str:
        """Forms through the counts at all points; or the symbol along which there is none ("" where it is between)."""
        tables = [self._counted(point)[0] for point in points]
        fitter = Fitter(points, STRUCTURE_DEGREE)
        found: dict[tuple[Any, str], list[Form]] = defaultdict(list)
        for key in dict.fromkeys(key for table in tables for key in table if key not in self.without):
            for monomial in dict.fromkeys(m for table in tables for m in table.get(key, {})):
                values = tuple(table.get(key, {}).get(monomial, Fraction(0)) for table in tables)
                form = fitter.fit(values)
                if form is None:
                    return next(iter(sorted(fitter.curved(values))), "")
                found[key].append(times(form, {monomial: Fraction(1)}))
        return {key: plus(forms) for key, forms in found.items()}

    def _further(self, symbol: str, turn: int) -> Point:
        """A point that may tell more: along a symbol that is curved, or between all."""
        base = {axis.symbol: axis.base for axis in self._structural}
        for axis in self._structural:
            if axis.symbol == symbol:
                return {**base, symbol: axis.at(STRUCTURE_POINTS + 1 + turn)}
        return self._apart(turn)

    def _apart(self, turn: int) -> Point:
        """A point with all structural symbols changed, not twice in the same proportion; of one symbol, further out."""
        if len(self._structural) == 1:
            axis = self._structural[0]
            return {axis.symbol: axis.at(STRUCTURE_POINTS + 1 + turn)}
        return {
            axis.symbol: axis.at(1 + (turn * (place + 1) + place) % 3) for place, axis in enumerate(self._structural)
        }

    def _agrees(self, found: Counts, late: Point) -> bool:
        """Whether forms in all symbols are those that are had at another structural point."""
        there = self._counted(late)[0]
        here = {key: _at(form, late) for key, form in found.items()}
        keys = (here.keys() | there.keys()) - self.without
        return all(here.get(key, {}) == there.get(key, {}) for key in keys)

    def _counted(self, fixed: Point) -> tuple[Counts, tuple[Point, ...]]:
        """The counts at a point of the structural symbols, as forms in the others, and where they were checked."""
        key = tuple(fixed.values())
        if key not in self._at:
            sizes = self._derived(fixed)
            counts, points, without = _counts(sizes, self._convention, merged=bool(fixed))
            self._at[key] = counts, points
            self.without |= without
        return self._at[key]

    def _derived(self, fixed: Point) -> Sizes:
        """The sizes there: like those at the first point, if they can be."""
        together = derive_together(self._sampled, self._sized, fixed, self._seen or ()) if self._sized else None
        like = None
        if together is None and self._seen is not None:
            supports = list(dict.fromkeys(map(tuple, self._seen)))
            like = derive_like(self._sampled, self._sized, fixed, supports)
        sizes = together or like or derive(self._sampled, self._sized, fixed)
        if self._seen is None:
            forms = (sizes.form(values) for values in columns(sizes.samples))
            self._seen = [form for form in forms if set(form) - {ONE}]
        return sizes


def _at(form: Form, point: Point) -> Form:
    """A form with some of its symbols at numbers."""
    parts = []
    for monomial, coefficient in form.items():
        kept = tuple((atom, power) for atom, power in monomial if atom.symbol not in point)
        given = {pair: Fraction(1) for pair in [tuple(pair for pair in monomial if pair not in kept)]}
        parts.append({kept: coefficient * value_of(given, point)})
    return plus(parts)


def _counts(sizes: Sizes, convention: Convention, merged: bool) -> tuple[Counts, tuple[Point, ...], set[Key]]:
    """The counts of a table with sizes as forms, where they were checked, and those of `OPEN` that are left out as they
    differ from the count of whole numbers. Raises Unfitted where another one does."""
    table = _Symbolic(sizes)
    sums: dict[tuple[Any, str], list[Any]] = defaultdict(list)
    for place, quantity, element in table.counted(convention, merged):
        sums[place, quantity].append(element)
    counts = {key: form for key, elements in sums.items() if (form := table.form(_sum(elements)))}
    late = sizes.samples[sizes.fitted :] or sizes.samples[:1]
    without = {key for sample in late for key in _wrong(counts, sample, convention, merged) if key[1] == OPEN}
    for sample in late:
        check(counts, sample, convention, merged, without)
    kept = {key: form for key, form in counts.items() if key not in without}
    return kept, tuple(sample.point for sample in late), without


def _sum(elements: Sequence[Any]) -> Any:
    total: Any = 0
    for element in elements:
        total = element + total
    return total


def check(
    counts: Counts, sample: Sample, convention: Convention, merged: bool, without: Collection[Key] = frozenset()
) -> None:
    """Raises Unfitted where a form's value is not the count of the table of whole numbers. without: counts that have
    no form."""
    for key, (found, exact) in _wrong(counts, sample, convention, merged).items():
        if key not in without:
            at = ", ".join(f"{symbol} {value}" for symbol, value in sample.point.items())
            raise Unfitted(f"{key[1]} of {key[0]} at {at}: the formula gives {found}, the count {exact}")


def _wrong(counts: Counts, sample: Sample, convention: Convention, merged: bool) -> dict[Key, tuple[Fraction, int]]:
    """The form's value and the count of whole numbers, where these differ."""
    exact: dict[Key, int] = defaultdict(int)
    for place, quantity, value in _whole_numbers(sample, convention, merged):
        exact[place, quantity] += value
    values = {key: value_of(counts.get(key, {}), sample.point) for key in exact.keys() | counts.keys()}
    return {key: (found, exact[key]) for key, found in values.items() if found != exact.get(key, 0)}


def _whole_numbers(sample: Sample, convention: Convention, merged: bool) -> Iterable[tuple[Any, str, int]]:
    """(place, quantity, value) of a table whose sizes are whole numbers."""
    for operation in sample.operations:
        place = _place(operation, merged)
        yield from ((place, quantity, value) for quantity, value in _costs(operation, convention))
    for storage in sample.storages:
        places = _of_storage(storage, sample.operations, convention, merged)
        yield from ((place, quantity, storage.nbytes) for place, quantity in places)
    for _, shape in sample.parameters:
        yield "model", "parameters", numel(shape)


def _costs(operation: Operation, convention: Convention) -> tuple[tuple[str, Any], ...]:
    cost = kinds.cost(operation, convention.rules)
    made = () if convention.made is None else ((FOOTPRINT, convention.made(operation)),)
    return (
        *made,
        ("model_flop", cost.model_flop),
        ("other_flop", cost.other_flop),
        ("read_bytes", cost.read_bytes),
        ("written_bytes", cost.written_bytes),
        ("calls", 1),
    )


def _of_storage(
    storage: Any, operations: Sequence[Operation], convention: Convention, merged: bool
) -> Iterable[tuple[Any, str]]:
    """Where a storage's bytes count: by its role, and at the operation that makes it."""
    yield storage.role, "role_bytes"
    if convention.made is None or storage.role in convention.kept:
        yield storage.role, FOOTPRINT
    if storage.born_index >= 0:
        yield _place(operations[storage.born_index], merged), "made_bytes"


def _place(operation: Operation, merged: bool) -> Place:
    module = re.sub(r"\d+", "*", operation.module) if merged else operation.module
    return Place(operation.phase, operation.kind, module, operation.name)


class _Symbolic:
    """A table whose sizes are elements of a ring of polynomials over the atoms that occur in them."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        forms = [sizes.form(values) for values in columns(sizes.samples)]
        self._atoms = sorted({atom for form in forms for monomial in form for atom, _ in monomial})
        self._ring, *self._generators = ring([f"a{i}" for i in range(len(self._atoms))] or ["a"], QQ)
        self._of = dict(zip(self._atoms, self._generators, strict=False))
        self._elements: dict[Any, Any] = {}

    def form(self, element: Any) -> Form:
        """An element of the ring, or a number, as a form."""
        if not isinstance(element, type(self._ring.one)):
            return {ONE: Fraction(element)} if element else {}
        return {
            tuple((self._atoms[i], power) for i, power in enumerate(powers) if power): Fraction(
                int(c.numerator), int(c.denominator)
            )
            for powers, c in element.terms()
        }

    def counted(self, convention: Convention, merged: bool) -> Iterable[tuple[Any, str, Any]]:
        """(place, quantity, element) of all operations, storages and parameters."""
        samples, known = self._sizes.samples, {}
        for rows in zip(*(sample.operations for sample in samples), strict=True):
            operation = self._operation(rows)
            key = (operation.name, operation.input_shapes, operation.output_shapes, operation.input_dtypes,
                   operation.output_dtypes, repr(operation.attributes), _pattern(operation))  # fmt: skip
            if key not in known:
                known[key] = _costs(operation, convention)
            place = _place(operation, merged)
            yield from ((place, quantity, element) for quantity, element in known[key])
        operations = samples[0].operations
        for each in zip(*(sample.storages for sample in samples), strict=True):
            element = self._element(tuple(storage.nbytes for storage in each))
            places = _of_storage(each[0], operations, convention, merged)
            yield from ((place, quantity, element) for place, quantity in places)
        for each in zip(*(sample.parameters for sample in samples), strict=True):
            yield "model", "parameters", numel(self._shape(tuple(shape for _, shape in each)))

    def _operation(self, rows: Sequence[Operation]) -> Operation:
        first = rows[0]
        return replace(
            first,
            input_shapes=tuple(map(self._shape, zip(*(row.input_shapes for row in rows), strict=True))),
            output_shapes=tuple(map(self._shape, zip(*(row.output_shapes for row in rows), strict=True))),
            attributes=joined([row.attributes for row in rows], self._element),
        )

    def _shape(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[Any, ...]:
        if shapes not in self._elements:
            self._elements[shapes] = tuple(map(self._element, zip(*shapes, strict=True)))
        return self._elements[shapes]  # type: ignore[no-any-return]

    def _element(self, values: tuple[int, ...]) -> Any:
        if len(set(values)) == 1:
            return values[0]
        if values not in self._elements:
            total = self._ring.zero
            for monomial, coefficient in self._sizes.form(values).items():
                term = self._ring(QQ(coefficient.numerator, coefficient.denominator))
                for atom, power in monomial:
                    term *= self._of[atom] ** power
                total += term
            self._elements[values] = total
        return self._elements[values]


def _pattern(operation: Operation) -> tuple[int, ...]:
    """Which of an operation's storages are the same."""
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(storage, len(numbers)) for storage in (*operation.reads, *operation.writes))
