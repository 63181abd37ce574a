"""The footprint of a table whose sizes are forms: what is alive while each operation runs, and where that can be most.

At one order of operations live bytes are a sum of storages at every moment, and so a form; the peak is the largest of
these. `eager_peaks` has the eager order, `ordered_peaks` one that `analysis/footprint/minimum.py` found at
given sizes. Each gives a few operations with what is alive there, of which one is the peak at any sizes from given ones
on.

No terms are given where the samples of the table differ in kind: where a storage lives from other to other operations,
or where what has to come before what depends on sizes.

`largest` has the largest of many forms, as few of them as suffice: those that are the largest for some sizes.
A form is dropped where another is at least as large for all sizes from given ones on: their difference, written in
variables that are never below 0 (how far a size is above its least value, how far a rounding is above what a coarser
one makes it), has no coefficient below 0. It is dropped, too, where a mean of two others is at least as large: so are
those of all layers between the first and the last, which give up an activation and gain a gradient from one to the
next. The largest of what is left is exactly the largest of all, from these sizes on; that each of them is the largest
somewhere is not claimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import lcm
from typing import Any

import numpy

from analysis.footprint.live_bytes import BEFORE, footprint, reuse_gradients
from analysis.footprint.minimum import Graph, Minimal, graph, minimal
from analysis.formula.interpolate import Atom, Form, Monomial, Point, point_text, value_of
from analysis.formula.sampling import Sizes, SizeSample


class Unalike(ValueError):
    """The footprint has no formula; one line says why."""


Peak = tuple[int, Form]
"""The index of an operation that can be the peak, -1: before the first one; and what is alive while it runs."""


class FootprintTable:
    """A table's storages as forms. least: sizes from which on peaks are to hold."""

    def __init__(self, sizes: Sizes, least: Point) -> None:
        self.samples, self.least = sizes.samples, least
        self.operations = self.samples[0].operations
        columns = zip(*(sample.storages for sample in self.samples), strict=True)
        self.forms = [sizes.form(tuple(each.nbytes or 0 for each in column)) for column in columns]
        self.basis = Basis(self.forms)
        self._rows = numpy.array([self.basis.row(form) for form in self.forms], dtype=numpy.int64).reshape(
            len(self.forms), len(self.basis.monomials)
        )

    def eager_peaks(self) -> list[Peak]:
        """The peaks of the eager order. Raises Unalike where storages live otherwise at some sample."""
        lives = [_lives(sample) for sample in self.samples]
        if other := next((s for s, own in zip(self.samples, lives, strict=True) if own != lives[0]), None):
            raise Unalike(f"storages live otherwise at {point_text(other.point)}")
        moments = len(self.operations) + 1
        spans = [(born + 1, moments if died is None else died + 2) for born, died in lives[0]]
        rows = _alive(self._rows, spans, moments)
        return [(place + BEFORE, form) for place, form in self._most(rows)]

    def ordered_peaks(self, point: Point) -> tuple[list[Peak], Minimal]:
        """The peaks of the order that is found at a point, and what was found there. Raises Unalike."""
        sized = [int(value_of(form, point)) for form in self.forms]
        storages = tuple(
            replace(each, nbytes=nbytes) for each, nbytes in zip(self.samples[0].storages, sized, strict=True)
        )
        order_found = minimal(self.operations, storages)
        shape = self._graph
        if _shape(graph(self.operations, storages)) != _shape(shape):
            raise Unalike(f"other gradients are summed in place at {point_text(point)}")
        node_of = {index: node for node, index in enumerate(shape.operations)}
        order = [node_of[index] for index in order_found.order if index in node_of]
        turn = {node: place for place, node in enumerate(order)}
        blocks = numpy.array([self._rows[block.storages[0]] for block in shape.blocks]).reshape(len(shape.blocks), -1)
        spans = []
        for block in shape.blocks:
            begins = 0 if block.maker == BEFORE else turn[block.maker]
            ends = max((turn[node] for node in block.users), default=BEFORE)
            spans.append((begins, len(order) if block.stays else ends + 1))
        rows = _alive(blocks, spans, len(order))
        return [(shape.operations[order[place]], form) for place, form in self._most(rows)], order_found

    @cached_property
    def _graph(self) -> Graph:
        """The graph of all samples. Raises Unalike where they have several."""
        graphs = [graph(sample.operations, sample.storages) for sample in self.samples]
        for sample, other in zip(self.samples, graphs, strict=True):
            if _shape(other) != _shape(graphs[0]):
                raise Unalike(f"what has to come before what is another at {point_text(sample.point)}")
        return graphs[0]

    def _most(self, rows: Matrix) -> list[tuple[int, Form]]:
        """The rows of which one is the largest, by place."""
        _, firsts = numpy.unique(rows, axis=0, return_index=True)
        firsts.sort()
        chosen = [int(firsts[place]) for place in largest(self.basis, rows[firsts], self.least)]
        return [(place, self.basis.form(rows[place])) for place in chosen]


def peak_of(sample: SizeSample) -> int:
    """The eager peak of a sample."""
    return footprint(sample.operations, sample.storages).at_least_bytes


def _lives(sample: SizeSample) -> list[tuple[int, int | None]]:
    return [
        (each.born_index, each.died_index)
        for each in reuse_gradients(
            sample.operations,
            [each if each.nbytes is not None else replace(each, nbytes=0) for each in sample.storages],
        )
    ]


