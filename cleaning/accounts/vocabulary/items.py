"""What a rule says that a counter counted: one item a call or operation, in the counter's own unit. No totals here."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from analysis.operators.registry import kind_of, model_flop
from cleaning.accounts.vocabulary.causes import PRODUCT
from results.records.counts import Call, CallRecording, Operation, Sized, tensors

Native = int | Fraction

FUSED_NOT_SEEN = {"attention": "attention_not_seen", "recurrent": "recurrent_not_seen"}
"""Kind that runs as one operator → the cause where a counter has no rule for it."""


@dataclass(frozen=True)
class Item:
    """One part of a counter's number.

    native: in the counter's own unit. cause: PRODUCT, or why it is counted though it is no product. first, last: of a
    product, the operations that it stands for (first <= index < last; of a backward pass the forward operations that
    those belong to, or they themselves). fault: of a product, why its number is not that of those operations.
    """

    native: Native
    cause: str = PRODUCT
    kind: str = ""
    module: str = ""
    first: int = 0
    last: int = 0
    fault: str = ""


Counted = tuple[list[Item], Callable[[Operation], str]]
"""A counter's items of one pass, and the cause for a product that none of them stands for."""


def product(call: Call, native: Native, fault: str = "", kind: str = "matmul") -> Item:
    """The products under a call."""
    return Item(native, PRODUCT, kind, call.path, call.first, call.last, fault)


def other(call: Call, cause: str, native: Native, kind: str) -> Item:
    """Something under a call that is no product."""
    return Item(native, cause, kind, call.path)


def of_operation(operation: Operation, native: Native, cause: str = PRODUCT, fault: str = "") -> Item:
    """One operation by itself."""
    here = operation.index
    return Item(native, cause, operation.kind, operation.module, here, here + 1, fault)


def exact_flop(operation: Operation) -> int:
    """Model FLOP of an operation; 0 of what is no product."""
    return model_flop(operation)


def real_flop(operation: Operation) -> int:
    """The same by sizes alone: a multiply-add of complex numbers, which is four of real ones, is taken for one."""
    return exact_flop(operation) // (4 if is_complex(operation) else 1)


def is_complex(operation: Operation) -> bool:
    """Whether it works on complex numbers."""
    return any(dtype.startswith("complex") for dtype in operation.input_dtypes)


def in_phase(recording: CallRecording, phase: str) -> Iterator[Operation]:
    """The operations of one pass."""
    return (operation for operation in recording.operations if operation.phase == phase)


def bound(call: Call, names: str) -> dict[str, Any]:
    """Arguments by name, for a function whose positional arguments have these names; what was not given is left out."""
    return {**dict(zip(names.split(), call.arguments, strict=False)), **call.keywords}


def first_tensor(value: Any) -> Sized | None:
    """The first tensor in arguments or an output."""
    return next(tensors(value), None)


def in_and_out(call: Call) -> tuple[Sized, Sized]:
    """The first tensor that a module was given, and the first that it gave. Raises ValueError where there is none."""
    given, output = first_tensor(call.arguments), first_tensor(call.output)
    if given is None or output is None:
        raise ValueError(f"{call.path}: expected a module with a tensor in and a tensor out")
    return given, output


def missed_by(words: Mapping[str, str], default: str) -> Callable[[Operation], str]:
    """A cause by the kind of the operation that was missed."""
    return lambda operation: words.get(kind_of(operation.name), default)
