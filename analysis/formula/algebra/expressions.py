"""The project's symbols, and formulas as plain text: written so that sympy reads them, read without running them.

A symbol is a positive whole number (a batch, a width, a length). A formula is an exact sympy expression in symbols:
rational coefficients, sums, products, whole powers, floor, ceiling, Max, Min and Mod. `plain` writes one, leading terms
first, the same text each time; `parse` reads it back to an equal expression with the project's symbols, and so does
sympy: `sympy.sympify(text, locals={name: symbol(name)})`. (Without locals sympy makes symbols that assume nothing, and
takes names such as `degree`, `field` or `S` for things of its own.)

Text is parsed here by a grammar of its own and never evaluated as Python. Not claimed: no functions but those five, no
floating point (0.5 is one half), and no simplification.
"""

import keyword
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, NoReturn

import sympy

from results.limits import beyond, limit
from results.text_files import nearest

Expr = Any
"""A sympy expression, or an int."""

FUNCTIONS: Mapping[str, tuple[Callable[..., Expr], int | None]] = {
    "floor": (sympy.floor, 1),
    "ceiling": (sympy.ceiling, 1),
    "Max": (sympy.Max, None),
    "Min": (sympy.Min, None),
    "Mod": (sympy.Mod, 2),
}
"""Name in a text → (function, how many arguments it takes; None: one or more)."""

HIGHEST_POWER = 1000
DEEPEST = 60
"""A text with a higher power or deeper brackets than these is refused, so that none can hang or overflow."""

MOST_NAMED = 12
"""How many valid names a message lists; the nearest is looked for among all."""

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d{1,3}(?!\d))?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<power>[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)|(?P<operator>\*\*|[-+*/^(),·×]))"
)


