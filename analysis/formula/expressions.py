"""Writes, reads and evaluates formulas exactly.

A formula is an exact sympy expression in symbols, which are positive integers (a batch, a width, a length). It may have
rational coefficients, sums, products, integer powers, floor, ceiling, Max, Min and Mod. `plain` writes a formula as
text, leading terms first. `parse` reads such text without evaluating it as Python. `shortest` and `pretty` write a
formula for people: `24·batch·hidden²·layers + 8·hidden + 2`. `value` and `compiled` calculate in ints and Fractions of
any size. Not supported: logarithms, roots, floating point (0.5 is one half).
"""

import ast
import functools
import keyword
import math
import operator
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from fractions import Fraction
from itertools import accumulate
from numbers import Integral
from typing import Any

import sympy
from sympy.printing.str import StrPrinter

from results.text_files import beyond, limit, nearest

Expr = Any
"""A sympy expression, or an int."""

FUNCTIONS: Mapping[str, tuple[Callable[..., Expr], int | None]] = {
    "floor": (sympy.floor, 1),
    "ceiling": (sympy.ceiling, 1),
    "Max": (sympy.Max, None),
    "Min": (sympy.Min, None),
    "Mod": (sympy.Mod, 2),
}
"""Function name → (function, number of arguments; None: one or more)."""

HIGHEST_POWER = 1000
DEEPEST = 60
"""Limits on powers and nested brackets: a text beyond them, which might hang or overflow, is refused."""

MOST_NAMED = 12
"""Maximum number of valid names in a message."""

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_OPERATORS = str.maketrans({"^": "**", "·": "*", "×": "*", "\n": " ", "\t": " "})
_NUMBER = re.compile(r"\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")


