"""Formulas at points, exactly: whole numbers stay whole, of any size, and fractions stay fractions.

An expression is turned into Python code over ints once (`compiled`), with every rounding atom taken once and rational
coefficients brought over one denominator, and then called at any number of points. Nothing passes through a float or a
64-bit integer. Not claimed: nothing but what `analysis.formula.algebra.expressions` calls a formula (and Abs); a
logarithm or a root has no exact value and is refused.

Points and sweeps as text: `hidden=2004,batch=64`, `hidden=512:8192:512,batch=1,2,4`, and the rows they give.

A range `first:last:step` holds its last value if a step meets it; `first:last:*factor` multiplies instead of adding.
Values are whole numbers of at least 1. Nothing here evaluates a formula (`analysis.formula.algebra.evaluate`) or writes
a file.
"""

import ast
import csv
import functools
import io
import itertools
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import sympy

from analysis.formula.algebra.expressions import Expr, names, symbol, unknown_name

Exact = int | Fraction
Point = Mapping[str, int]
"""Name of a symbol → its value, a whole number of at least 1."""

_SCALED = tuple[ast.expr, int]
"""Code of a numerator, and the constant denominator below it."""


def value(expression: Expr, point: Point, symbols: Collection[str] | None = None) -> Exact:
    """The expression's value at a point: an int where it is whole, else a Fraction.

    symbols: names that the point may have (None: those of the expression). Raises ValueError, in one line, for a symbol
    without value, a name that is none of the symbols, a value that is no positive whole number, a division by zero.
    """
    wanted = names(expression)
    return _at(expression, wanted, checked_point(point, wanted, symbols))


def values(expression: Expr, points: Iterable[Point], symbols: Collection[str] | None = None) -> list[Exact]:
    """`value` at each point."""
    wanted = names(expression)
    return [_at(expression, wanted, checked_point(point, wanted, symbols)) for point in points]


def rows(formulas: Mapping[str, Expr], points: Iterable[Point]) -> list[dict[str, Exact]]:
    """A row a point: its symbols, then each formula's value there. A formula may need fewer symbols than there are.

    Raises ValueError as `value` does, and for a formula that has the name of a symbol.
    """
    found: list[dict[str, Exact]] = []
    wanted = {name: names(formula) for name, formula in formulas.items()}
    for point in points:
        if shared := point.keys() & formulas.keys():
            raise ValueError(f"expected formulas that are not called as symbols are, got {', '.join(sorted(shared))}")
        row: dict[str, Exact] = dict(point)
        for name, formula in formulas.items():
            row[name] = _at(formula, wanted[name], checked_point(point, wanted[name], point.keys()))
        found.append(row)
    return found


def partly(expression: Expr, point: Point) -> Expr:
    """The expression with these symbols replaced by numbers, the others kept; maxima are left as they are written."""
    here = {symbol(name): sympy.Integer(number) for name, number in point.items()}
    return _replaced(sympy.sympify(expression), here)


def checked_point(point: Point, wanted: Iterable[str], symbols: Collection[str] | None = None) -> dict[str, int]:
    """The point with its values as ints. Raises ValueError as `value` does."""
    needed = list(wanted)
    valid = needed if symbols is None else sorted(set(symbols) | set(needed))
    for name in point:
        if name not in valid:
            raise ValueError(unknown_name("symbol", name, valid))
    if missing := [name for name in needed if name not in point]:
        given = ", ".join(point) or "none"
        raise ValueError(f"expected a value for each of {', '.join(needed)}, got {given}: no {', '.join(missing)}")
    return {name: _whole(name, number) for name, number in point.items()}


@functools.lru_cache(maxsize=4096)
def compiled(expression: Expr) -> Callable[..., Exact]:
    """The expression as a function of its symbols' values, given in the order of `names(expression)`."""
    code = _Code(names(expression))
    result = ast.Return(code.exact(sympy.sympify(expression)))
    tree = ast.parse("def formula(): pass")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.args, function.body = code.arguments(), [*code.body, result]
    ast.fix_missing_locations(tree)
    scope: dict[str, Any] = {"Fraction": Fraction, "max": max, "min": min, "abs": abs, "__builtins__": {}}
    exec(compile(tree, "<formula>", "exec"), scope)
    return functools.partial(_normal, scope["formula"])


