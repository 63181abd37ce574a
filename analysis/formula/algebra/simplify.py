"""A formula as a person reads it: in the form whose text is shortest, as `24·batch·hidden²·layers + 8·hidden + 2`.

Terms of the highest degree come first; thousands are parted by commas, roundings are ⌊ ⌋ and ⌈ ⌉. The text is for
people: `analysis.formula.algebra.expressions.plain` writes what a program reads.
"""

import sympy
from sympy.printing.str import StrPrinter

from analysis.formula.algebra.expressions import Expr

FEW = 16
"""A formula of at most this many terms is searched for sums as factors, which is slow."""

MANY = 60
"""A formula of more terms is not collected by a symbol: that takes seconds and helps nobody to read it."""

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def shortest(expression: Expr) -> Expr:
    """The form whose text is shortest: multiplied out, factored, or collected by a symbol; the first of equals.

    The form need not be in sympy's own normal form (`2·(a + b)` stays so). A maximum stays as it is: that takes long.
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
    """The expression as one line for a person."""
    text: str = _Text({"order": "grlex"}).doprint(sympy.sympify(expression))
    return text.replace("*", "·")


class _Text(StrPrinter):  # type: ignore[misc]
    """sympy's text, with raised powers, roundings in brackets of their own and commas between thousands."""

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
