"""Counts the FLOP, bytes and parameters of a step whose sizes are symbols, and verifies the counts on traced samples.

`counts_of` takes `Sizes` (samples of the step) and a `Convention` (the counting rules), and returns each count as a
polynomial (`Form`), by `Key`. A size is an element of a polynomial ring. Its variables are the symbols and rounded
quotients (`Atom` of `analysis/formula/interpolate.py`). The rules of `analysis/operators/registry.py` therefore
calculate on a size as on a number. At samples that no form was fitted to, each count must equal the traced count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from sympy import QQ
from sympy.polys.rings import ring

from analysis.formula.interpolate import Form, Point, point_text, value_of
from analysis.formula.sampling import Sizes, SizeSample, Unfitted, columns, count_key, merge_values
from analysis.operators import registry
from analysis.operators.attention_conventions import BY_RULE, kept_pairs, may_have_mask
from analysis.operators.cost import numel
from results.records.counts import Operation

FOOTPRINT = "footprint_bytes"

Key = tuple[Any, str]
"""(`CountKey`, quantity). For storages and parameters, the first is a role, or "model"."""

Counts = dict[Key, Form]

LESS, UNKNOWN = "_less", "_unknown"
"""Suffixes of attention's quantities: FLOP that a convention leaves out, and calls for which that number is unknown."""

OPEN = "other_flop"
"""The quantity that may lack a formula where all others have one. Unequal windows are summed one by one, as in an
adaptive pool whose side is not a multiple of its output's."""


@dataclass(frozen=True)
class Convention:
    """Rules of counting. added_bytes: returns the bytes that an operation adds to the total footprint, which otherwise
    has the storages of `roles` only; None: the total footprint is that of all storages."""

    rules: registry.Rules = field(default_factory=lambda: registry.TABLE)
    added_bytes: Callable[[Operation], Any] | None = None
    roles: Sequence[str] = ()


OWN = Convention()


def counts_of(sizes: Sizes, convention: Convention, merged: bool) -> tuple[Counts, tuple[Point, ...], set[Key]]:
    """Return the counts of a table with symbolic sizes, the points where they were verified, and keys of `OPEN` that
    are left out because they differ from the samples. Raises Unfitted where another count differs."""
    samples, space = sizes.samples, _Space(sizes)
    storages = zip(*([storage.nbytes for storage in sample.storages] for sample in samples), strict=True)
    parameters = zip(*([shape for _, shape in sample.parameters] for sample in samples), strict=True)
    sums = _sums(
        samples, merged, convention, space.operation, map(space.element, storages), map(space.shape, parameters)
    )
    counts = {key: form for key, element in sums.items() if (form := space.form(element))}
    held_out = samples[sizes.fitted :] or samples[-1:]
    differences = [(sample, _wrong(counts, sample, convention, merged)) for sample in held_out]
    without = {key for _, wrong in differences for key in wrong if key[1] == OPEN}
    for sample, wrong in differences:
        _refuse(wrong, sample, without)
    known = {key: form for key, form in counts.items() if key not in without}
    return known, tuple(sample.point for sample in held_out), without


def check(
    counts: Counts, sample: SizeSample, convention: Convention, merged: bool, without: Collection[Key] = frozenset()
) -> None:
    """Raise Unfitted where a form differs from the count of the sample. without: counts that have no form."""
    _refuse(_wrong(counts, sample, convention, merged), sample, without)


def _refuse(wrong: Mapping[Key, tuple[int | Fraction, int]], sample: SizeSample, without: Collection[Key]) -> None:
    for key, (value, exact) in wrong.items():
        if key not in without:
            raise Unfitted(
                f"{key[1]} of {key[0]} at {point_text(sample.point)}: the formula gives {value}, the count {exact}"
            )


def _wrong(
    counts: Counts, sample: SizeSample, convention: Convention, merged: bool
) -> dict[Key, tuple[int | Fraction, int]]:
    """Return (the form's value, the sample's count) where these differ."""
    nbytes, shapes = (storage.nbytes for storage in sample.storages), (shape for _, shape in sample.parameters)
    exact = _sums((sample,), merged, convention, lambda rows: rows[0], nbytes, shapes)
    wrong = {}
    for key in exact.keys() | counts.keys():
        if key[1].endswith((LESS, UNKNOWN)) and (key[0], key[1].replace(LESS, UNKNOWN)) in counts:
            continue  # a count may be known for numeric sizes and unknown for symbolic ones
        value = value_of(counts.get(key, {}), sample.point)
        if value != exact.get(key, 0):
            wrong[key] = value, exact.get(key, 0)
    return wrong