class _Code:
    """Python code of one expression. body: assignments of the atoms that were hoisted, in order."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.places = {name: f"s{i}" for i, name in enumerate(symbols)}
        self.hoisted: dict[Expr, str] = {}
        self.body: list[ast.stmt] = []

    def arguments(self) -> ast.arguments:
        return ast.arguments([], [ast.arg(place) for place in self.places.values()], None, [], [], None, [])

    def exact(self, expression: Expr) -> ast.expr:
        """Its value: an int, or a Fraction where it has a denominator."""
        above, below = self.scaled(expression)
        return above if below == 1 else _call("Fraction", above, _constant(below))

    def scaled(self, expression: Expr) -> _SCALED:
        for kind, method in _METHODS.items():
            if isinstance(expression, kind):
                return method(self, expression)
        raise ValueError(f"expected a formula with an exact value, got {expression.func.__name__} in {expression}")

    def number(self, expression: Expr) -> _SCALED:
        return _constant(int(expression.p)), int(expression.q)

    def name(self, expression: Expr) -> _SCALED:
        return ast.Name(self.places[expression.name], ast.Load()), 1

    def total(self, expression: Expr) -> _SCALED:
        terms = [self.scaled(term) for term in expression.args]
        below = math.lcm(*(denominator for _, denominator in terms))
        return _balanced(ast.Add(), [_times(above, below // own) for above, own in terms]), below

    def product(self, expression: Expr) -> _SCALED:
        factors = [self.scaled(factor) for factor in expression.args]
        return _balanced(ast.Mult(), [above for above, _ in factors]), math.prod(own for _, own in factors)

    def power(self, expression: Expr) -> _SCALED:
        base, exponent = expression.args
        if not exponent.is_Integer:
            raise ValueError(f"expected whole powers, got {expression}")
        above, below = self.scaled(base)
        if exponent < 0:
            above, below = _call("Fraction", _constant(below), above), 1
        raised = abs(int(exponent))
        return above if raised == 1 else ast.BinOp(above, ast.Pow(), _constant(raised)), below**raised

    def rounded(self, expression: Expr) -> _SCALED:
        above, below = self.scaled(expression.args[0])
        up = isinstance(expression, sympy.ceiling)
        down = ast.BinOp(_negative(above) if up else above, ast.FloorDiv(), _constant(below))
        return self.hoist(expression, _negative(down) if up else down), 1

    def remainder(self, expression: Expr) -> _SCALED:
        left, right = (self.exact(argument) for argument in expression.args)
        return self.hoist(expression, ast.BinOp(left, ast.Mod(), right)), 1

    def extreme(self, expression: Expr) -> _SCALED:
        called = {sympy.Max: "max", sympy.Min: "min", sympy.Abs: "abs"}[expression.func]
        return self.hoist(expression, _call(called, *(self.exact(argument) for argument in expression.args))), 1

    def hoist(self, expression: Expr, code: ast.expr) -> ast.expr:
        if expression not in self.hoisted:
            self.hoisted[expression] = f"t{len(self.hoisted)}"
            self.body.append(ast.Assign([ast.Name(self.hoisted[expression], ast.Store())], code))
        return ast.Name(self.hoisted[expression], ast.Load())


_METHODS: Mapping[Any, Callable[[_Code, Expr], _SCALED]] = {
    sympy.Rational: _Code.number,
    sympy.Symbol: _Code.name,
    sympy.Add: _Code.total,
    sympy.Mul: _Code.product,
    sympy.Pow: _Code.power,
    sympy.floor: _Code.rounded,
    sympy.ceiling: _Code.rounded,
    sympy.Mod: _Code.remainder,
    sympy.Max: _Code.extreme,
    sympy.Min: _Code.extreme,
    sympy.Abs: _Code.extreme,
}


def _replaced(expression: Expr, here: Mapping[Expr, Expr]) -> Expr:
    if not expression.has(sympy.Max, sympy.Min):
        return expression.xreplace(here)
    arguments = [_replaced(argument, here) for argument in expression.args]
    if isinstance(expression, sympy.Max | sympy.Min):
        return expression.func(*arguments, evaluate=False)  # comparing symbolic arguments is slow
    return expression.func(*arguments)


def _at(expression: Expr, wanted: Sequence[str], point: Point) -> Exact:
    try:
        return compiled(sympy.sympify(expression))(*(point[name] for name in wanted))
    except ZeroDivisionError as fault:
        at = ", ".join(f"{name}={point[name]}" for name in wanted)
        raise ValueError(f"expected a point at which nothing is divided by 0, got {at}") from fault


def _normal(function: Callable[..., Exact], *arguments: int) -> Exact:
    found = function(*arguments)
    return found.numerator if found.denominator == 1 else found


def _whole(name: str, number: Any) -> int:
    try:
        found = operator.index(number)
    except TypeError as fault:
        raise ValueError(f"expected a whole number for {name}, got {number!r}") from fault
    if isinstance(number, bool) or found < 1:
        raise ValueError(f"expected a whole number of at least 1 for {name}, got {number!r}")
    return found


def _constant(number: int) -> ast.expr:
    return _negative(ast.Constant(-number)) if number < 0 else ast.Constant(number)


def _negative(code: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.USub(), code)


def _times(code: ast.expr, factor: int) -> ast.expr:
    return code if factor == 1 else ast.BinOp(_constant(factor), ast.Mult(), code)


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _balanced(operation: ast.operator, parts: Sequence[ast.expr]) -> ast.expr:
    """The parts joined as a tree of least depth: a chain of thousands is too deep for the compiler."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return ast.BinOp(_balanced(operation, parts[:middle]), operation, _balanced(operation, parts[middle:]))


