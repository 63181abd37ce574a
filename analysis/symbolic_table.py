"""An operation table whose sizes are forms: what the counting rules make of it, and whether whole numbers agree.

Sizes are elements of a ring of polynomials over the atoms that occur (`analysis/fitting.py`), which the readers of
`analysis/kinds.py` add and multiply as they do numbers. `counts_of` gives every count of a table so, by place, after
it was found equal to the count of whole numbers at the samples that no form was fitted to.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from sympy import QQ
from sympy.polys.rings import ring

from analysis import kinds
from analysis.fitting import ONE, Form, Point, told, value_of
from analysis.operands import numel
from analysis.sampling import Sample, Sizes, Unfitted, joined
from results.records import Operation

FOOTPRINT = "footprint_bytes"


class Place(NamedTuple):
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
class Convention:
    """What is counted how. made: what an operation adds to the total footprint beside the storages of `kept`; None: the
    footprint is that of all storages, whatever their role."""

    rules: kinds.Rules = field(default_factory=lambda: kinds.TABLE)
    made: Callable[[Operation], Any] | None = None
    kept: Sequence[str] = ()


OWN = Convention()


def counts_of(sizes: Sizes, convention: Convention, merged: bool) -> tuple[Counts, tuple[Point, ...], set[Key]]:
    """The counts of a table with sizes as forms, where they were checked, and those of `OPEN` that are left out as they
    differ from the count of whole numbers. Raises Unfitted where another one does."""
    table = _Symbolic(sizes)
    sums: dict[tuple[Any, str], list[Any]] = defaultdict(list)
    for place, quantity, element in table.counted(convention, merged):
        sums[place, quantity].append(element)
    forms: dict[tuple[int, ...], Form] = {}  # equal layers have the same elements, which live as long as the table
    for elements in sums.values():
        key = tuple(map(id, elements))
        if key not in forms:
            forms[key] = table.form(_sum(elements))
    counts = {key: form for key, elements in sums.items() if (form := forms[tuple(map(id, elements))])}
    late = sizes.samples[sizes.fitted :] or sizes.samples[-1:]
    found = [(sample, _wrong(counts, sample, convention, merged)) for sample in late]
    without = {key for _, wrong in found for key in wrong if key[1] == OPEN}
    for sample, wrong in found:
        _refuse(wrong, sample, without)
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
    _refuse(_wrong(counts, sample, convention, merged), sample, without)


def _refuse(wrong: Mapping[Key, tuple[Fraction, int]], sample: Sample, without: Collection[Key]) -> None:
    for key, (found, exact) in wrong.items():
        if key not in without:
            raise Unfitted(
                f"{key[1]} of {key[0]} at {told(sample.point)}: the formula gives {found}, the count {exact}"
            )


def _wrong(counts: Counts, sample: Sample, convention: Convention, merged: bool) -> dict[Key, tuple[Fraction, int]]:
    """The form's value and the count of whole numbers, where these differ."""
    exact: dict[Key, int] = defaultdict(int)
    for place, quantity, value in _whole_numbers(sample, convention, merged):
        exact[place, quantity] += value
    known: dict[int, Fraction] = {}  # by the form itself: equal layers share one
    wrong = {}
    for key in exact.keys() | counts.keys():
        form = counts.get(key, _NOTHING)
        if id(form) not in known:
            known[id(form)] = value_of(form, sample.point)
        if known[id(form)] != exact.get(key, 0):
            wrong[key] = known[id(form)], exact.get(key, 0)
    return wrong


_NOTHING: Form = {}


def _whole_numbers(sample: Sample, convention: Convention, merged: bool) -> Iterable[tuple[Any, str, int]]:
    """(place, quantity, value) of a table whose sizes are whole numbers."""
    known: dict[Any, tuple[tuple[str, Any], ...]] = {}
    for operation in sample.operations:
        place = place_of(operation, merged)
        key = _likeness((operation,))
        if key not in known:
            known[key] = _costs(operation, convention)
        yield from ((place, quantity, value) for quantity, value in known[key])
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
        yield place_of(operations[storage.born_index], merged), "made_bytes"


def place_of(operation: Operation, merged: bool = False) -> Place:
    """Where an operation counts. merged: of modules, numbers are *."""
    module = _without_numbers(operation.module) if merged else operation.module
    return Place(operation.phase, operation.kind, module, operation.name)


@lru_cache(maxsize=1 << 16)
def _without_numbers(module: str) -> str:
    return re.sub(r"\d+", "*", module)


def _likeness(rows: Sequence[Operation]) -> tuple[Any, ...]:
    """Equal for operations of one table, or of tables side by side, that differ in nothing that costs: only in where
    they are. Attributes are told by the object, as the tracer keeps one for all calls of a signature."""
    first = rows[0]
    sizes = tuple([(row.input_shapes, row.output_shapes, id(row.attributes)) for row in rows])
    return (first.name, first.kind, first.phase, first.input_names, first.input_dtypes, first.output_dtypes, sizes,
            _pattern(first))  # fmt: skip


class _Symbolic:
    """A table whose sizes are elements of a ring of polynomials over the atoms that occur in them."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        forms = [sizes.form(values) for values in sizes.columns]
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
        samples = self._sizes.samples
        known: dict[Any, tuple[tuple[str, Any], ...]] = {}
        for rows in zip(*(sample.operations for sample in samples), strict=True):
            key = _likeness(rows)
            if key not in known:
                known[key] = _costs(self._operation(rows), convention)
            place = place_of(rows[0], merged)
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
