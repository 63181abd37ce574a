"""The largest of many forms, as few of them as suffice: those that are the largest for some sizes.

A form is dropped where another is at least as large for all sizes from given ones on: their difference, written in
variables that are never below 0 (how far a size is above its least value, how far a rounding is above what a coarser
one makes it), has no coefficient below 0. It is dropped, too, where a mean of two others is at least as large: so are
those of all layers between the first and the last, which give up an activation and gain a gradient from one to the
next. The largest of what is left is exactly the largest of all, from these sizes on; that each of them is the largest
somewhere is not claimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import product
from math import lcm
from typing import Any

import numpy

from analysis.formula.derivation.interpolate import Atom, Form, Monomial, Point

Matrix = Any
"""A numpy array of whole numbers: a form a row, a monomial a column."""

LARGEST = 2**62

PAIRED = 120
"""Rows that are held against means of two others, at most: it takes the cube of their number."""

ROUGH = 1e-6
"""By how much floats may be off where a pair is only looked for."""

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
        found = [0] * len(self.monomials)
        for monomial, coefficient in form.items():
            found[self._column[monomial]] = int(coefficient * self.denominator)
        return found

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
    found: dict[Atom, Polynomial] = {}
    coarser: Atom | None = None
    for number, atom in sorted(enumerate(atoms), key=lambda pair: (pair[1].symbol, -pair[1].by, pair[1].add)):
        start = least[atom.symbol]
        if coarser is None or coarser.symbol != atom.symbol:
            found[atom] = {(): atom(start), (number,): 1}
        else:
            ratio = max(1, coarser.by // atom.by)
            span = range(start, start + lcm(coarser.by, atom.by))  # from then on it repeats, or is more
            apart = min(atom(size) - ratio * coarser(size) for size in span)
            found[atom] = {key: ratio * number for key, number in found[coarser].items()}
            found[atom][()] = found[atom].get((), 0) + apart
            found[atom][number,] = 1
        coarser = atom
    return found


def _product(factors: Iterable[Polynomial]) -> Polynomial:
    found: Polynomial = {(): 1}
    for factor in factors:
        whole: Polynomial = {}
        for (one, a), (two, b) in product(found.items(), factor.items()):
            key = tuple(sorted((*one, *two)))
            whole[key] = whole.get(key, 0) + a * b
        found = whole
    return found


def largest(basis: Basis, rows: Matrix, least: Point) -> list[int]:
    """Places of rows of which one is the largest of all, for any sizes from `least` on. Of equal rows the first."""
    moved = basis.shifted(rows, least)
    totals = [int(total) for total in moved.sum(axis=1)]
    kept: list[int] = []
    front = moved[:0]
    for place in sorted(range(len(rows)), key=lambda place: (-totals[place], place)):
        if not len(kept) or not bool((front >= moved[place]).all(axis=1).any()):
            kept.append(place)
            front = moved[kept]
    kept.sort()
    if len(kept) <= PAIRED:
        for place in tuple(kept):
            others = [other for other in kept if other != place]
            if _between(moved[place], moved[others]):
                kept = others
    return kept


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
            if _mean_above(row, first, rest[other]):
                return True
    return False


def _mean_above(row: Matrix, first: Matrix, second: Matrix) -> bool:
    """Whether some share of the first and the rest of the second are at least the row; exactly."""
    low, high = Fraction(0), Fraction(1)
    for number, one, two in zip(row.tolist(), first.tolist(), second.tolist(), strict=True):
        if one > two:
            low = max(low, Fraction(number - two, one - two))
        elif one < two:
            high = min(high, Fraction(number - two, one - two))
        elif number > two:
            return False
    return low <= high


def _most(rows: Matrix) -> int:
    return max(abs(int(rows.max())), abs(int(rows.min()))) if rows.size else 0
