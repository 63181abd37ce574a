"""Branches and loops that torch has as operators (`cond`, `switch`, `scan`, `map`, `while_loop`) run as Python's own.

So each call of a body is recorded, in both passes, as often as it runs. Where a branch or the end of a loop depends on
a value, and tensors have none, it is refused and the operator named. Code that was compiled runs as it was written.
Not claimed: what a compiler makes of a loop; other operators that take functions.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from results.errors import Unavailable


@contextlib.contextmanager
def written_out() -> Iterator[None]:
    """While inside, these operators are their bodies, and `torch.compile` leaves functions as they are."""
    with contextlib.ExitStack() as undo:
        for name, run in _BODIES.items():
            operator = getattr(torch.ops.higher_order, name, None)
            if operator is not None:
                undo.enter_context(_exchanged(type(operator), "__call__", run))
        undo.enter_context(_exchanged(torch, "compile", _as_it_is))
        if "torch._dynamo" in sys.modules:  # else nothing was compiled
            undo.enter_context(torch.compiler.set_stance("force_eager"))
        yield


@contextlib.contextmanager
def _exchanged(owner: Any, name: str, instead: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, instead)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _as_it_is(model: Any = None, **_options: Any) -> Any:
    return model if model is not None else lambda function: function


def _value(operator: Any, tensor: Any) -> int:
    try:
        return int(tensor)
    except Unavailable as fault:
        raise Unavailable(f"the course of {operator.name()} depends on a value") from fault


def _cond(self: Any, predicate: Any, *branches_and_operands: Any) -> Any:
    yes, no, operands = branches_and_operands
    return (yes if _value(self, predicate) else no)(*operands)


def _switch(self: Any, index: Any, branches: Sequence[Callable[..., Any]], operands: Sequence[Any]) -> Any:
    return branches[min(max(_value(self, index), 0), len(branches) - 1)](*operands)


def _while_loop(self: Any, goes_on: Any, body: Any, carried: Any, more: Any, **_named: Any) -> Any:
    carried = tuple(carried)
    while _value(self, goes_on(*carried, *more)):
        carried = tuple(body(*carried, *more))
    return carried


def _scan(_self: Any, body: Any, carried: Any, inputs: Any, more: Any = (), **_named: Any) -> Any:
    count, results = len(carried), []
    for parts in zip(*inputs, strict=True):
        found = tuple(body(*carried, *parts, *more))
        carried = found[:count]
        results.append(found[count:])
    return (*carried, *map(_stacked, *results))


def _map(_self: Any, body: Any, inputs: Any, more: Any = (), **_named: Any) -> Any:
    return tree_map(lambda *parts: _stacked(*parts), *(body(*parts, *more) for parts in zip(*inputs, strict=True)))


def _stacked(*parts: Any) -> Any:
    return torch.stack(parts) if isinstance(parts[0], torch.Tensor) else parts[0]


_BODIES: Mapping[str, Callable[..., Any]] = {
    "cond": _cond,
    "map_impl": _map,
    "scan": _scan,
    "switch": _switch,
    "while_loop": _while_loop,
}
"""Operator → what runs in its place."""
