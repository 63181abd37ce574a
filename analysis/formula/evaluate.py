"""Formulas at points, exactly: whole numbers stay whole, of any size, and fractions stay fractions.

An expression is turned into Python code over ints and Fractions once (`compiled`), and then called at any number of
points. Nothing passes through a float or a 64-bit integer. Not claimed: nothing but what
`analysis.formula.expressions` calls a formula (and Abs); a logarithm or a root has no exact value and is
refused.

Points and sweeps as text: `hidden=2004,batch=64`, `hidden=512:8192:512,batch=1,2,4`, and the rows they give.

A range `first:last:step` holds its last value if a step meets it; `first:last:*factor` multiplies instead of adding.
Values are whole numbers of at least 1.
"""

import functools
import itertools
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import sympy

from analysis.formula.expressions import Expr, names, symbol, unknown_name

Exact = int | Fraction
Point = Mapping[str, int]
"""Name of a symbol → its value, a whole number of at least 1."""


def value(expression: Expr, point: Point, symbols: Collection[str] | None = None) -> Exact:
    """The expression's value at a point: an int where it is whole, else a Fraction.

    symbols: names that the point may have (None: those of the expression). Raises ValueError, in one line, for a symbol
    without value, a name that is none of the symbols, a value that is no positive whole number, a division by zero.
    """
    wanted, function = compiled(sympy.sympify(expression))
    here = checked_point(point, wanted, symbols)
    try:
        return function(*(here[name] for name in wanted))
    except ZeroDivisionError as fault:
        text = ", ".join(f"{name}={here[name]}" for name in wanted)
        raise ValueError(f"expected a point at which nothing is divided by 0, got {text}") from fault


def rows(formulas: Mapping[str, Expr], points: Iterable[Point]) -> list[dict[str, Exact]]:
    """A row a point: its symbols, then each formula's value there. A formula may need fewer symbols than there are.

    Raises ValueError as `value` does, and for a formula that has the name of a symbol.
    """
    listed = list(points)
    if shared := set(formulas).intersection(*map(set, listed[:1])):
        raise ValueError(f"expected formulas that are not called as symbols are, got {', '.join(sorted(shared))}")
    return [{**point, **{name: value(form, point, point) for name, form in formulas.items()}} for point in listed]


def partly(expression: Expr, point: Point) -> Expr:
    """The expression with these symbols replaced by numbers, the others kept; maxima are left as they are written."""
    here = {symbol(name): sympy.Integer(number) for name, number in point.items()}
    return _replaced(sympy.sympify(expression), here)


def checked_point(point: Point, wanted: Iterable[str], symbols: Collection[str] | None = None) -> dict[str, int]:
    """The point with its values as ints. Raises ValueError as `value` does."""
    needed = list(wanted)
    valid = sorted({*(symbols or ()), *needed})
    for name in point:
        if name not in valid:
            raise ValueError(unknown_name("symbol", name, valid))
    if missing := [name for name in needed if name not in point]:
        given = ", ".join(point) or "none"
        raise ValueError(f"expected a value for each of {', '.join(needed)}, got {given}: no {', '.join(missing)}")
    return {name: _whole(name, number) for name, number in point.items()}


@functools.lru_cache(maxsize=4096)
def compiled(expression: Expr) -> tuple[list[str], Callable[..., Exact]]:
    """Names of its symbols, and the expression as a function of their values in that order."""
    wanted = names(expression)
    places = {name: f"s{number}" for number, name in enumerate(wanted)}
    code = f"lambda {', '.join(places.values())}: {_code(expression, places)}"
    function = eval(code, {**_SCOPE, "__builtins__": {}})

    def exact(*values: int) -> Exact:
        number = function(*values)
        return number.numerator if number.denominator == 1 else number  # type: ignore[no-any-return]

    return wanted, exact


_SCOPE: Mapping[str, Callable[..., Any]] = {
    "Add": lambda *terms: sum(terms),
    "Mul": lambda *factors: math.prod(factors),
    "Max": max,
    "Min": min,
    "Abs": abs,
    "Mod": operator.mod,
    "floor": math.floor,
    "ceiling": math.ceil,
    "Fraction": Fraction,
}
"""Names in a compiled formula: sympy's, with exact functions of ints and Fractions."""


def _code(expression: Expr, places: Mapping[str, str]) -> str:
    """Python's text of a formula, by the names of _SCOPE."""
    if isinstance(expression, sympy.Symbol):
        return places[expression.name]
    if isinstance(expression, sympy.Rational):
        return f"({expression.p})" if expression.q == 1 else f"Fraction({expression.p}, {expression.q})"
    if isinstance(expression, sympy.Pow):
        if not expression.exp.is_Integer:
            raise ValueError(f"expected whole powers, got {expression}")
        power = f"{_code(expression.base, places)} ** {abs(int(expression.exp))}"
        return f"({power})" if expression.exp > 0 else f"Fraction(1, {power})"
    name = expression.func.__name__
    if name not in _SCOPE:
        raise ValueError(f"expected a formula with an exact value, got {name} in {expression}")
    return f"{name}({', '.join(_code(argument, places) for argument in expression.args)})"


