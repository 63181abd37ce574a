"""Defines the records of a model's calls: modules and watched functions of a forward pass, with their operations.

`measure/counters/model_calls.py` fills a `CallRecording`. The rules of every counter (`cleaning/accounts/`) take the
recording, to recompute what the counter would report. The recording is kept in memory only, crosses from one process to
another, needs no torch, and has no times.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeVar

from results.records.counts import Operation

T = TypeVar("T")

MODULE, FUNCTION = "module", "function"
"""Kinds of calls."""

APPLIED = "Function.apply"
"""Name of a call of a function with its own backward pass (torch.autograd.Function)."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A tensor among the arguments or results of a call. storage: id of its storage, as in `Operation.reads` and
    `writes`; None if no operation had used it yet."""

    shape: tuple[int, ...]
    storage: int | None = field(default=None, compare=False)

    @property
    def numel(self) -> int:
        """Number of its elements."""
        return prod(self.shape)


@dataclass(frozen=True)
class ModuleInfo:
    """One module object, listed once, whatever the number of its names and calls.

    serial: its number in the order of `modules()`, 0 for the root. path: its first name. type: module and name of its
    class. bases: modules and names of all base classes. settings: its attributes that are numbers, strings or tuples of
    these. parameters: name → sizes of its direct parameters, in order. children: (name, serial) of its direct children.
    """

    serial: int
    path: str
    type: str
    bases: tuple[str, ...]
    settings: Mapping[str, Any]
    parameters: Mapping[str, tuple[int, ...]]
    children: tuple[tuple[str, int], ...]

    @property
    def class_name(self) -> str:
        """The bare name of its class."""
        return self.type.rpartition(".")[2]


@dataclass(frozen=True)
class Call:
    """One call of a module or of a watched function.

    parent: index of the call around it; None: none. name: of a function "F.relu", "torch.matmul", "Tensor.__add__",
    APPLIED; of a module its type. path, serial: of the called module, or of the module whose forward called the
    function. arguments, keywords, output: tensors are `Sized`, other objects that are neither plain nor containers are
    the name of their type. first, last: the forward operations within the call are those with first <= index < last.
    """

    index: int
    parent: int | None
    what: str
    name: str
    path: str
    serial: int
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    output: Any
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PlainCall:
    """A call of add or mul in a step without listeners; also of a product, inside another operator or recomputed.

    phase: forward, backward or recompute. shapes: of its arguments, () of a number. inside: of a product, the operators
    around it, from the nearest outwards: (name, how many of that name began before it in its phase).
    """

    phase: str
    name: str
    path: str
    shapes: tuple[tuple[int, ...], ...]
    inside: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class CallRecording:
    """One forward pass and, where there is one, its backward pass.

    operations: in order of execution, all phases. calls: of the forward pass, in order of their beginning. plain: calls
    in a separate step without listeners (`measure/counters/model_calls.py`). batch: the length of the first input, 1
    where it has none. parameters: of the model, shared ones once. sources, results: the storages of inputs and weights,
    and of the outputs. note: a remark on how it was recorded. training: the operations of a training step, with loss
    and optimizer; empty with the reason in `untrained`, or where none was requested. mask_rules: module path → the rule
    of the attention masks that it makes, where it states one. formulas: the operators for which FlopCounterMode of the
    torch that recorded has a formula.
    """

    operations: tuple[Operation, ...]
    calls: tuple[Call, ...]
    modules: tuple[ModuleInfo, ...]
    plain: tuple[PlainCall, ...] = ()
    batch: int = 1
    parameters: int = 0
    sources: frozenset[int] = frozenset()
    results: frozenset[int] = frozenset()
    note: str = ""
    training: tuple[Operation, ...] = ()
    untrained: str = ""
    mask_rules: Mapping[str, str] = field(default_factory=dict)
    formulas: frozenset[str] = frozenset()

    def around(self, call: Call) -> Iterator[Call]:
        """Yield the calls around this one, from the nearest outwards."""
        while call.parent is not None:
            call = self.calls[call.parent]
            yield call


def instances(value: Any, kind: type[T]) -> Iterator[T]:
    """Yield all objects of a type in nested lists, tuples, mappings and dataclasses, not inside other objects (a
    key-value cache)."""
    if isinstance(value, kind):
        yield value
        return
    parts: Iterable[Any] = ()
    if hasattr(value, "values"):
        parts = value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    for part in parts:
        yield from instances(part, kind)


def tensors(value: Any) -> Iterator[Sized]:
    """Yield all tensors in nested tuples and mappings, in order."""
    return instances(value, Sized)
