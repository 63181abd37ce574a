"""The polynomial through exact values on a grid of whole numbers, and a polynomial for each residue of one symbol.

Values are ints, fractions or formulas in other symbols; each of a formula's terms is interpolated by itself, in
rational arithmetic (Newton's divided differences along each axis). A grid with one node more than the degree on each
axis has exactly one polynomial, so that nothing is fitted: whether the values come from a polynomial of that degree
is for `check` to say, at points that are not on the grid.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import sympy

from analysis.evaluation import Point, checked, partly
from analysis.forms import Monomial, monomials
from analysis.pretty import pretty
from analysis.symbols import Expr, rational, symbol
from results.errors import Inconsistent

Node = tuple[int, ...]
"""A value of each symbol, in the order of the axes."""

Axes = Mapping[str, Sequence[int]]
"""Symbol → its nodes, different whole numbers; one more than the degree in that symbol."""


def axes(degrees: Mapping[str, int], first: int = 1, step: int = 1) -> dict[str, tuple[int, ...]]:
    """Nodes for polynomials of these degrees: first, first + step, … on each axis."""
    for name, degree in degrees.items():
        if degree < 0:
            raise ValueError(f"expected a degree of at least 0 in {name}, got {degree}")
    return {name: tuple(first + step * i for i in range(degree + 1)) for name, degree in degrees.items()}


def nodes(over: Axes) -> list[Node]:
    """Every point of the grid, the last axis moving fastest."""
    return list(itertools.product(*over.values()))


def interpolate(over: Axes, at: Mapping[Node, Expr]) -> Expr:
    """The polynomial through the value at every node of the grid, of a degree below the number of nodes on each axis.

    Raises ValueError for a node without value, a node twice on an axis, and a value that has one of the axes' symbols.
    """
    symbols = [symbol(name) for name in over]
    _check_grid(over, at)
    terms = {node: monomials(at[node]) for node in nodes(over)}
    for name, node in itertools.product(over, terms):
        if sympy.sympify(at[node]).has(symbol(name)):
            raise ValueError(f"expected values without {name}, got {pretty(at[node])} at {_named(over, node)}")
    found = []
    for monomial in dict.fromkeys(monomial for of_node in terms.values() for monomial in of_node):
        grid = {node: of_node.get(monomial, Fraction(0)) for node, of_node in terms.items()}
        rest = _product(monomial)
        for powers, number in _coefficients(list(over.values()), grid).items():
            powered = sympy.Mul(*(main**power for main, power in zip(symbols, powers, strict=True)))
            found.append(rational(number) * powered * rest)
    return sympy.Add(*found)


def check(expression: Expr, point: Point, expected: Expr) -> None:
    """Raises Inconsistent where the expression is not exactly this at a point (which need not have every symbol)."""
    found = partly(expression, checked(point, point))
    if sympy.expand(found - expected) != 0:
        where = ", ".join(f"{name}={number}" for name, number in point.items())
        raise Inconsistent(
            f"expected {pretty(expected)} at {where}, got {pretty(found)} from {pretty(expression)[:80]}"
        )


@dataclass(frozen=True)
class Residues:
    """A quasi-polynomial: one polynomial for each residue of a symbol modulo `modulus`, in the order 0, 1, …

    Each is a polynomial in the symbol itself, true where the symbol leaves that residue.
    """

    name: str
    modulus: int
    polynomials: tuple[Expr, ...]

    def of(self, number: int) -> Expr:
        """The polynomial that is true where the symbol is this number."""
        return self.polynomials[number % self.modulus]

    def expression(self) -> Expr:
        """One formula with roundings for all residues; the polynomial itself where they are all the same.

        ⌊(x - r)/m⌋ - ⌊(x - r - 1)/m⌋ is 1 where x leaves r, else 0.
        """
        if len(set(self.polynomials)) == 1:
            return self.polynomials[0]
        main, m = symbol(self.name), self.modulus
        parts = []
        for residue, polynomial in enumerate(self.polynomials):
            chosen = sympy.floor((main - residue) / m) - sympy.floor((main - residue - 1) / m)
            parts.append(polynomial * chosen)
        return sympy.expand(sympy.Add(*parts))


def by_residue(name: str, modulus: int, at: Mapping[int, Expr]) -> Residues:
    """The polynomial of each residue of one symbol, through all the values given for it.

    at: value of the symbol → value of the formula. A residue's degree is one less than its number of values. Raises
    ValueError for a modulus below 1 and a residue without values.
    """
    if modulus < 1:
        raise ValueError(f"expected a modulus of at least 1, got {modulus}")
    found = []
    for residue in range(modulus):
        mine: dict[Node, Expr] = {(number,): worth for number, worth in at.items() if number % modulus == residue}
        if not mine:
            raise ValueError(f"expected values of {name} for every residue modulo {modulus}, got none for {residue}")
        found.append(interpolate({name: [node[0] for node in mine]}, mine))
    return Residues(name, modulus, tuple(found))


def _coefficients(over: Sequence[Sequence[int]], at: Mapping[Node, Fraction]) -> dict[Node, Fraction]:
    """Powers → coefficient of the polynomial through these numbers; coefficients of 0 are left out.

    Along each axis in turn the values on a line of nodes are replaced by the coefficients of their polynomial.
    """
    grid = dict(at)
    for axis, places in enumerate(over):
        lines = {node[:axis] + node[axis + 1 :] for node in grid}
        replaced: dict[Node, Fraction] = {}
        for line in lines:
            along = [grid[(*line[:axis], place, *line[axis:])] for place in places]
            for power, number in enumerate(_newton(places, along)):
                replaced[(*line[:axis], power, *line[axis:])] = number
        grid = replaced
    return {powers: number for powers, number in sorted(grid.items(), reverse=True) if number}


def _newton(places: Sequence[int], along: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients, lowest power first, of the polynomial through (place, value) pairs."""
    divided = list(along)
    for order in range(1, len(places)):
        for i in range(len(places) - 1, order - 1, -1):
            divided[i] = (divided[i] - divided[i - 1]) / (places[i] - places[i - order])
    found = [Fraction(0)] * len(places)
    for place, difference in zip(reversed(places), reversed(divided), strict=True):
        shifted = [Fraction(0), *found[:-1]]  # found · (x - place) + difference; the highest power is still 0
        found = [up - place * same for up, same in zip(shifted, found, strict=True)]
        found[0] += difference
    return found


def _check_grid(over: Axes, at: Mapping[Node, Expr]) -> None:
    for name, places in over.items():
        if len(set(places)) != len(places) or not places:
            raise ValueError(f"expected at least one node for {name}, each once, got {list(places)}")
    for node in nodes(over):
        if node not in at:
            raise ValueError(f"expected a value at every node of the grid, got none at {_named(over, node)}")


def _named(over: Axes, node: Node) -> str:
    return ", ".join(f"{name}={place}" for name, place in zip(over, node, strict=True))


def _product(monomial: Monomial) -> Expr:
    return sympy.Mul(*(base**power for base, power in monomial))