def symbol(name: str) -> Expr:
    """Return the symbol of this name: a positive whole number. Raises ValueError for a name that cannot be one."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or keyword.iskeyword(name) or name in FUNCTIONS:
        raise ValueError(f"expected a symbol's name (letters, digits, _; no keyword, no function's name), got {name!r}")
    return sympy.Symbol(name, integer=True, positive=True)


def rational(number: Fraction | float) -> Expr:
    """Return the exact value of a fraction, int or float as a sympy number."""
    exact = Fraction(number)
    return sympy.Rational(exact.numerator, exact.denominator)


def names(*expressions: Expr) -> list[str]:
    """Return the names of the symbols in these expressions, sorted."""
    return sorted({free.name for expression in expressions for free in sympy.sympify(expression).free_symbols})


def unknown_name(kind: str, got: str, valid: Iterable[str]) -> str:
    """Return a message for an invalid name, with the valid names and the nearest of them. kind: what is named."""
    known = [str(name) for name in valid]
    near = nearest(got, known, cutoff=0.5)
    shown = known if len(known) <= MOST_NAMED else [*known[:MOST_NAMED], f"{len(known) - MOST_NAMED} others"]
    line = f"unknown {kind}: expected {' or '.join(filter(None, [', '.join(shown[:-1]), *shown[-1:]])) or 'none'}"
    return f"{line}, got {got!r}" + (f", nearest {' or '.join(near)}" if near else "")


def plain(expression: Expr) -> str:
    """Return the expression as text that sympy and `parse` read: leading terms first (highest degree, then by name)."""
    return str(sympy.sstr(sympy.sympify(expression), order="grlex"))


def parse(text: str, known: Iterable[str] | Mapping[str, Expr] | None = None) -> Expr:
    """Parse a formula.

    known: the names that may occur (None: any), or what each name stands for. `^` is a power and `·` a product. Raises
    ValueError, in one line, for anything that is not a formula, an unknown name, and a division by zero.
    """
    meanings = known if isinstance(known, Mapping) or known is None else {name: symbol(name) for name in known}
    return _Reader(text, meanings).whole()


class _Reader:
    """Builds the sympy expression of a text's syntax tree."""

    def __init__(self, text: str, meanings: Mapping[str, Expr] | None) -> None:
        self.meanings, self.shown = meanings, repr(text if len(text) <= 60 else f"{text[:57]}...")
        powers = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda match: f"**{match[0].translate(_SUPERSCRIPTS)}", text)
        self.source = powers.translate(_OPERATORS).strip()

    def whole(self) -> Expr:
        if (depth := max(accumulate((c == "(") - (c == ")") for c in f"({self.source}"))) > DEEPEST:
            raise ValueError(f"expected brackets no deeper than {DEEPEST}, got {depth} in {self.shown}")
        most = min(limit("formula_bits") // 4, sys.get_int_max_str_digits() or sys.maxsize)
        if re.search(rf"\d{{{most + 1}}}", self.source):
            raise ValueError(f"expected a number of at most {most} digits, got one in {self.shown}")
        try:
            return self.read(ast.parse(self.source if self.source.isascii() else "", mode="eval").body)
        except (SyntaxError, RecursionError, MemoryError) as fault:
            raise ValueError(f"expected a formula, got {self.shown}") from fault

    def read(self, node: ast.expr) -> Expr:
        match node:
            case ast.Constant():
                text = self.source[node.col_offset : node.end_col_offset]
                if _NUMBER.fullmatch(text):
                    return sympy.Rational(text.replace("_", ""))
            case ast.Name():
                return self.meaning(node.id)
            case ast.Call(func=ast.Name(id=name), keywords=[]):
                return self.called(name, [self.read(argument) for argument in node.args])
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                inner = self.read(node.operand)
                return -inner if isinstance(node.op, ast.USub) else inner
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                return sympy.Add(*(-term if minus else term for minus, term in self.chain(node, ast.Add, ast.Sub)))
            case ast.BinOp(op=ast.Mult() | ast.Div()):
                return sympy.Mul(*(self.inverse(f) if below else f for below, f in self.chain(node, ast.Mult, ast.Div)))
            case ast.BinOp(op=ast.Pow()):
                return self.raised(self.read(node.left), self.read(node.right))
        raise ValueError(f"expected a formula, got {ast.unparse(node)[:20]!r} in {self.shown}")

    def chain(self, node: ast.expr, plus: type[ast.operator], minus: type[ast.operator]) -> list[tuple[bool, Expr]]:
        """Return the terms of a sum, or factors of a product, each with whether it is subtracted or divided by."""
        parts = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, plus | minus):
            parts.append((isinstance(node.op, minus), self.read(node.right)))
            node = node.left
        return [(False, self.read(node)), *parts[::-1]]

    def inverse(self, divisor: Expr) -> Expr:
        if divisor == 0:
            raise ValueError(f"expected a divisor that is not 0, got one in {self.shown}")
        return 1 / divisor

    def raised(self, base: Expr, power: Expr) -> Expr:
        """Return base ** power. Raises ValueError for a power whose value would be too long before sympy computes
        it."""
        if not power.is_Integer or abs(power) > HIGHEST_POWER:
            raise ValueError(f"expected whole powers up to {HIGHEST_POWER}, got {power} in {self.shown}")
        base, count = self.inverse(base) if power < 0 else base, abs(int(power))
        bits = max((max(abs(n.p), n.q).bit_length() for n in base.atoms(sympy.Rational)), default=1)
        if count > 1 and bits * count > limit("formula_bits"):
            raise ValueError(beyond(f"a power in {self.shown} has about {bits * count} bits", "formula_bits"))
        inner = max((abs(int(raised.exp)) for raised in base.atoms(sympy.Pow) if raised.exp.is_Integer), default=1)
        if inner * count > HIGHEST_POWER:
            raise ValueError(f"expected whole powers up to {HIGHEST_POWER}, got {inner * count} in {self.shown}")
        return base**count

    def called(self, name: str, arguments: list[Expr]) -> Expr:
        if name not in FUNCTIONS:
            raise ValueError(unknown_name("function", name, FUNCTIONS))
        function, count = FUNCTIONS[name]
        if len(arguments) != (count or max(1, len(arguments))):
            raise ValueError(
                f"expected {count or 'at least 1'} argument(s) of {name}, got {len(arguments)} in {self.shown}"
            )
        if name == "Mod":
            self.inverse(arguments[1])
        return function(*arguments)

    def meaning(self, name: str) -> Expr:
        if self.meanings is None:
            return symbol(name)
        if name not in self.meanings:
            raise ValueError(unknown_name("name", name, self.meanings))
        return sympy.sympify(self.meanings[name])


FEW = 16
"""Maximum number of terms of a formula that is factored, which is slow."""

MANY = 60
"""Maximum number of terms of a formula that is collected by a symbol, which takes seconds beyond."""

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def shortest(expression: Expr) -> Expr:
    """Return the form with the shortest text: expanded, factored, or collected by a symbol; on a tie the first of
    these.

    It need not be sympy's normal form (`2·(a + b)` stays so). Formulas with a maximum are not changed, because that
    takes long.
    """
    if expression.has(sympy.Max):
        return expression
    whole = sympy.expand(expression)
    forms = [whole, sympy.factor_terms(whole)]
    terms = len(sympy.Add.make_args(whole))
    if terms <= FEW:
        forms.append(sympy.factor(whole))
    if terms <= MANY:
        symbols = sorted(whole.free_symbols, key=str)
        forms += [sympy.collect(whole, symbol, sympy.factor_terms) for symbol in symbols]
    return min(forms, key=lambda form: len(pretty(form)))


