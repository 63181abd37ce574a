"""Equal forms of one formula: multiplied out, its common factor taken out, collected by a symbol, the shortest.

A form is a sympy expression that need not be in sympy's own normal form (`2·(a + b)` stays so); printed, it keeps its
shape. Not claimed: `factored` finds sums as factors only where the formula has few terms (`FEW`), because that search
is slow; of others it takes out the common factor.

Formulas as a person reads them: `24·hidden²·batch·layers·seq + 8·hidden + 2`.

Terms of the highest degree come first; in a product the number, then the highest powers, then sums in brackets;
thousands are parted by commas, roundings are ⌊ ⌋ and ⌈ ⌉. The text is for people:
`analysis.formula.algebra.expressions.plain` writes what a program reads. The formula is printed in the form it has
(`analysis.formula.algebra.simplify` makes others), never changed.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

import sympy

from analysis.formula.algebra.expressions import Expr, names, rational, symbol, unknown_name

Monomial = tuple[tuple[Expr, int], ...]
"""Factors with their powers, in a fixed order; () is 1."""

FEW = 16
"""A formula of at most this many terms is searched for sums as factors."""

MANY = 60


def monomials(expression: Expr) -> dict[Monomial, Fraction]:
    """Its terms, multiplied out: product of powers of atoms (symbols, roundings, …) → coefficient.

    Raises ValueError for a coefficient that is not rational.
    """
    found: dict[Monomial, Fraction] = {}
    for term in sympy.Add.make_args(expanded(expression)):
        number, rest = term.as_coeff_Mul()
        if not number.is_Rational:
            raise ValueError(f"expected rational coefficients, got {number} in {term}")
        if number != 0:
            found[_monomial(rest)] = Fraction(int(number.p), int(number.q))
    return found


def expanded(expression: Expr) -> Expr:
    """The sum of its terms, multiplied out."""
    whole = sympy.sympify(expression)
    factors = (factor for term in sympy.Add.make_args(whole) for factor in sympy.Mul.make_args(term))
    return whole if all(map(_is_flat, factors)) else sympy.expand(whole)  # looking is faster than trying


def factored(expression: Expr) -> Expr:
    """Its common factor times the rest, the rest as a product of sums where it is short and is one."""
    terms = monomials(expression)
    if len(terms) < 2:
        return _sum(terms)
    number, common = _content(terms)
    rest = {_over(monomial, common): factor / number for monomial, factor in terms.items()}
    return _scaled(number, _product(common), _split(rest))


def collected(expression: Expr, by: str) -> Expr:
    """A sum over the powers of one symbol, each with its factored coefficient.

    The symbol inside a rounding counts as part of the coefficient. Raises ValueError for a symbol it does not have.
    """
    if by not in (valid := names(expression)):
        raise ValueError(unknown_name("symbol", by, valid))
    main = symbol(by)
    by_power: dict[int, dict[Monomial, Fraction]] = {}
    for monomial, number in monomials(expression).items():
        power = dict(monomial).get(main, 0)
        rest = tuple(pair for pair in monomial if pair[0] != main)
        by_power.setdefault(power, {})[rest] = number
    parts: list[Expr] = []
    for power, terms in by_power.items():
        number, rest = _number_apart(factored(_sum(terms)))
        whole = _scaled(number, main**power, rest)
        parts += sympy.Add.make_args(whole)  # what is free of the symbol may be a sum
    return parts[0] if len(parts) == 1 else sympy.Add(*parts, evaluate=False)


def shortest(expression: Expr) -> Expr:
    """The form whose text is shortest: multiplied out, factored, or collected by a symbol; the first of equals.

    A formula of more than MANY terms is not collected: that takes seconds and helps nobody to read it.
    """
    forms = [expanded(expression), factored(expression)]
    if len(sympy.Add.make_args(forms[0])) <= MANY:
        forms += [collected(expression, by) for by in names(expression)]
    return min(forms, key=lambda form: len(pretty(form)))


@functools.lru_cache(maxsize=4096)
def _is_flat(factor: Expr) -> bool:
    """Whether multiplying out leaves a factor as it is."""
    return not factor.is_Add and bool(factor.is_Rational or factor.is_Symbol or sympy.expand(factor) == factor)


def _monomial(term: Expr) -> Monomial:
    powers: dict[Any, int] = {}
    for factor in sympy.Mul.make_args(term):
        base, power = (factor.base, factor.exp) if isinstance(factor, sympy.Pow) else (factor, sympy.Integer(1))
        if not power.is_Integer:
            base, power = factor, 1
        if base != 1:
            powers[base] = powers.get(base, 0) + int(power)
    return tuple(sorted(powers.items(), key=_place))


def _place(pair: tuple[Expr, int]) -> str:
    return _written(pair[0])


@functools.lru_cache(maxsize=4096)
def _written(atom: Expr) -> str:
    return str(atom)


def _content(terms: Mapping[Monomial, Fraction]) -> tuple[Fraction, Monomial]:
    """The largest number and product of powers that divide every term; the number is negative where all are."""
    above = math.gcd(*(number.numerator for number in terms.values()))
    below = math.lcm(*(number.denominator for number in terms.values()))
    lowest = dict(next(iter(terms)))
    for monomial in terms:
        powers = dict(monomial)
        lowest = {base: min(power, powers[base]) for base, power in lowest.items() if base in powers}
    common = tuple(sorted(lowest.items(), key=_place))
    negative = all(number < 0 for number in terms.values())
    return Fraction(-above if negative else above, below), common


def _over(monomial: Monomial, common: Monomial) -> Monomial:
    taken = dict(common)
    return tuple((base, power - taken.get(base, 0)) for base, power in monomial if power != taken.get(base, 0))


def _split(terms: Mapping[Monomial, Fraction]) -> Expr:
    """The sum, as a product of sums where it has few terms and is one."""
    whole = _sum(terms)
    if len(terms) > FEW or any(power < 0 for monomial in terms for _, power in monomial):
        return whole
    return sympy.factor(whole)


def _number_apart(form: Expr) -> tuple[Fraction, Expr]:
    """The form's leading number and the rest, without multiplying it into a sum."""
    if isinstance(form, sympy.Rational):
        return Fraction(int(form.p), int(form.q)), sympy.Integer(1)
    if not isinstance(form, sympy.Mul) or not isinstance(form.args[0], sympy.Rational):
        return Fraction(1), form
    rest = form.args[1:]
    return (
        Fraction(int(form.args[0].p), int(form.args[0].q)),
        rest[0] if len(rest) == 1 else sympy.Mul(*rest, evaluate=False),
    )


