"""Sizes as the records keep them: ints as they are, torch's symbolic sizes as sympy expressions.

PyTorch's symbolic shapes use sympy functions of its own (FloorDiv, Mod, …), with assumptions but no algebra that
others understand; `plain` turns them into sympy's. It does not simplify, and keeps the symbols' names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def sizes(shape: Sequence[Any]) -> tuple[Any, ...]:
    """A tensor's sizes as a tuple of ints, or of sympy expressions where they are symbolic."""
    for size in shape:
        if type(size) is not int:
            return tuple(plain(size) for size in shape)
    return tuple(shape)


def plain(value: Any) -> Any:
    """A size, a tuple of sizes or any other value, with symbolic numbers turned into sympy expressions.

    A symbolic number that turned out constant becomes the number.
    """
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if not isinstance(value, SYMBOLIC):
        return value
    expression = value.node.expr
    for theirs, ours in _functions().items():
        expression = expression.replace(theirs, ours)
    if expression.is_Integer:
        return int(expression)
    return float(expression) if expression.is_Float else expression


@cache
def _functions() -> dict[type, Callable[..., Any]]:
    """torch's function → the same in sympy's own terms. sympy is imported only where sizes are symbolic."""
    import sympy
    from torch.utils._sympy import functions as theirs

    table = {
        "FloorDiv": lambda a, b: sympy.floor(a / b),
        "CleanDiv": lambda a, b: a / b,
        "IntTrueDiv": lambda a, b: a / b,
        "FloatTrueDiv": lambda a, b: a / b,
        "CeilDiv": lambda a, b: sympy.ceiling(a / b),
        "ModularIndexing": lambda a, b, c: sympy.Mod(sympy.floor(a / b), c),
        "Mod": sympy.Mod,
        "PythonMod": sympy.Mod,
        "CeilToInt": sympy.ceiling,
        "FloorToInt": sympy.floor,
        "TruncToInt": sympy.floor,  # sizes are not negative
        "ToFloat": lambda a: a,
        "Identity": lambda a: a,
        "PowByNatural": lambda a, b: a**b,
        "FloatPow": lambda a, b: a**b,
        "Max": sympy.Max,
        "Min": sympy.Min,
        "Where": lambda c, a, b: sympy.Piecewise((a, c), (b, True)),
    }
    return {getattr(theirs, name): ours for name, ours in table.items() if hasattr(theirs, name)}
