"""The ledger of storages, and sizes: which blocks of memory a step uses, what for, and from which operation to which.

A storage gets a serial number of ours when it is first seen. It is recognised by its Python object, which torch keeps
for as long as the storage lives, and a weak reference tells when that ends; addresses are never keys. nbytes is what
the storage holds, not what an allocator reserves for it. Memory that no operation's tensor ever shows (a kernel's
workspace) is not seen.

Records keep sizes as ints, and torch's symbolic sizes as sympy expressions.

PyTorch's symbolic shapes use sympy functions of its own (FloorDiv, Mod, …), with assumptions but no algebra that
others understand; `plain` turns them into sympy's. It does not simplify.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from results.records.counts import Storage

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
    from torch.utils._sympy import functions

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
    return {
        getattr(functions, name): plain_function for name, plain_function in table.items() if hasattr(functions, name)
    }


BEFORE = -1
"""born_index of a storage that was there before the step."""


class _Reference(weakref.ref):  # type: ignore[type-arg]
    """A weak reference that knows the number and key of what it refers to."""

    __slots__ = ("key", "number")
    key: int
    number: int


@dataclass(slots=True)
class _Entry:
    nbytes: Any
    role: str  # "": none yet
    born: int
    died: int | None = None


class Storages:
    """Storages by number, as they are born and die. `now()` gives the index of the last operation recorded."""

    def __init__(self, now: Callable[[], int]) -> None:
        self.numbers: dict[int, int] = {}  # id of the living Python object → number
        self._now = now
        self._references: list[_Reference] = []
        self._entries: list[_Entry] = []
        self._closed = False

    def number(self, tensor: torch.Tensor, born: int, role: str = "") -> int:
        """The number of the tensor's storage, which is entered as born at operation `born` if it is new.

        A tensor without storage (sparse, opaque) counts as its own, of unknown size.
        """
        owner = owner_of(tensor)
        number = self.numbers.get(id(owner))
        return self._enter(owner, born, role) if number is None else number

    def claim(self, tensors: Iterable[Any], role: str) -> None:
        """Give `role` to the storages of these tensors that have none yet; unknown ones were there before."""
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                entry = self._entries[self.number(tensor, BEFORE, role)]
                entry.role = entry.role or role

    def keep(self, since: int, role: str) -> None:
        """Give `role` to all living storages born from operation `since` on that have none."""
        for number in self.numbers.values():
            entry = self._entries[number]
            if not entry.role and entry.born >= since:
                entry.role = role

    def resized(self, tensor: torch.Tensor) -> None:
        """Read the size of a tensor's storage again: the largest counts."""
        owner = owner_of(tensor)
        entry, nbytes = self._entries[self.numbers[id(owner)]], _nbytes(owner)
        both = isinstance(nbytes, int) and isinstance(entry.nbytes, int)
        entry.nbytes = max(nbytes, entry.nbytes) if both else nbytes

    def close(self) -> None:
        """The step is over: what dies from now on outlived it."""
        self._closed = True
        self._references.clear()

    def records(self) -> tuple[Storage, ...]:
        """The ledger, in order of number."""
        return tuple(
            Storage(number, entry.nbytes, entry.role or "temporary", entry.born, entry.died)
            for number, entry in enumerate(self._entries)
        )

    def _enter(self, owner: Any, born: int, role: str) -> int:
        number = len(self._entries)
        reference = _Reference(owner, self._end)
        reference.key = id(owner)
        reference.number = number
        self._references.append(reference)
        self._entries.append(_Entry(_nbytes(owner), role, born))
        self.numbers[reference.key] = number
        return number

    def _end(self, reference: Any) -> None:
        if not self._closed:
            del self.numbers[reference.key]
            self._entries[reference.number].died = self._now()


def _nbytes(owner: Any) -> Any:
    return plain(owner.nbytes()) if isinstance(owner, torch.UntypedStorage) else None


def owner_of(tensor: torch.Tensor) -> Any:
    """The Python object that stands for a tensor's memory: its storage, or itself where it has none."""
    try:
        return tensor.untyped_storage()
    except NotImplementedError:  # sparse and opaque tensors
        return tensor