MOST_POINTS = 1_000_000
"""A sweep over more points than these is refused."""

_WHOLE = re.compile(r"[0-9](_?[0-9])*")


def parse_point(text: str) -> dict[str, int]:
    """`hidden=2004,batch=64` as a point. Raises ValueError for anything else, and for a symbol with several values."""
    found = axes(text)
    for name, several in found.items():
        if len(several) != 1:
            raise ValueError(f"expected one value for {name}, got {len(several)}: {_listed(several)}")
    return {name: only for name, (only,) in found.items()}


def axes(text: str) -> dict[str, tuple[int, ...]]:
    """`hidden=512:2048:512,batch=1,2,4` as each symbol's values, in the order written.

    A comma parts values of one symbol as well as symbols: what has no `=` belongs to the symbol before it. Raises
    ValueError, in one line, for a piece that is neither, a symbol twice, and a value twice.
    """
    found: dict[str, list[int]] = {}
    name = ""
    for piece in text.split(","):
        label, equals, rest = piece.rpartition("=")
        if equals:
            name = label.strip()
            if not name.isidentifier() or name in found:
                wanted = "each symbol once" if name in found else "a symbol's name before ="
                raise ValueError(f"expected {wanted}, got {piece.strip()!r} in {text!r}")
            found[name] = []
        elif not name:
            raise ValueError(f"expected NAME=VALUE, NAME=A,B,C or NAME=FIRST:LAST:STEP, got {piece.strip()!r}")
        found[name] += span(rest.strip())
    for name, several in found.items():
        if len(set(several)) != len(several):
            raise ValueError(f"expected each value of {name} once, got {_listed(several)}")
    return {name: tuple(several) for name, several in found.items()}


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


def as_csv(rows: Iterable[Mapping[str, int | Fraction]]) -> str:
    """Rows as CSV with a header: whole numbers in all their digits, fractions as the nearest float."""
    listed = list(rows)
    if not listed:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(listed[0]), lineterminator="\n")
    writer.writeheader()
    for row in listed:
        writer.writerow({name: cell if isinstance(cell, int) else float(cell) for name, cell in row.items()})
    return text.getvalue()


def _digits_of(text: str, inside: str) -> int:
    digits = text.strip()
    if not _WHOLE.fullmatch(digits) or int(digits) < 1:
        raise ValueError(f"expected whole numbers of at least 1, got {digits!r} in {inside!r}")
    return int(digits)


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values[:5])) + (", …" if len(values) > 5 else "")
