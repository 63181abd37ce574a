"""An operation table whose sizes are forms: what the counting rules make of it, and whether whole numbers agree.

Sizes are elements of a ring of polynomials over the atoms that occur (`analysis/formula/interpolate.py`),
which the readers of `analysis/operators/registry.py` add and multiply as they do numbers. `counts_of` gives every count
of a table so, by place, after it was found equal to the count of whole numbers at the samples that no form was fitted
to.

Operations of tables side by side that differ in nothing that costs are counted once, and multiplied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

from sympy import QQ
from sympy.polys.rings import ring

from analysis.formula.interpolate import Form, Point, number_of, point_text
from analysis.formula.sampling import Sizes, SizeSample, Unfitted, merge_values, place_of
from analysis.operators import registry
from analysis.operators.attention_conventions import BY_RULE, kept_pairs, may_have_mask
from analysis.operators.cost import numel
from results.records.counts import Operation, Storage

FOOTPRINT = "footprint_bytes"


Key = tuple[Any, str]
"""(place, quantity); what is of the whole step has a word in place of a place."""

Counts = dict[Key, Form]

LESS, UNKNOWN = "_less", "_unknown"
"""Ends of quantities of attention: FLOP that a convention counts less, and calls of which that is not known."""

OPEN = "other_flop"
"""The quantity that may have no formula where everything else has: unequal windows are summed one by one (an adaptive
pool whose side is no multiple)."""


@dataclass(frozen=True)
class Convention:
    """What is counted how. made: what an operation adds to the total footprint beside the storages of `kept`; None: the
    footprint is that of all storages, whatever their role."""

    rules: registry.Rules = field(default_factory=lambda: registry.TABLE)
    made: Callable[[Operation], Any] | None = None
    kept: Sequence[str] = ()


OWN = Convention()


def counts_of(sizes: Sizes, convention: Convention, merged: bool) -> tuple[Counts, tuple[Point, ...], set[Key]]:
    """The counts of a table with sizes as forms, where they were checked, and those of `OPEN` that are left out as they
    differ from the count of whole numbers. Raises Unfitted where another one does."""
    table, rows = _Symbolic(sizes), operation_classes(sizes.samples, partial(place_of, merged=merged))
    sums: dict[tuple[Any, str], list[tuple[Any, int]]] = defaultdict(list)
    for place, quantity, element, count in table.elements(rows, convention, merged):
        sums[place, quantity].append((element, count))
    counts = {key: form for key, elements in sums.items() if (form := table.form(elements))}
    late = range(sizes.fitted, len(sizes.samples)) or range(len(sizes.samples))[-1:]
    differences = [(sizes.samples[i], _wrong(counts, sizes.samples[i], convention, merged, rows, i)) for i in late]
    without = {key for _, wrong in differences for key in wrong if key[1] == OPEN}
    for sample, wrong in differences:
        _refuse(wrong, sample, without)
    known = {key: form for key, form in counts.items() if key not in without}
    return known, tuple(sample.point for sample, _ in differences), without


def check(
    counts: Counts, sample: SizeSample, convention: Convention, merged: bool, without: Collection[Key] = frozenset()
) -> None:
    """Raises Unfitted where a form's value is not the count of the table of whole numbers. without: counts that have
    no form."""
    rows = operation_classes((sample,), partial(place_of, merged=merged))
    _refuse(_wrong(counts, sample, convention, merged, rows, 0), sample, without)


def _refuse(wrong: Mapping[Key, tuple[int | Fraction, int]], sample: SizeSample, without: Collection[Key]) -> None:
    for key, (value, exact) in wrong.items():
        if key not in without:
            raise Unfitted(
                f"{key[1]} of {key[0]} at {point_text(sample.point)}: the formula gives {value}, the count {exact}"
            )


def _wrong(
    counts: Counts, sample: SizeSample, convention: Convention, merged: bool, rows: Sequence[OperationClass], which: int
) -> dict[Key, tuple[int | Fraction, int]]:
    """The form's value and the count of whole numbers, where these differ. which: the sample's place among the tables
    that are side by side."""
    exact: dict[Key, int] = defaultdict(int)
    storages, shapes = ((each, each.nbytes) for each in sample.storages), (shape for _, shape in sample.parameters)
    entries = _entries(rows, lambda each: each.rows[which], storages, shapes, sample.operations, convention, merged)
    for place, quantity, value, calls in entries:
        exact[place, quantity] += value * calls
    wrong = {}
    for key in exact.keys() | counts.keys():
        if key[1].endswith((LESS, UNKNOWN)) and (key[0], key[1].replace(LESS, UNKNOWN)) in counts:
            continue  # whole numbers are known where symbols may not be
        value = number_of(counts.get(key, {}), sample.point)
        if value != exact.get(key, 0):
            wrong[key] = value, exact.get(key, 0)
    return wrong


def _entries(
    rows: Sequence[OperationClass],
    operation_of: Callable[[OperationClass], Operation],
    storages: Iterable[tuple[Storage, Any]],
    shapes: Iterable[tuple[Any, ...]],
    operations: Sequence[Operation],
    convention: Convention,
    merged: bool,
) -> Iterable[tuple[Any, str, Any, int]]:
    """(place, quantity, value, how often) of operations, of storages with their bytes, and of shapes of parameters."""
    known: dict[Any, tuple[tuple[str, Any], ...]] = {}
    for each in rows:
        if each.likeness not in known:
            known[each.likeness] = _costs(operation_of(each), convention)
        yield from ((each.place, quantity, value, each.calls) for quantity, value in known[each.likeness])
    for storage, nbytes in storages:
        places = _of_storage(storage, operations, convention, merged)
        yield from ((place, quantity, nbytes, 1) for place, quantity in places)
    for shape in shapes:
        yield "model", "parameters", numel(shape), 1


def _costs(operation: Operation, convention: Convention) -> tuple[tuple[str, Any], ...]:
    cost = registry.cost(operation, convention.rules)
    footprint = () if convention.made is None else ((FOOTPRINT, convention.made(operation)),)
    return (
        *footprint,
        ("model_flop", cost.model_flop),
        ("other_flop", cost.other_flop),
        ("read_bytes", cost.read_bytes),
        ("written_bytes", cost.written_bytes),
        ("calls", 1),
        *_of_attention(operation, cost.model_flop, convention),
    )


def _of_attention(operation: Operation, flop: Any, convention: Convention) -> Iterable[tuple[str, Any]]:
    """What conventions of attention count less; as a call, where one is not known."""
    pairs = kept_pairs(operation) if may_have_mask(operation) and operation.phase != "recompute" else None
    if pairs is None:
        return
    for name in BY_RULE:
        less = pairs.less(name, flop) if convention.rules is registry.TABLE else None
        yield (f"{name}{UNKNOWN}", 1) if less is None else (f"{name}{LESS}", less)


def _of_storage(
    storage: Any, operations: Sequence[Operation], convention: Convention, merged: bool
) -> Iterable[tuple[Any, str]]:
    """Where a storage's bytes count: by its role, and at the operation that makes it."""
    yield storage.role, "role_bytes"
    if convention.made is None or storage.role in convention.kept:
        yield storage.role, FOOTPRINT
    if storage.born_index >= 0:
        yield place_of(operations[storage.born_index], merged), "made_bytes"