def pretty(expression: Expr) -> str:
    """Return the expression as one line for a person."""
    text: str = _Text({"order": "grlex"}).doprint(sympy.sympify(expression))
    return text.replace("*", "·")


class _Text(StrPrinter):  # type: ignore[misc]
    """Prints as sympy does, but with superscript powers, brackets for roundings and commas between thousands."""

    def _print_Integer(self, expr: Expr) -> str:
        return f"{int(expr):,}"

    def _print_Rational(self, expr: Expr) -> str:
        return f"{expr.p:,}/{expr.q:,}"

    def _print_Pow(self, expr: Expr, rational: bool = False) -> str:
        if not expr.exp.is_Integer or expr.exp == -1:
            return str(super()._print_Pow(expr, rational))
        raised = f"{self.parenthesize(expr.base, 60)}{str(abs(expr.exp)).translate(_RAISED)}"
        return f"1/{raised}" if expr.exp < 0 else raised

    def _print_floor(self, expr: Expr) -> str:
        return f"⌊{self._print(sympy.together(expr.args[0]))}⌋"

    def _print_ceiling(self, expr: Expr) -> str:
        return f"⌈{self._print(sympy.together(expr.args[0]))}⌉"

    def _print_Max(self, expr: Expr) -> str:
        return f"max({', '.join(sorted(map(self._print, expr.args)))})"


# --- values ----------------------------------------------------------------------------------------------------------


Exact = int | Fraction
Point = Mapping[str, int]
"""Name of a symbol → its value, a whole number of at least 1."""


def value(expression: Expr, point: Point, symbols: Collection[str] | None = None) -> Exact:
    """Return the expression's value at a point: an int where it is whole, else a Fraction.

    symbols: names that the point may also have, besides those of the expression. Raises ValueError, in one line, for a
    symbol without a value, an unknown name, a value that is not a positive whole number, and a division by zero.
    """
    wanted, function = compiled(sympy.sympify(expression))
    here = checked_point(point, wanted, symbols)
    try:
        return function(*(here[name] for name in wanted))
    except ZeroDivisionError as fault:
        text = ", ".join(f"{name}={here[name]}" for name in wanted)
        raise ValueError(f"expected a point at which nothing is divided by 0, got {text}") from fault


def rows(formulas: Mapping[str, Expr], points: Iterable[Point]) -> list[dict[str, Exact]]:
    """Return one row per point: its symbols, then each formula's value there. Points may have symbols that a formula
    lacks.

    Raises ValueError as `value` does, and for a formula that has the name of a symbol.
    """
    listed = list(points)
    if shared := set(formulas).intersection(*map(set, listed[:1])):
        raise ValueError(f"expected names of formulas that are no symbols, got {', '.join(sorted(shared))}")
    return [{**point, **{name: value(form, point, point) for name, form in formulas.items()}} for point in listed]


def partly(expression: Expr, point: Point) -> Expr:
    """Return the expression with these symbols replaced by numbers; maxima and minima stay unevaluated."""
    here = {symbol(name): sympy.Integer(number) for name, number in point.items()}
    return _replaced(sympy.sympify(expression), here)


def checked_point(
    point: Mapping[str, Any], wanted: Iterable[str], symbols: Collection[str] | None = None
) -> dict[str, int]:
    """Return the point with values as ints. Raises ValueError as `value` does."""
    needed = list(wanted)
    valid = sorted({*(symbols or ()), *needed})
    if strangers := [name for name in point if name not in valid]:
        raise ValueError(unknown_name("symbol", strangers[0], valid))
    if missing := [name for name in needed if name not in point]:
        given = ", ".join(point) or "none"
        raise ValueError(f"expected a value for each of {', '.join(needed)}, got {given}: no {', '.join(missing)}")
    for name, number in point.items():
        if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
            raise ValueError(f"expected a whole number of at least 1 for {name}, got {number!r}")
    return {name: int(number) for name, number in point.items()}


@functools.lru_cache(maxsize=4096)
def compiled(expression: Expr) -> tuple[list[str], Callable[..., Exact]]:
    """Return (names, function): the names of the expression's symbols, and the expression as a function of their values
    in that order. Raises ValueError for an expression that cannot be evaluated exactly."""
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
"""Names in a compiled formula: sympy's, as exact functions of ints and Fractions."""


def _code(expression: Expr, places: Mapping[str, str]) -> str:
    """Return Python source of a formula, in the names of _SCOPE."""
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
