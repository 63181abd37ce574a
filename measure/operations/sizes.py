"""Sizes as the records keep them: ints as they are, torch's symbolic sizes as sympy expressions.

PyTorch's symbolic shapes use sympy functions of its own (FloorDiv, Mod, …), with assumptions but no algebra that
others understand; `plain` turns them into sympy's. It does not simplify.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv


def symbol(shape_env: ShapeEnv, name: str, hint: int) -> torch.SymInt:
    """A size that is a symbol, to make fake tensors with: `torch.empty(symbol(env, "batch", 37), 3)`.

    hint: the value that decisions are taken by (a kernel's choice, a broadcast): one that no other size has. In
    records the symbol is sympy's `Symbol(name, integer=True, positive=True)`.
    """
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    source = ConstantSource(name)
    created = shape_env.create_symbol(hint, source=source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
    size = shape_env.create_symintnode(created, hint=hint, source=source)
    assert isinstance(size, torch.SymInt)
    return size


def fixed_symbols(shape_env: ShapeEnv) -> dict[str, int]:
    """Name → value of the symbols that an operation decided by and so fixed: no formula in them is to be had."""
    fixed = {torch_symbol: int(value) for torch_symbol, value in shape_env.replacements.items() if value.is_Integer}
    names = _names(shape_env, fixed)
    return {str(names.get(torch_symbol, torch_symbol)): value for torch_symbol, value in fixed.items()}


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
    for torchs, sympys in _functions().items():
        expression = expression.replace(torchs, sympys)
    expression = expression.xreplace(_names(value.node.shape_env, expression.free_symbols))
    if expression.is_Integer:
        return int(expression)
    return float(expression) if expression.is_Float else expression


def _names(shape_env: Any, symbols: Iterable[Any]) -> dict[Any, Any]:
    """torch's symbol (s0, …) → the one with the name that `symbol` was given."""
    import sympy
    from torch._dynamo.source import ConstantSource

    names = {}
    for torch_symbol in symbols:
        sources = shape_env.var_to_sources.get(torch_symbol, ())
        if sources and isinstance(sources[0], ConstantSource):
            names[torch_symbol] = sympy.Symbol(sources[0].source_name, integer=True, positive=True)
    return names


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