def _scaled(number: Fraction, *parts: Expr) -> Expr:
    """The product as it is written: a number is not multiplied into a sum."""
    factors = [part for whole in parts for part in sympy.Mul.make_args(whole) if part != 1]
    if number != 1 or not factors:
        factors.insert(0, rational(number))
    return factors[0] if len(factors) == 1 else sympy.Mul(*factors, evaluate=False)


def _sum(terms: Mapping[Monomial, Fraction]) -> Expr:
    return sympy.Add(*(rational(number) * _product(monomial) for monomial, number in terms.items()))


def _product(monomial: Iterable[tuple[Expr, int]]) -> Expr:
    return sympy.Mul(*(base**power for base, power in monomial))


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def pretty(expression: Expr) -> str:
    """The expression as one line for a person."""
    return _text(sympy.sympify(expression))


def degree(expression: Expr) -> int:
    """Its degree in all symbols together; a rounding counts as what it rounds, a remainder as a constant."""
    if isinstance(expression, sympy.Symbol):
        return 1
    if isinstance(expression, sympy.Pow) and expression.exp.is_Integer:
        return degree(expression.base) * int(expression.exp)
    if isinstance(expression, sympy.Mod) or not expression.args:
        return 0
    parts = [degree(part) for part in expression.args]
    return sum(parts) if isinstance(expression, sympy.Mul) else max(parts)


def _text(expression: Expr) -> str:
    for kind, method in _METHODS.items():
        if isinstance(expression, kind):
            return method(expression)
    return str(expression)