def _replaced(expression: Expr, here: Mapping[Expr, Expr]) -> Expr:
    if not expression.has(sympy.Max, sympy.Min):
        return expression.xreplace(here)
    arguments = [_replaced(argument, here) for argument in expression.args]
    if isinstance(expression, sympy.Max | sympy.Min):
        return expression.func(*arguments, evaluate=False)  # comparing symbolic arguments is slow
    return expression.func(*arguments)


def _whole(name: str, number: Any) -> int:
    try:
        whole = operator.index(number)
    except TypeError as fault:
        raise ValueError(f"expected a whole number for {name}, got {number!r}") from fault
    if isinstance(number, bool) or whole < 1:
        raise ValueError(f"expected a whole number of at least 1 for {name}, got {number!r}")
    return whole


MOST_POINTS = 1_000_000
"""A sweep over more points than these is refused."""

_WHOLE = re.compile(r"[0-9](_?[0-9])*")


def parse_point(text: str) -> dict[str, int]:
    """`hidden=2004,batch=64` as a point. Raises ValueError for anything else, and for a symbol with several values."""
    values = axes(text)
    for name, several in values.items():
        if len(several) != 1:
            raise ValueError(f"expected one value for {name}, got {len(several)}: {_listed(several)}")
    return {name: only for name, (only,) in values.items()}


def axes(text: str) -> dict[str, tuple[int, ...]]:
    """`hidden=512:2048:512,batch=1,2,4` as each symbol's values, in the order written.

    A comma parts values of one symbol as well as symbols: what has no `=` belongs to the symbol before it. Raises
    ValueError, in one line, for a piece that is neither, a symbol twice, and a value twice.
    """
    values: dict[str, list[int]] = {}
    name = ""
    for piece in text.split(","):
        label, equals, rest = piece.rpartition("=")
        if equals:
            name = label.strip()
            if not name.isidentifier() or name in values:
                wanted = "each symbol once" if name in values else "a symbol's name before ="
                raise ValueError(f"expected {wanted}, got {piece.strip()!r} in {text!r}")
            values[name] = []
        elif not name:
            raise ValueError(f"expected NAME=VALUE, NAME=A,B,C or NAME=FIRST:LAST:STEP, got {piece.strip()!r}")
        values[name] += span(rest.strip())
    for name, several in values.items():
        if len(set(several)) != len(several):
            raise ValueError(f"expected each value of {name} once, got {_listed(several)}")
    return {name: tuple(several) for name, several in values.items()}


def span(text: str) -> Sequence[int]:
    """The values of `7`, `1:5`, `512:8192:512` or `1:1024:*2`. Raises ValueError for anything else."""
    pieces = text.split(":")
    if len(pieces) == 1:
        return (_digits_of(text, text),)
    first, last = _digits_of(pieces[0], text), _digits_of(pieces[1], text)
    if len(pieces) > 3 or last < first:
        raise ValueError(f"expected FIRST:LAST or FIRST:LAST:STEP with FIRST ≤ LAST, got {text!r}")
    step = pieces[2].strip() if len(pieces) == 3 else "1"
    if not step.startswith("*"):
        values = range(first, last + 1, _digits_of(step, text))
        if values[MOST_POINTS:]:  # len() of a range has no more digits than a size_t
            raise ValueError(f"expected at most {MOST_POINTS:,} values, got more in {text!r}")
        return values
    factor = _digits_of(step[1:], text)
    if factor < 2:
        raise ValueError(f"expected a factor of at least 2, got {text!r}")
    return [*itertools.takewhile(lambda number: number <= last, (first * factor**i for i in itertools.count()))]


def points(over: Mapping[str, Sequence[int]], fixed: Mapping[str, int] | None = None) -> Iterator[dict[str, int]]:
    """Every combination of the axes' values beside the fixed ones; the last axis moves fastest.

    Raises ValueError for a symbol that is both, and for more than MOST_POINTS combinations.
    """
    held = dict(fixed or {})
    if shared := held.keys() & over.keys():
        raise ValueError(f"expected a symbol to be fixed or swept, got both for {', '.join(sorted(shared))}")
    if (count := math.prod(map(len, over.values()))) > MOST_POINTS:
        raise ValueError(f"expected at most {MOST_POINTS:,} points, got {count:,}")
    return ({**held, **dict(zip(over, combination, strict=True))} for combination in itertools.product(*over.values()))


def _digits_of(text: str, inside: str) -> int:
    digits = text.strip()
    if not _WHOLE.fullmatch(digits) or int(digits) < 1:
        raise ValueError(f"expected whole numbers of at least 1, got {digits!r} in {inside!r}")
    return int(digits)


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values[:5])) + (", …" if len(values) > 5 else "")