def _alive(rows: Matrix, spans: Sequence[tuple[int, int]], moments: int) -> Matrix:
    """What is alive at each moment. spans: of each row, the first moment and the one after the last."""
    change = numpy.zeros((moments + 1, rows.shape[1]), dtype=numpy.int64)
    for row, (begins, ends) in zip(rows, spans, strict=True):
        if begins < ends:
            change[begins] += row
            change[ends] -= row
    return change[:-1].cumsum(axis=0)


def _shape(graph: Graph) -> tuple[object, ...]:
    """What two graphs share whose sizes alone differ."""
    return graph.before, [(b.maker, b.users, b.stays, b.storages) for b in graph.blocks]


Matrix = Any
"""A numpy array of whole numbers: a form a row, a monomial a column."""

LARGEST = 2**62

PAIRED = 120
"""Rows that are compared with means of two others, at most: it takes the cube of their number."""

ROUGH = 1e-6
"""By how much floats may be off where a pair is only looked for."""

DENOMINATOR = 1000
"""Largest denominator of the share of a mean of two values."""

Polynomial = dict[tuple[int, ...], int]
"""Numbers of variables, each as often as it is multiplied → coefficient."""


class Basis:
    """The monomials of some forms, and rows of whole numbers in their place; all rows are of one denominator."""

    def __init__(self, forms: Iterable[Form]) -> None:
        known = list(forms)
        self.monomials: list[Monomial] = sorted({monomial for form in known for monomial in form})
        self._column = {monomial: place for place, monomial in enumerate(self.monomials)}
        self.denominator = lcm(1, *(c.denominator for form in known for c in form.values()))

    def row(self, form: Form) -> list[int]:
        """A form's coefficients times the denominator."""
        coefficients = [0] * len(self.monomials)
        for monomial, coefficient in form.items():
            coefficients[self._column[monomial]] = int(coefficient * self.denominator)
        return coefficients

    def form(self, row: Sequence[int]) -> Form:
        """The form of a row."""
        pairs = zip(self.monomials, row, strict=True)
        return {monomial: Fraction(int(number), self.denominator) for monomial, number in pairs if number}

    def shifted(self, rows: Matrix, least: Point) -> Matrix:
        """The rows in variables that are 0 or more for all sizes from the least on."""
        atoms = above(sorted({atom for monomial in self.monomials for atom, _ in monomial}), least)
        parts = [_product(atoms[atom] for atom, power in monomial for _ in range(power)) for monomial in self.monomials]
        columns = {key: place for place, key in enumerate(sorted({key for part in parts for key in part}))}
        turned = numpy.zeros((len(parts), max(1, len(columns))), dtype=object)
        for place, part in enumerate(parts):
            for key, number in part.items():
                turned[place, columns[key]] = number
        most = _most(rows) * _most(turned) * max(1, len(parts))
        kind = numpy.int64 if most < LARGEST else object
        return rows.astype(kind) @ turned.astype(kind)


def above(atoms: Sequence[Atom], least: Point) -> dict[Atom, Polynomial]:
    """Each atom in variables that are 0 or more: of one symbol the coarsest rounding is its least value and a variable,
    each finer one the next coarser, as often as it is finer, with the least that is between them and a variable."""
    polynomials: dict[Atom, Polynomial] = {}
    coarser: Atom | None = None
    for number, atom in sorted(enumerate(atoms), key=lambda pair: (pair[1].symbol, -pair[1].by, pair[1].add)):
        start = least[atom.symbol]
        if coarser is None or coarser.symbol != atom.symbol:
            polynomials[atom] = {(): atom(start), (number,): 1}
        else:
            ratio = max(1, coarser.by // atom.by)
            span = range(start, start + lcm(coarser.by, atom.by))  # from then on it repeats, or is more
            apart = min(atom(size) - ratio * coarser(size) for size in span)
            polynomials[atom] = {key: ratio * number for key, number in polynomials[coarser].items()}
            polynomials[atom][()] = polynomials[atom].get((), 0) + apart
            polynomials[atom][number,] = 1
        coarser = atom
    return polynomials


def _product(factors: Iterable[Polynomial]) -> Polynomial:
    product_so_far: Polynomial = {(): 1}
    for factor in factors:
        whole: Polynomial = {}
        for (one, a), (two, b) in product(product_so_far.items(), factor.items()):
            key = tuple(sorted((*one, *two)))
            whole[key] = whole.get(key, 0) + a * b
        product_so_far = whole
    return product_so_far


def largest(basis: Basis, rows: Matrix, least: Point) -> list[int]:
    """Places of rows of which one is the largest of all, for any sizes from `least` on. Of equal rows the first."""
    moved = basis.shifted(rows, least)
    totals = [int(total) for total in moved.sum(axis=1)]
    chosen: list[int] = []
    front = moved[:0]
    for place in sorted(range(len(rows)), key=lambda place: (-totals[place], place)):
        if not len(chosen) or not bool((front >= moved[place]).all(axis=1).any()):
            chosen.append(place)
            front = moved[chosen]
    chosen.sort()
    if len(chosen) <= PAIRED:
        for place in tuple(chosen):
            others = [other for other in chosen if other != place]
            if _between(moved[place], moved[others]):
                chosen = others
    return chosen


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


def _most(rows: Matrix) -> int:
    return max(abs(int(rows.max())), abs(int(rows.min()))) if rows.size else 0