def _sums(
    samples: Sequence[SizeSample],
    merged: bool,
    convention: Convention,
    operation_of: Callable[[Sequence[Operation]], Operation],
    nbytes: Iterable[Any],
    shapes: Iterable[tuple[Any, ...]],
) -> dict[Key, Any]:
    """Return every count of a step. nbytes: of each storage; shapes: of each parameter. operation_of: merges the
    operations at one index of the tables. Costs are computed once for operations with equal costs."""
    operations, storages = samples[0].operations, samples[0].storages
    calls: Counter[tuple[Any, tuple[Any, ...]]] = Counter()
    costs: dict[tuple[Any, ...], list[tuple[str, Any]]] = {}
    for rows in zip(*(sample.operations for sample in samples), strict=True):
        likeness = _cost_key(rows)
        calls[count_key(rows[0], merged), likeness] += 1
        if likeness not in costs:
            costs[likeness] = list(_costs(operation_of(rows), convention))
    sums: dict[Key, Any] = defaultdict(int)
    for (key, likeness), count in calls.items():
        for quantity, value in costs[likeness]:
            sums[key, quantity] += value * count
    for storage, size in zip(storages, nbytes, strict=True):
        sums[storage.role, "role_bytes"] += size
        if convention.added_bytes is None or storage.role in convention.roles:
            sums[storage.role, FOOTPRINT] += size
        if storage.born_index >= 0:
            sums[count_key(operations[storage.born_index], merged), "made_bytes"] += size
    sums["model", "parameters"] = sum(map(numel, shapes))
    return sums


def _costs(operation: Operation, convention: Convention) -> Iterable[tuple[str, Any]]:
    """Yield the costs of an operation; for attention also the FLOP that each convention leaves out, or 1 call for which
    that is unknown."""
    if convention.added_bytes is not None:
        yield FOOTPRINT, convention.added_bytes(operation)
    cost = registry.cost(operation, convention.rules)
    for name in ("model_flop", "other_flop", "read_bytes", "written_bytes"):
        yield name, getattr(cost, name)
    yield "calls", 1
    pairs = kept_pairs(operation) if may_have_mask(operation) and operation.phase != "recompute" else None
    for name in () if pairs is None else BY_RULE:
        less = pairs.less(name, cost.model_flop) if pairs and convention.rules is registry.TABLE else None
        yield (f"{name}{UNKNOWN}", 1) if less is None else (f"{name}{LESS}", less)


def _cost_key(rows: Sequence[Operation]) -> tuple[Any, ...]:
    """Return a key that is equal for operations with equal costs. Sizes and attributes are compared by identity, as the
    tracer keeps one object for all calls of a signature."""
    first = rows[0]
    sizes = [id(part) for row in rows for part in (row.input_shapes, row.output_shapes, row.attributes)]
    storages = (*first.reads, *first.writes)
    return (first.name, first.kind, first.phase, first.input_names, first.input_dtypes, first.output_dtypes,
            *sizes, *map(storages.index, storages))  # fmt: skip


class _Space:
    """The ring of polynomials over the atoms in a table's sizes. A size is passed as its values, one per sample."""

    def __init__(self, sizes: Sizes) -> None:
        self._form_of = {values: sizes.form(values) for values in columns(sizes.samples)}
        self._atoms = sorted({atom for form in self._form_of.values() for monomial in form for atom, _ in monomial})
        self._ring = ring([f"a{i}" for i in range(len(self._atoms) or 1)], QQ)[0]
        self._elements: dict[Any, Any] = {}

    def form(self, element: Any) -> Form:
        """Return an element of the ring, or a number, as a form."""
        terms = (self._ring.zero + element).items()
        return {
            tuple([(self._atoms[i], power) for i, power in enumerate(powers) if power]): Fraction(
                int(number.numerator), int(number.denominator)
            )
            for powers, number in terms
        }

    def operation(self, rows: Sequence[Operation]) -> Operation:
        """Merge the operations of several tables into one with symbolic sizes."""
        return replace(
            rows[0],
            input_shapes=tuple(map(self.shape, zip(*(row.input_shapes for row in rows), strict=True))),
            output_shapes=tuple(map(self.shape, zip(*(row.output_shapes for row in rows), strict=True))),
            attributes=merge_values([row.attributes for row in rows], self.element),
        )

    def shape(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[Any, ...]:
        """Return the symbolic shape of a tensor."""
        if shapes not in self._elements:
            self._elements[shapes] = tuple(map(self.element, zip(*shapes, strict=True)))
        return self._elements[shapes]  # type: ignore[no-any-return]

    def element(self, values: tuple[Any, ...]) -> Any:
        """Return a symbolic size; a number where all samples agree."""
        if len(set(values)) == 1:
            return values[0]
        if values not in self._elements:
            terms = {}
            for monomial, coefficient in self._form_of[values].items():
                powers = dict(monomial)
                number = QQ(coefficient.numerator, coefficient.denominator)
                terms[tuple(powers.get(atom, 0) for atom in self._atoms)] = number
            self._elements[values] = self._ring.from_dict(terms)
        return self._elements[values]