class _Symbolic:
    """A table whose sizes are elements of a ring of polynomials over the atoms that occur in them."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        forms = [sizes.form(values) for values in sizes.columns]
        self._atoms = sorted({atom for form in forms for monomial in form for atom, _ in monomial})
        self._ring, *self._generators = ring([f"a{i}" for i in range(len(self._atoms))] or ["a"], QQ)
        self._of = dict(zip(self._atoms, self._generators, strict=False))
        self._kind = type(self._ring.one)
        self._elements: dict[Any, Any] = {}

    def form(self, elements: Sequence[tuple[Any, int]]) -> Form:
        """The sum of elements of the ring, or numbers, each as often as it says, as a form."""
        total: dict[tuple[int, ...], int | Fraction] = {}
        for element, count in elements:
            for powers, coefficient in self._terms_of(element):
                total[powers] = total.get(powers, 0) + coefficient * count
        return {
            tuple([(self._atoms[i], power) for i, power in enumerate(powers) if power]): Fraction(number)
            for powers, number in total.items()
            if number
        }

    def _terms_of(self, element: Any) -> Sequence[tuple[tuple[int, ...], int | Fraction]]:
        """(powers of the atoms, coefficient) of each term."""
        if not isinstance(element, self._kind):
            return (((), element),)
        return [(powers if any(powers) else (), _number(c)) for powers, c in element.items()]

    def elements(
        self, rows: Sequence[OperationClass], convention: Convention, merged: bool
    ) -> Iterable[tuple[Any, str, Any, int]]:
        """(place, quantity, element, how often) of all operations, storages and parameters."""
        samples = self._sizes.samples

        def operation_of(each: OperationClass) -> Operation:
            inputs = zip(*(row.input_shapes for row in each.rows), strict=True)
            outputs = zip(*(row.output_shapes for row in each.rows), strict=True)
            return replace(
                each.rows[0],
                input_shapes=tuple(map(self._shape, inputs)),
                output_shapes=tuple(map(self._shape, outputs)),
                attributes=merge_values([row.attributes for row in each.rows], self._element),
            )

        columns = zip(*(sample.storages for sample in samples), strict=True)
        storages = ((column[0], self._element(tuple([each.nbytes for each in column]))) for column in columns)
        parameters = zip(*(sample.parameters for sample in samples), strict=True)
        shapes = (self._shape(tuple(shape for _, shape in column)) for column in parameters)
        return _entries(rows, operation_of, storages, shapes, samples[0].operations, convention, merged)

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


def _number(coefficient: Any) -> int | Fraction:
    """A coefficient of the ring; an int where it has no denominator."""
    above, below = int(coefficient.numerator), int(coefficient.denominator)
    return above if below == 1 else Fraction(above, below)


class OperationClass(NamedTuple):
    """Operations at one place that differ in nothing that costs. likeness: equal at all places for such as these; rows:
    the first of them, in each of the tables; calls: how many."""

    place: Any
    likeness: tuple[Any, ...]
    rows: tuple[Operation, ...]
    calls: int


def operation_classes(samples: Sequence[SizeSample], place_of: Callable[[Operation], Any]) -> list[OperationClass]:
    """All operations of tables that are side by side, in order of the first of each. place_of: where one counts."""
    counts: dict[tuple[Any, ...], int] = {}
    rows_of: dict[tuple[Any, ...], tuple[Operation, ...]] = {}
    for rows in zip(*(sample.operations for sample in samples), strict=True):
        key = place_of(rows[0]), _cost_key(rows)
        counts[key] = counts.get(key, 0) + 1
        rows_of.setdefault(key, rows)
    return [
        OperationClass(place, likeness, rows_of[place, likeness], calls) for (place, likeness), calls in counts.items()
    ]


def _cost_key(rows: Sequence[Operation]) -> tuple[Any, ...]:
    """Equal for operations of one table, or of tables side by side, that differ in nothing that costs: only in where
    they are. Sizes and attributes are known by the object, as the tracer keeps one for all calls of a signature."""
    first = rows[0]
    sizes = [id(part) for row in rows for part in (row.input_shapes, row.output_shapes, row.attributes)]
    storages = (*first.reads, *first.writes)
    return (first.name, first.kind, first.phase, first.input_names, first.input_dtypes, first.output_dtypes,
            *sizes, *map(storages.index, storages))  # fmt: skip