def _number(expression: Expr) -> str:
    number = Fraction(int(expression.p), int(expression.q))
    return f"{number.numerator:,}" + (f"/{number.denominator:,}" if number.denominator != 1 else "")


def _sum_text(expression: Expr) -> str:
    text = ""
    for term in sorted(expression.args, key=_rank):
        written = _text(term)
        if text:
            text += f" - {written[1:]}" if written.startswith("-") else f" + {written}"
        else:
            text = written
    return text


def _rank(term: Expr) -> tuple[int, int, str]:
    """Sorts terms: by degree and highest power, both falling, then by the text without its number."""
    _, factors = _factors(term)
    powers = [power for _, power in factors]
    return -degree(term), -max(powers, default=0), "·".join(_power(base, power) for base, power in factors)


def _product_text(expression: Expr) -> str:
    number, factors = _factors(expression)
    above = [_power(base, power) for base, power in factors if power > 0]
    below = [_power(base, -power) for base, power in factors if power < 0]
    sign = "-" if number < 0 else ""
    if abs(number.numerator) != 1 or not above:
        above.insert(0, f"{abs(number.numerator):,}")
    if number.denominator != 1:
        below.insert(0, f"{number.denominator:,}")
    if not below:
        return sign + "·".join(above)
    divisor = "·".join(below)
    return f"{sign}{'·'.join(above)}/{f'({divisor})' if len(below) > 1 else divisor}"


def _factors(term: Expr) -> tuple[Fraction, list[tuple[Expr, int]]]:
    """The term's number, and its other factors with their powers: highest powers first, then by name, sums last."""
    number, found = Fraction(1), []
    for factor in _flat(term):
        if isinstance(factor, sympy.Rational):
            number *= Fraction(int(factor.p), int(factor.q))
        elif isinstance(factor, sympy.Pow) and factor.exp.is_Integer:
            found.append((factor.base, int(factor.exp)))
        else:
            found.append((factor, 1))
    return number, sorted(found, key=lambda pair: (isinstance(pair[0], sympy.Add), -pair[1], _text(pair[0])))


def _flat(term: Expr) -> list[Expr]:
    return [part for factor in term.args for part in _flat(factor)] if isinstance(term, sympy.Mul) else [term]


def _power(base: Expr, power: int) -> str:
    text = _text(base)
    inner = f"({text})" if isinstance(base, sympy.Add | sympy.Mul | sympy.Mod | sympy.Pow) else text
    return inner if power == 1 else inner + str(power).translate(_RAISED)


def _rounded(left: str, right: str) -> Callable[[Expr], str]:
    @functools.lru_cache(maxsize=4096)  # a rounding occurs in many terms
    def text(expression: Expr) -> str:
        """With one denominator below the whole: ⌊(image - 1)/2⌋."""
        inside = expression.args[0]
        below = math.lcm(*(int(term.as_coeff_Mul()[0].q) for term in sympy.Add.make_args(inside)))
        if not isinstance(inside, sympy.Add) or below == 1:
            return f"{left}{_text(inside)}{right}"
        return f"{left}({_text(sympy.Add(*(below * term for term in inside.args)))})/{below:,}{right}"

    return text


def _called(name: str) -> Callable[[Expr], str]:
    return lambda expression: f"{name}({', '.join(sorted(map(_text, expression.args)))})"


def _remainder(expression: Expr) -> str:
    left, right = (_power(argument, 1) for argument in expression.args)
    return f"{left} mod {right}"


_METHODS: Mapping[Any, Callable[[Expr], str]] = {
    sympy.Rational: _number,
    sympy.Symbol: lambda expression: str(expression.name),
    sympy.Add: _sum_text,
    sympy.Mul: _product_text,
    sympy.Pow: lambda expression: _product_text(expression) if expression.exp.is_Integer else str(expression),
    sympy.floor: _rounded("⌊", "⌋"),
    sympy.ceiling: _rounded("⌈", "⌉"),
    sympy.Mod: _remainder,
    sympy.Max: _called("max"),
    sympy.Min: _called("min"),
}