def symbol(name: str) -> Expr:
    """The symbol of this name: a positive whole number. Raises ValueError for a name that cannot be one."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or keyword.iskeyword(name) or name in FUNCTIONS:
        raise ValueError(f"expected a symbol's name of letters, digits and _, and no word of Python's, got {name!r}")
    return sympy.Symbol(name, integer=True, positive=True)


def rational(number: Fraction | float) -> Expr:
    """A fraction, an int, or exactly what a float holds, as sympy has it."""
    exact = Fraction(number)
    return sympy.Rational(exact.numerator, exact.denominator)


def names(*expressions: Expr) -> list[str]:
    """Names of the symbols in these expressions, sorted."""
    return sorted({free.name for expression in expressions for free in sympy.sympify(expression).free_symbols})


def unknown_name(kind: str, got: str, valid: Iterable[str]) -> str:
    """One line for a name that is none of the valid ones, with the nearest of them."""
    known = [str(name) for name in valid]
    near = nearest(got, known, cutoff=0.5)
    shown = known if len(known) <= MOST_NAMED else [*known[:MOST_NAMED], f"{len(known) - MOST_NAMED} others"]
    line = f"unknown {kind}: expected {' or '.join(filter(None, [', '.join(shown[:-1]), *shown[-1:]])) or 'none'}"
    return f"{line}, got {got!r}" + (f", nearest {' or '.join(near)}" if near else "")


def plain(expression: Expr) -> str:
    """The expression as text that sympy and `parse` read: leading terms first (highest degree, then by name)."""
    return str(sympy.sstr(sympy.sympify(expression), order="grlex"))


def parse(text: str, known: Iterable[str] | Mapping[str, Expr] | None = None) -> Expr:
    """The expression that a text stands for.

    known: the names that may occur (None: any), or what each name stands for. `^` is a power and `·` a product. Raises
    ValueError, in one line, for anything that is no formula, a name that is not known, and a division by zero.
    """
    meanings = known if isinstance(known, Mapping) or known is None else {name: symbol(name) for name in known}
    return _Reader(text, meanings).whole()


class _Reader:
    """Recursive descent over the tokens of one text; `place` is the next token."""

    def __init__(self, text: str, meanings: Mapping[str, Expr] | None) -> None:
        self.text, self.meanings = text, meanings
        self.tokens = list(_tokens(text))
        self.place = self.depth = 0

    def whole(self) -> Expr:
        found = self.total()
        if self.place < len(self.tokens):
            self.fail("an operator")
        return found

    def total(self) -> Expr:
        """Terms joined by + and -, added in one go: a sum of thousands is no deep tree."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"expected brackets no deeper than {DEEPEST}, got deeper ones in {_short(self.text)}")
        terms = [self.product()]
        while (sign := self.take("+", "-")) is not None:
            term = self.product()
            terms.append(-term if sign == "-" else term)
        self.depth -= 1
        return sympy.Add(*terms)

    def product(self) -> Expr:
        """Factors, multiplied in one go: sympy multiplies a number into a sum where it meets the two alone."""
        factors = [self.sign(), self.powered()]
        while (operator := self.take("*", "·", "×", "/")) is not None:
            factors.append(self.sign())
            factor = self.powered()
            if operator == "/" and factor == 0:
                raise ValueError(f"expected a divisor that is not 0, got one in {_short(self.text)}")
            factors.append(1 / factor if operator == "/" else factor)
        return sympy.Mul(*factors)

    def sign(self) -> int:
        found = 1
        while (sign := self.take("+", "-")) is not None:
            found = -found if sign == "-" else found
        return found

    def powered(self) -> Expr:
        base = self.atom()
        kind, token = self.peek()
        if kind == "power":
            self.place += 1
            return self.raised(base, sympy.Integer(_whole_power(token, self.text)))
        return self.raised(base, self.sign() * self.powered()) if self.take("**", "^") else base

    def raised(self, base: Expr, power: Expr) -> Expr:
        if not power.is_Integer or abs(power) > HIGHEST_POWER:
            raise ValueError(f"expected whole powers up to {HIGHEST_POWER}, got {power} in {_short(self.text)}")
        if base == 0 and power < 0:
            raise ValueError(f"expected a divisor that is not 0, got one in {_short(self.text)}")
        self.check_power(base, abs(int(power)))
        return base**power

    def check_power(self, base: Expr, power: int) -> None:
        """Raises ValueError for a power inside of others that would be a number without end: sympy calculates it."""
        bits = max((max(abs(n.p), n.q).bit_length() for n in base.atoms(sympy.Rational)), default=1)
        if power > 1 and bits * power > limit("formula_bits"):
            raise ValueError(beyond(f"a power in {_short(self.text)} has about {bits * power} digits", "formula_bits"))
        inner = max((abs(int(raised.exp)) for raised in base.atoms(sympy.Pow) if raised.exp.is_Integer), default=1)
        if inner * power > HIGHEST_POWER:
            raise ValueError(f"expected whole powers up to {HIGHEST_POWER}, got {inner * power} in {_short(self.text)}")

    def atom(self) -> Expr:
        kind, token = self.peek()
        self.place += 1
        if kind == "number":
            return _number(token)
        if kind == "name":
            return self.called(token) if self.take("(") else self.meaning(token)
        if token == "(":
            found = self.total()
            self.close()
            return found
        self.place -= 1
        return self.fail("a number, a name or a bracket")

    def called(self, name: str) -> Expr:
        if name not in FUNCTIONS:
            raise ValueError(unknown_name("function", name, FUNCTIONS))
        function, count = FUNCTIONS[name]
        arguments = [self.total()]
        while self.take(","):
            arguments.append(self.total())
        self.close()
        if count is not None and len(arguments) != count:
            raise ValueError(f"expected {count} arguments of {name}, got {len(arguments)} in {_short(self.text)}")
        if name == "Mod" and arguments[1] == 0:
            raise ValueError(f"expected a divisor that is not 0, got one in {_short(self.text)}")
        return function(*arguments)

    def meaning(self, name: str) -> Expr:
        if self.meanings is None:
            return symbol(name)
        if name not in self.meanings:
            raise ValueError(unknown_name("name", name, self.meanings))
        return sympy.sympify(self.meanings[name])

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.place] if self.place < len(self.tokens) else ("", "")

    def take(self, *operators: str) -> str | None:
        kind, token = self.peek()
        if kind != "operator" or token not in operators:
            return None
        self.place += 1
        return token

    def close(self) -> None:
        if not self.take(")"):
            self.fail("a closing bracket")

    def fail(self, wanted: str) -> NoReturn:
        got = self.peek()[1]
        raise ValueError(f"expected {wanted}, got {got!r} in {_short(self.text)}" if got else self._ended(wanted))

    def _ended(self, wanted: str) -> str:
        return f"expected {wanted}, but the text ends: {_short(self.text)}"


def _tokens(text: str) -> Iterable[tuple[str, str]]:
    """(kind, text) of each token. Raises ValueError at the first character that is in none."""
    place, end = 0, len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            raise ValueError(f"expected a formula, got {text[place:].split()[0][:20]!r} in {_short(text)}")
        place = found.end()
        assert found.lastgroup is not None  # the pattern is an alternative of named groups
        yield found.lastgroup, found.group(found.lastgroup)


def _number(token: str) -> Expr:
    """A number exactly. Raises ValueError for one of more digits than a formula may have, or Python reads."""
    most = min(limit("formula_bits") // 4, sys.get_int_max_str_digits() or sys.maxsize)
    if len(token) > most:
        raise ValueError(f"expected a number of at most {most} digits, got {_short(token)}")
    return sympy.Rational(token.replace("_", ""))


def _whole_power(superscripts: str, text: str) -> int:
    try:
        return int(superscripts.translate(_SUPERSCRIPTS))
    except ValueError as fault:
        raise ValueError(f"expected a power such as ², got {superscripts!r} in {_short(text)}") from fault


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
