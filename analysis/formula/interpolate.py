"""Fits exact formulas of symbols (batch, width, …) to sizes whose values are known at a few points.

`Fitter` takes the points, each with a value of every symbol. Its `fit` takes a size's value at each point, and returns
a polynomial (`Form`) or None. A size in an operation table is nearly always an integer, a symbol, or a symbol divided
by a stride and rounded. Otherwise it is a product or sum of a few of those. An axis has the points that differ from the
first in one symbol only. Along each axis, `fit` fits a polynomial in an `Atom`, floor((symbol + c) / m). Over all
points, it fits the product of these polynomials, their sum, or any multilinear form. A form passes through every point
exactly, in rational arithmetic. Not claimed: that a form holds elsewhere. Callers verify that, and add points where it
does not.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy
import sympy
from sympy.polys.matrices import DomainMatrix

Point = Mapping[str, int]
Values = tuple[Any, ...]
"""Integers or Fractions, one per point."""

STRIDES = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 30, 32, 40, 48, 56, 60, 64, 96, 112, 128)
"""Divisors that come from strides, patches and windows."""

DEGREE = 2
"""Degree of a size along one axis: the positions of an image are its side squared."""


class Atom(NamedTuple):
    """floor((symbol + add) / by); the symbol itself where by is 1."""

    symbol: str
    by: int = 1
    add: int = 0

    def __call__(self, value: int) -> int:
        return value if self.by == 1 else (value + self.add) // self.by

    def expression(self) -> Any:
        """Return the atom as a sympy expression; (s + m - 1) // m is a ceiling."""
        symbol = sympy.Symbol(self.symbol, integer=True, positive=True)
        if self.by == 1:
            return symbol
        if self.add == self.by - 1:
            return sympy.ceiling(symbol / self.by)
        return sympy.floor((symbol + self.add) / self.by)


Monomial = tuple[tuple[Atom, int], ...]
"""Atoms with their powers, in order."""

Form = dict[Monomial, Fraction]
"""A polynomial in atoms: monomial → coefficient, none of them 0."""

ONE: Monomial = ()


def point_text(point: Point) -> str:
    """Return a point as text: "batch 3, image 64"."""
    return ", ".join(f"{symbol} {value}" for symbol, value in point.items())


def value_of(form: Form, point: Point) -> int | Fraction:
    """Return the value of a form at a point; an int where no coefficient has a denominator, because ints are much
    faster to add."""
    whole: int | Fraction = 0
    for monomial, coefficient in form.items():
        value = coefficient.numerator
        for atom, power in monomial:
            value *= atom(point[atom.symbol]) ** power
        whole += value if coefficient.denominator == 1 else Fraction(value, coefficient.denominator)
    return whole


def times(left: Form, right: Form) -> Form:
    """Return the product of two forms."""
    product_form: Form = {}
    for (left_powers, a), (right_powers, b) in product(left.items(), right.items()):
        powers = dict(left_powers)
        for atom, power in right_powers:
            powers[atom] = powers.get(atom, 0) + power
        key = tuple(sorted(powers.items()))
        product_form[key] = product_form.get(key, Fraction(0)) + a * b
    return _without_zeros(product_form)


def plus(forms: Iterable[Form]) -> Form:
    """Return the sum of forms."""
    total: Form = {}
    for form in forms:
        for monomial, coefficient in form.items():
            total[monomial] = total.get(monomial, Fraction(0)) + coefficient
    return _without_zeros(total)


def _without_zeros(form: Form) -> Form:
    return {monomial: coefficient for monomial, coefficient in form.items() if coefficient}


