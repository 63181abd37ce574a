"""Random formulas of the kind that costs are: for property tests of `analysis`' algebra."""

from fractions import Fraction
from typing import Any

import sympy
from hypothesis import strategies as st

from analysis.formula.expressions import symbol

NAMES = ("batch", "hidden", "seq")
SYMBOLS = tuple(symbol(name) for name in NAMES)

numbers = st.fractions(min_value=-(10**12), max_value=10**12, max_denominator=12)
points = st.fixed_dictionaries({name: st.integers(1, 10**6) for name in NAMES})


def rational(number: Fraction) -> Any:
    return sympy.Rational(number.numerator, number.denominator)


@st.composite
def roundings(draw: st.DrawFn) -> Any:
    """⌊(a symbol + c)/m⌋ or ⌈ ⌉, as strides make them, also of one another."""
    inside = draw(st.sampled_from(SYMBOLS) if draw(st.booleans()) else roundings())
    kind = draw(st.sampled_from([sympy.floor, sympy.ceiling]))
    return kind((inside + draw(st.integers(-9, 9))) / sympy.Integer(draw(st.integers(2, 9))))


atoms = st.one_of(
    st.sampled_from(SYMBOLS),
    roundings(),
    st.builds(sympy.Mod, st.sampled_from(SYMBOLS), st.integers(2, 9).map(sympy.Integer)),
    st.builds(sympy.Max, st.sampled_from(SYMBOLS), st.sampled_from(SYMBOLS)),
)


@st.composite
def formulas(draw: st.DrawFn, of: st.SearchStrategy[Any] = atoms) -> Any:
    """A sum of up to six terms: a rational number times powers of atoms."""
    terms = draw(st.lists(st.tuples(numbers, st.lists(st.tuples(of, st.integers(1, 3)), max_size=3)), max_size=6))
    return sympy.Add(
        *(rational(number) * sympy.Mul(*(atom**power for atom, power in powers)) for number, powers in terms)
    )


polynomials = formulas(st.sampled_from(SYMBOLS))