class Fitter:
    """Finds the form of values at given points. The first point is the base, at which the axes meet."""

    def __init__(self, points: Sequence[Point], degree: int = DEGREE) -> None:
        self.points = list(points)
        self._degree = degree
        self._form_of: dict[Values, Form | None] = {}
        self._along_axis: dict[tuple[str, Values], list[Form]] = {}

    def fit(self, values: Values) -> Form | None:
        """Return the form through all values, one per point; None if none is found."""
        if values not in self._form_of:
            self._form_of[values] = next(self._forms(values), None)
        return self._form_of[values]

    def unfitted_symbols(self, values: Values) -> set[str]:
        """Return the symbols along whose axis no form was found: more points there may help."""
        return {symbol for symbol in self._axes if not self._along(symbol, values)}

    def deciding_value(self, values: Values, among: Mapping[str, Sequence[int]]) -> tuple[str, int] | None:
        """Return (symbol, its value) at which the forms along its axis differ most; None where only one is left.

        among: the values of each symbol that may be sampled.
        """
        for symbol in self._axes:
            forms = self._along(symbol, values)
            if len(forms) > 1:
                chosen = max(among[symbol], key=lambda value: len({value_of(form, {symbol: value}) for form in forms}))
                spread = [value_of(form, {symbol: chosen}) for form in forms]
                if len(set(spread)) > 1:
                    return symbol, chosen
        return None

    @cached_property
    def _axes(self) -> dict[str, list[int]]:
        """Symbol → indices of the points that differ from the base in it only, the base first."""
        base = self.points[0]
        return {
            symbol: [
                position
                for position, point in enumerate(self.points)
                if all(point[other] == base[other] for other in base if other != symbol)
            ]
            for symbol in base
        }

    def _forms(self, values: Values) -> Iterator[Form]:
        """Yield the forms through all points."""
        if len(set(values)) == 1:
            yield {ONE: Fraction(values[0])} if values[0] else {}
            return
        along = {symbol: self._along(symbol, values) for symbol in self._axes}
        if not all(along.values()):
            return
        varying = {symbol: forms[0] for symbol, forms in along.items() if set(forms[0]) - {ONE}}
        for form in self._combined(varying, values):
            if all(value_of(form, point) == value for point, value in zip(self.points, values, strict=True)):
                yield form

    def _combined(self, varying: Mapping[str, Form], values: Values) -> Iterator[Form]:
        """Yield the product of the axes' forms, their sum, and the multilinear form in their monomials."""
        base = Fraction(values[0])
        constant = {ONE: base}
        if base:
            product_form: Form = constant
            for form in varying.values():
                product_form = times(times(product_form, form), {ONE: 1 / base})
            yield product_form
        yield plus((constant, *(plus((form, {ONE: -base})) for form in varying.values())))
        bases = [[ONE, *(monomial for monomial in form if monomial != ONE)] for form in varying.values()]
        monomials = [tuple(sorted(pair for part in parts for pair in part)) for parts in product(*bases)]
        general = self._solved(monomials, values)
        if general is not None:
            yield general

    def _solved(self, monomials: Sequence[Monomial], values: Values) -> Form | None:
        """Return the unique combination of these monomials through all points; None where there is none, or more than
        one."""
        if len(monomials) > len(values):
            return None
        rows = [[value_of({monomial: Fraction(1)}, point) for monomial in monomials] for point in self.points]
        solved = solve(rows, [Fraction(value) for value in values])
        return None if solved is None else _without_zeros(dict(zip(monomials, solved, strict=True)))

    def _along(self, symbol: str, values: Values) -> list[Form]:
        """Return the forms along one axis, the simplest first."""
        positions = self._axes[symbol]
        axis_values = tuple(values[position] for position in positions)
        if (symbol, axis_values) not in self._along_axis:
            arguments = tuple(self.points[position][symbol] for position in positions)
            self._along_axis[symbol, axis_values] = self._axis_forms(symbol, arguments, axis_values)
        return self._along_axis[symbol, axis_values]

    def _axis_forms(self, symbol: str, arguments: tuple[int, ...], values: Values) -> list[Form]:
        """Return the polynomial of least degree in the symbol itself; without one, those in its rounded quotients."""
        if len(set(values)) == 1:
            return [{ONE: Fraction(values[0])}]
        plain = [through(Atom(symbol), arguments, values, degree) for degree in range(1, self._degree + 1)]
        rounded = (_rounded(symbol, arguments, values, degree) for degree in range(1, self._degree + 1))
        return [form for form in plain if form is not None][:1] or next(filter(None, rounded), [])


def interpolated(fitter: Fitter, forms: Sequence[Form]) -> Form | str:
    """Return the form in more symbols that equals forms[i] at the fitter's point i. Without one, return the symbol
    along which none was found ("" if there is one along each axis)."""
    parts = []
    for monomial in dict.fromkeys(monomial for form in forms for monomial in form):
        values = tuple(form.get(monomial, Fraction(0)) for form in forms)
        coefficient = fitter.fit(values)
        if coefficient is None:
            return next(iter(sorted(fitter.unfitted_symbols(values))), "")
        parts.append(times(coefficient, {monomial: Fraction(1)}))
    return plus(parts)


def _rounded(symbol: str, arguments: tuple[int, ...], values: Values, degree: int) -> list[Form]:
    """Return the polynomials in a rounded quotient of the symbol, smallest divisors first; only those without a
    constant, if there are any."""
    order = sorted(range(len(arguments)), key=arguments.__getitem__)
    steps = [values[b] != values[a] for a, b in pairwise(order)]
    quotients = _quotients(tuple(arguments[position] for position in order))
    alike = ((quotients[:, 1:] != quotients[:, :-1]) == steps).all(axis=1)
    forms = [through(Atom(symbol, *_ROUNDINGS[row]), arguments, values, degree) for row in alike.nonzero()[0]]
    fitting = [form for form in forms if form is not None]
    return [form for form in fitting if ONE not in form] or fitting


_ROUNDINGS = [(by, add) for by in STRIDES for add in range(by - 1, -by - 1, -1)]


@lru_cache(maxsize=64)
def _quotients(arguments: tuple[int, ...]) -> Any:
    """Return a row for each rounding: its value at each point."""
    by, add = numpy.array(_ROUNDINGS).T
    return (numpy.array(arguments)[None, :] + add[:, None]) // by[:, None]


def through(atom: Atom, arguments: Sequence[int], values: Sequence[int], degree: int) -> Form | None:
    """Return the polynomial of this degree in the atom through all points; None if there is none, or there are too few
    points."""
    value_of_atom: dict[int, int] = {}
    for argument, value in zip(arguments, values, strict=True):
        if value_of_atom.setdefault(atom(argument), value) != value:
            return None
    if len(value_of_atom) < degree + 2:
        return None
    rows = [[Fraction(x**power) for power in range(degree + 1)] for x in value_of_atom]
    solved = solve(rows, [Fraction(y) for y in value_of_atom.values()])
    if solved is None:
        return None
    return _without_zeros({((atom, power),) if power else ONE: c for power, c in enumerate(solved)})


def solve(rows: Sequence[Sequence[int | Fraction]], right: Sequence[int | Fraction]) -> list[Fraction] | None:
    """Return the unique exact solution of an overdetermined system; None if there is none, or more than one."""
    table = [
        [sympy.QQ(entry.numerator, entry.denominator) for entry in (*row, value)]
        for row, value in zip(rows, right, strict=True)
    ]
    reduced, pivots = DomainMatrix(table, (len(table), len(table[0])), sympy.QQ).rref()
    if pivots != tuple(range(len(rows[0]))):
        return None
    last = [row[-1] for row in reduced.to_list()[: len(pivots)]]
    return [Fraction(int(entry.numerator), int(entry.denominator)) for entry in last]
